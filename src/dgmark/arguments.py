"""Arguments of functions and fields of files as what they should be, or an error that says what is wrong with them."""

import operator
import os
from collections.abc import Iterable
from numbers import Real
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from dgmark.errors import SettingsError


def _whole_number(value: Any) -> Any:
    """Refuse true and 1.0, which are equal to 1."""
    if type(value) is not int:
        raise ValueError("Input should be 1")
    return value


FirstVersion = Annotated[Literal[1], BeforeValidator(_whole_number)]


def whole(name: str, value: Any) -> int:
    """A whole number, Python's or numpy's.

    Raises:
        SettingsError: `value` is not one.
    """
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise SettingsError(f"{name} {value!r} is not a whole number")


def number(name: str, value: Any) -> float:
    """A real number, Python's or numpy's.

    Raises:
        SettingsError: `value` is not one.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise SettingsError(f"{name} {value!r} is not a number")
    return value  # type: ignore[return-value] # an int stays an int


def as_path(value: Any, what: str) -> Path:
    """An argument as a path.

    Args:
        value: the path, as a text or a `Path`.
        what: what is there, such as "a key file".

    Raises:
        SettingsError: `value` is neither a text nor a path.
    """
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise SettingsError(f"the path of {what} is a str or a Path, not a {type(value).__name__}")
    return Path(value)


def several(value: Any, what: str) -> list[Any]:
    """The items of an iterable.

    Args:
        value: the iterable.
        what: what it holds, such as "texts".

    Raises:
        SettingsError: `value` has no items.
    """
    if not isinstance(value, Iterable):
        raise SettingsError(f"several {what} are given as a list, not as a {type(value).__name__}")
    return list(value)
