"""Arguments of functions and fields of files as what they should be, or an error that says what is wrong with them."""

import math
import operator
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import numpy as np
from pydantic import BeforeValidator, ValidationError, model_validator

from dgmark.errors import SettingsError

# of a function of several rows: raise the error of the first bad row, or return each error in the place of its row
Errors = Literal["raise", "return"]
Instance = TypeVar("Instance")
Number = TypeVar("Number", int, float)
_HUGE = 10**300
MAX_NAME = 80  # characters of a name
MAX_TEXT_NAME = 200  # of a text, such as the name of its file
# what Unicode counts as letters or signs, though it shows nothing: fillers, joiners, variation selectors, blanks
_BLANK = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def _whole_number(value: Any) -> Any:
    """Refuse true and 1.0, which are equal to 1."""
    if type(value) is not int:
        raise ValueError("Input should be 1")
    return value


FirstVersion = Annotated[Literal[1], BeforeValidator(_whole_number)]


def refused_in_words(words: Callable[[Any, ValidationError], str]) -> Any:
    """A validator of a pydantic class that raises what pydantic finds as a SettingsError, which carries no value.

    `words` says what is wrong, of the class and of what pydantic found.
    """

    def refuse(cls: Any, fields: Any, build: Callable[[Any], Any]) -> Any:
        try:
            return build(fields)
        except ValidationError as error:
            problem = words(cls, error)
        raise SettingsError(problem)  # out here, without the error, which holds the values: one may be a secret

    return model_validator(mode="wrap")(classmethod(refuse))  # type: ignore[arg-type]


def wrong_fields(error: ValidationError) -> str:
    """The names of the first fields that pydantic refuses, and never their values, which may be a secret."""
    names = sorted({".".join(map(str, fault["loc"])) for fault in error.errors()})
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(names[:6]) + more or "all"


def field_problems(error: ValidationError) -> str:
    """The fields of a file that pydantic refuses, each with the reason."""
    faults = error.errors()
    return "; ".join(f"{'.'.join(map(str, fault['loc'])) or 'the file'}: {fault['msg']}" for fault in faults)


def shown(value: object, most: int = 80) -> str:
    """A value as a message quotes it: its `repr`, cut short; its type if it has none."""
    try:
        text = repr(value)
    except Exception:  # whatever an object does, or a number of too many digits
        return f"of type {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def is_of(value: object, *kinds: type) -> bool:
    """Whether the type of a value is one of these or below one; `isinstance` also believes what an object claims."""
    return issubclass(type(value), kinds)


def whole(name: str, value: Any) -> int:
    """A whole number, Python's or numpy's; anything else is a SettingsError."""
    try:
        if not isinstance(value, bool):
            return _not_huge(name, operator.index(value))
    except TypeError:
        pass
    raise SettingsError(f"{name} {shown(value)} is not a whole number")


def number(name: str, value: Any) -> float:
    """A real number, Python's or numpy's; anything else is a SettingsError."""
    if is_of(value, bool) or not is_of(value, Real):
        raise SettingsError(f"{name} {shown(value)} is not a number")
    real: float = _not_huge(name, value)  # an int stays an int
    return real


def _not_huge(name: str, value: Number) -> Number:
    """Refuse a number that no float holds, and that Python may not even print."""
    if -_HUGE < value < _HUGE or value != value or value in (math.inf, -math.inf):
        return value
    raise SettingsError(f"{name} is a number of more than 300 digits")


def as_path(value: Any, what: str) -> Path:
    """The path that an argument states, of something such as "a key file"; what is not a path is a SettingsError."""
    return Path(path_text(value, what))


def path_text(value: Any, what: str) -> str:
    """An argument as the text of a path, as it was written; see `as_path`."""
    try:
        text = os.fspath(value)
    except TypeError:  # also of a PathLike that gives no path
        text = None
    if not isinstance(text, str):
        raise SettingsError(f"the path of {what} is a str or a Path, not a {type(value).__name__}")
    if not text:
        raise SettingsError(f"the path of {what} is empty: give one")
    try:
        possible = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        possible = False
    if not possible:
        raise SettingsError(f"the path of {what}, {shown(text)}, holds a character that no file's name can hold")
    return text


def instance(name: str, value: Any, kind: type[Instance]) -> Instance:
    """An argument that must be of a class; anything else is a SettingsError."""
    if not is_of(value, kind):
        raise SettingsError(f"{name} is of type {type(value).__name__}: give a {kind.__name__}")
    return value  # type: ignore[no-any-return]


def flag(name: str, value: Any) -> bool:
    """True or false, Python's or numpy's; anything else is a SettingsError, as texts such as "no" are true."""
    if is_of(value, bool, np.bool_):
        return bool(value)
    raise SettingsError(f"{name} {shown(value)} is neither True nor False")


def returns_errors(errors: Any) -> bool:
    """Whether a function of several rows returns `Errors` in the places of rows; other values are a SettingsError."""
    if type(errors) is not str or errors not in get_args(Errors):
        raise SettingsError(
            f'errors {shown(errors)} is neither "raise" nor "return": give "return" to get the error of a bad row in '
            "its place, and the results of all others"
        )
    return errors == "return"


def check_name(name: Any, what: str, longest: int = MAX_NAME) -> None:
    """Refuse what cannot name somebody or something in a sentence, on a page or on a terminal, with a SettingsError.

    A name has 1 to 80 visible characters on one line; spaces may stand between others. No message quotes it: it may be
    a secret in the wrong place. `what` has this name, such as "a key".
    """
    problem = _fault_of_name(name, longest)
    if problem:
        raise SettingsError(f"the name of {what} {problem}: give 1 to {longest} visible characters on one line")


def visible_name(name: str) -> str:
    """The name of a file or a row as `check_name` takes one: what shows nothing is left out, and the end of a long one.

    "a text" if nothing is left.
    """
    shown = "".join(" " if _is_hidden(character) else character for character in name)
    return " ".join(shown.split())[:MAX_TEXT_NAME].strip() or "a text"


def _is_hidden(character: str) -> bool:
    return not character.isprintable() or bool(_BLANK.match(character))


def _fault_of_name(name: Any, longest: int) -> str:
    if not is_of(name, str):
        return f"is of type {type(name).__name__}, not a text"
    if not 1 <= len(name) <= longest:
        return f"has {len(name)} characters"
    hidden = next((character for character in name if _is_hidden(character)), None)
    if hidden is not None:
        return f"holds U+{ord(hidden):04X}, which shows nothing"
    if name != name.strip():
        return "begins or ends with a space"
    # combining marks alone would stand on whatever is before them
    return "begins with a combining mark" if unicodedata.category(name[0])[0] == "M" else ""


def several(value: Any, what: str) -> list[Any]:
    """The items of an iterable of such things as "texts".

    A text, a mapping, or a set, which has no order, is a SettingsError.
    """
    items = None
    if is_of(value, Iterable) and not is_of(value, str, bytes, bytearray, range, set, frozenset, Mapping):
        with suppress(TypeError):
            items = iter(value)
    if items is None:
        raise SettingsError(f"several {what} are given as a list, not as a {type(value).__name__}")
    return list(items)
