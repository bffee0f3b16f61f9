"""The names of the arguments that a function takes."""

import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints


def arguments_of(function: Callable[..., Any]) -> set[str]:
    """The names of a function's parameters, and those of the typed keyword arguments that it takes together."""
    names = set()
    for name, one in inspect.signature(function).parameters.items():
        if one.kind is one.VAR_KEYWORD:
            names |= {own for typed in get_args(one.annotation) for own in get_type_hints(typed)}
        else:
            names.add(name)
    return names
