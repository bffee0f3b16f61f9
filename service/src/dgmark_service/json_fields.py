"""The fields of a JSON text, and what is wrong with one, in words for whoever has not heard of pydantic. Needs no HTTP.

A field of several types has an error for each of them: the one that lies deepest is of the type that was meant.
"""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from dgmark.rows.jsonl import RepeatedField, parse_json
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.schemas import RequestFields

R = TypeVar("R", bound=RequestFields)

_REASONS = {
    "string_unicode": "it must be a text in valid Unicode",
    "greater_than_equal": "it must be at least {ge:g}",
    "greater_than": "it must be above {gt:g}",
    "less_than_equal": "it must be at most {le:,}",
    "less_than": "it must be below {lt:,}",
    "string_too_short": "it must not be empty",
    "string_too_long": "it must have at most {max_length} characters",
    "too_short": "it must not be empty",
    "too_long": "it must have at most {max_length:,} items",
    "literal_error": "it must be {expected}",
    "missing": "it is missing",
    "extra_forbidden": "there is no such field: leave it out, or correct its name",
    "union_tag_not_found": "it must be a text, or a list of texts or of token ids",
}
# what a value is that has another type, by how the kind of pydantic's error begins
_TYPES = {
    "string": "a text",
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "list": "a list",
    "dict": "an object",
    "model": "an object",
    "none": "null",
}
# the name of one of several types of a field stands in a place beside the names of fields
_FIELD = re.compile(r"(?!(?:str|bool|int|float|list|dict)$)[a-z0-9_]+")


def invalid_field(error: ValidationError) -> tuple[str, str]:
    """The first field that is wrong, and why.

    Neither has a value of the input, which may be somebody's text.
    """
    errors = error.errors(include_url=False, include_input=False)
    placed = [(_place(one["loc"]), one) for one in errors if one["loc"][:1] == errors[0]["loc"][:1]]
    place = max((place for place, _ in placed), key=len)
    errors = [one for its, one in placed if its == place]
    reasons = [one for one in errors if _type(one) is None]
    said = _reason(reasons[0]) if reasons else f"it must be {' or '.join(dict.fromkeys(map(str, map(_type, errors))))}"
    return ".".join(place) or "body", said


def _place(parts: Sequence[Any]) -> list[str]:
    """The parts of a place that are fields, or numbers in a list."""
    return [part for part in map(str, parts) if _FIELD.fullmatch(part)]


def _type(error: Any) -> str | None:
    """What the value should be, if it has another type."""
    return None if error["type"] in _REASONS else _TYPES.get(error["type"].partition("_")[0])


def _reason(error: Any) -> str:
    """Why a value of the right type is wrong."""
    own = _REASONS.get(error["type"])
    return own.format_map(error.get("ctx", {})) if own else error["msg"].removeprefix("Value error, ")


def fields_of(body: bytes, model: type[R], document: bool | None = None) -> R:
    """The fields of a JSON text.

    Args:
        body: the text.
        model: the fields.
        document: whether a document came with it; None where none can come.

    Raises:
        ErrorAnswer: it is empty or no JSON, names a field twice, or a field is wrong or unknown.
    """
    if not body:
        raise ErrorAnswer(400, "the body is empty: send a JSON object", param="body")
    try:
        fields = parse_json(body.decode(), parse_float=_number, parse_constant=_no_number)
    except RepeatedField as error:
        raise ErrorAnswer(400, "this is a duplicate field", param=error.name) from None
    except RecursionError:
        raise ErrorAnswer(400, "the body is nested too deeply", param="body") from None
    except ValueError as error:
        raise ErrorAnswer(400, f"the body is no JSON in UTF-8 ({error})", param="body") from None
    try:
        return model.model_validate(fields, strict=True, context=None if document is None else {"document": document})
    except ValidationError as error:
        param, why = invalid_field(error)
        raise ErrorAnswer(400, f"the request is invalid: {param}: {why}", param=param) from None


def _number(digits: str) -> float:
    """A number with a point or an exponent: in JSON, 16.0 is the whole number 16."""
    number = float(digits)
    return int(number) if number.is_integer() else number


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")
