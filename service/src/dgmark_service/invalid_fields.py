"""What is wrong with the fields of a request, in words for whoever has not heard of pydantic.

A field of several types has an error for each of them: the one that lies deepest is of the type that was meant.
"""

import re
from collections.abc import Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

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


def invalid_field(error: RequestValidationError | ValidationError) -> dict[str, str]:
    """The first field that is wrong, as `param` and `message`.

    Neither has a value of the input, which may be somebody's text.
    """
    placed = [(_place(one["loc"]), one) for one in error.errors()]
    place = max((place for place, _ in placed if place[:1] == placed[0][0][:1]), key=len)
    errors = [one for its, one in placed if its == place]
    reasons = [one for one in errors if _type(one) is None]
    said = _reason(reasons[0]) if reasons else f"it must be {' or '.join(dict.fromkeys(map(str, map(_type, errors))))}"
    return {"param": ".".join(place) or "body", "message": said}


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
