"""Attacks and baselines are classes with options: they are made by name, with options in Python or as text."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, ValidationError

from dgmark.errors import SettingsError

Kind = TypeVar("Kind")
# options of something else: a dict, or JSON as text
Options = Annotated[
    dict[str, Any], BeforeValidator(lambda value: json.loads(value) if isinstance(value, str) else value)
]


def make(kind: type[Kind], title: str, options: Mapping[str, Any]) -> Kind:
    """Return an instance of a pydantic dataclass with these fields, called "attack crop" or the like by errors.

    Text is read as a value of the option's type.

    Raises:
        SettingsError: no option has this name, or a value is invalid.
    """
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise SettingsError(f"{title} has no option {', '.join(unknown)}; its options are: {', '.join(known)}")
    try:
        return kind(**options)
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        reason = first["msg"].removeprefix("Value error, ")
        raise SettingsError(f"option {name} of {title} is {options.get(name)!r}: {reason}") from None


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """Split options written as NAME=VALUE. Names may have dashes or underscores.

    Raises:
        SettingsError: a text has no "=", or an option is given twice.
    """
    options: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise SettingsError(f"option {text!r} is not NAME=VALUE: write it as {text}=VALUE")
        if name in options:
            raise SettingsError(f"option {name} is given twice")
        options[name] = value.strip()
    return options


def defaults_of(kind: type[Any]) -> dict[str, Any]:
    """The options of a class with their defaults."""
    return {one.name: one.default if one.default_factory is MISSING else one.default_factory() for one in fields(kind)}


def summary_of(kind: type[Any]) -> str:
    """The first line of a class's docstring."""
    return (kind.__doc__ or "").splitlines()[0]
