"""What is wrong with the fields of a request, in words for whoever has not heard of pydantic.

A field of several types has an error for each of them. Only those of the type that was meant say what to do.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

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
}
# the name of one of several types of a field stands in a place beside the names of fields
_TYPE_NAMES = ("str", "bool", "int", "float", "list", "dict")


def invalid_field(error: RequestValidationError | ValidationError) -> dict[str, str]:
    """The first field that is wrong, as `param` and `message`.

    Neither has a value of the input, which may be somebody's text.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    errors: Sequence[Any] = (
        error.errors(include_url=False, include_input=False) if isinstance(error, ValidationError) else error.errors()
    )
    for one in errors:
        found.setdefault(_param(one["loc"]), []).append(one)
    first = next(iter(found))
    # a value with faults inside has one of the types
    while _only_types(found[first]) and (inside := [other for other in found if other.startswith(f"{first}.")]):
        first = inside[0]
    return {"param": first, "message": _message(found[first])}


def _param(place: Sequence[Any]) -> str:
    """The name of a field: the parts of its place that are fields or numbers in a list."""
    return ".".join(part for part in map(str, place) if _is_field(part)) or "body"


def _is_field(part: str) -> bool:
    return re.fullmatch(r"[a-z0-9_]+", part) is not None and part not in _TYPE_NAMES


def _only_types(errors: Sequence[Mapping[str, Any]]) -> bool:
    return all(one["type"] in _TYPES for one in errors)


def _message(errors: Sequence[Mapping[str, Any]]) -> str:
    """Why a field is wrong, from the errors of all its types."""
    if _only_types(errors):
        return f"it must be {' or '.join(dict.fromkeys(_TYPES[one['type']] for one in errors))}"
    one = next(one for one in errors if one["type"] not in _TYPES)
    if one["type"] in _LIMITS:
        return _LIMITS[one["type"]].format_map(one.get("ctx", {}))
    return str(one["msg"]).removeprefix("Value error, ")
