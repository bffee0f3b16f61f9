"""Schemes by name, and their options as typed on a command line."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from dgmark.errors import SettingsError
from dgmark_lab.baselines.baseline import Baseline
from dgmark_lab.baselines.dmark import DMark
from dgmark_lab.baselines.gloaguen import Gloaguen
from dgmark_lab.baselines.gumbel import Gumbel
from dgmark_lab.baselines.kgw import Kgw
from dgmark_lab.baselines.order import DgMark
from dgmark_lab.baselines.pattern_mark import PatternMark
from dgmark_lab.baselines.unigram import Unigram

Scheme = Baseline | DgMark

SCHEMES: dict[str, type[Scheme]] = {
    kind.name: kind for kind in (DgMark, Kgw, Unigram, PatternMark, Gloaguen, DMark, Gumbel)
}


def scheme(name: str, **options: Any) -> Scheme:
    """Return the scheme of this name with these options; the others have the scheme's defaults.

    Raises:
        SettingsError: no scheme or option has this name, or a value is invalid.
    """
    kind = _kind(name)
    known = get_type_hints(kind)
    valid = {}
    for option, value in options.items():
        _check_option(kind, option)
        valid[option] = _valid_value(name, option, value, known[option])
    return kind(**valid)


def parse_baseline(name: str, texts: Sequence[str]) -> Baseline:
    """The baseline of this name, with options written as name=value.

    Raises:
        SettingsError: no baseline or option has this name, or a value is not of the option's type.
    """
    parsed = scheme(name, **parse_options(name, texts))
    if not isinstance(parsed, Baseline):
        raise SettingsError(f"{name} is no baseline: leave --baseline out")
    return parsed


def parse_options(name: str, texts: Sequence[str]) -> dict[str, Any]:
    """Parse options written as name=value. Names may have dashes or underscores; a list of numbers is "-1,1".

    Raises:
        SettingsError: no scheme or option has this name, or a value is not of the option's type.
    """
    kind = _kind(name)
    known = get_type_hints(kind)
    options: dict[str, Any] = {}
    for text in texts:
        option, equals, value = text.partition("=")
        option = option.strip().replace("-", "_")
        if not equals:
            raise SettingsError(f"scheme option {text!r} is not name=value: write it as {text}=VALUE")
        _check_option(kind, option)
        if option in options:
            raise SettingsError(f"scheme option {option} is given twice")
        options[option] = _parse(name, option, value.strip(), known[option])
    return options


def _kind(name: str) -> type[Scheme]:
    if name not in SCHEMES:
        raise SettingsError(f"scheme {name!r} is not one of: {', '.join(SCHEMES)}")
    return SCHEMES[name]


def _check_option(kind: type[Scheme], option: str) -> None:
    known = [field.name for field in fields(kind)]
    if option not in known:
        raise SettingsError(f"scheme {kind.name} has no option {option!r}; it has: {', '.join(known) or 'none'}")


_SWITCHES = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def _parse(name: str, option: str, text: str, hint: Any) -> Any:
    """Parse a value of the option's type."""
    try:
        if hint is bool:
            return _SWITCHES[text.lower()]
        if hint in (int, float):
            return hint(text)
        if get_origin(hint) is tuple:
            return tuple(int(part) for part in text.split(","))
    except (ValueError, KeyError):
        raise SettingsError(f"{text!r} is invalid for option {option} of scheme {name}: {_advice(hint)}") from None
    return text


def _valid_value(name: str, option: str, value: Any, hint: Any) -> Any:
    """Return the value in the option's type: lists become tuples, and whole numbers become floats."""
    if get_origin(hint) is tuple and isinstance(value, list | tuple) and all(type(part) is int for part in value):
        return tuple(value)
    if hint is float and type(value) in (int, float):
        return float(value)
    if type(value) is hint or value in get_args(hint):
        return value
    raise SettingsError(f"{value!r} is invalid for option {option} of scheme {name}: {_advice(hint)}")


def _advice(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return "give whole numbers such as -1,1"
    if get_args(hint):
        return f"give one of {', '.join(map(str, get_args(hint)))}"
    return {bool: "give true or false", int: "give a whole number", float: "give a number"}[hint]
