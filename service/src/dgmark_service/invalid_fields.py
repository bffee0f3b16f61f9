"""What is wrong with the fields of a request, in words for whoever has not heard of pydantic.

A field of several types has an error for each of them. Only those of the type that was meant say what to do.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

MAX_ERRORS = 20
# what a value is that has another type, by the kind of pydantic's error
_TYPES = {
    "string_type": "a text",
    "string_sub_type": "a text",
    "string_unicode": "a text in valid Unicode",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
}
_LIMITS = {
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
    "json_invalid": "the body is no JSON ({error})",
}
# the name of one of several types of a field stands in a place beside the names of fields
_TYPE_NAMES = ("str", "bool", "int", "float", "list", "dict")


def invalid_fields(error: RequestValidationError | ValidationError) -> list[dict[str, str]]:
    """The fields that are wrong, each once, as `param` and `message`.

    Neither has a value of the input, which may be somebody's text.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in error.errors()[: 4 * MAX_ERRORS]:
        found.setdefault(_param(one["loc"]), []).append(one)
    # a value with faults inside has one of the types
    known = {param: errors for param, errors in found.items() if not _only_types(errors) or not _inside(param, found)}
    return [{"param": param, "message": _message(errors)} for param, errors in known.items()][:MAX_ERRORS]


def _param(place: Sequence[Any]) -> str:
    """The name of a field: the parts of its place that are fields or numbers in a list."""
    return ".".join(part for part in map(str, place) if _is_field(part)) or "body"


def _is_field(part: str) -> bool:
    return re.fullmatch(r"[a-z0-9_]+", part) is not None and part not in _TYPE_NAMES


def _only_types(errors: Sequence[Mapping[str, Any]]) -> bool:
    return all(one["type"] in _TYPES for one in errors)


def _inside(param: str, found: Mapping[str, Any]) -> bool:
    return any(other.startswith(f"{param}.") for other in found)


def _message(errors: Sequence[Mapping[str, Any]]) -> str:
    """Why a field is wrong, from the errors of all its types."""
    if _only_types(errors):
        return f"it must be {' or '.join(dict.fromkeys(_TYPES[one['type']] for one in errors))}"
    one = next(one for one in errors if one["type"] not in _TYPES)
    if one["type"] in _LIMITS:
        return _LIMITS[one["type"]].format_map(one.get("ctx", {}))
    return str(one["msg"]).removeprefix("Value error, ")
