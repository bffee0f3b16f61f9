"""Options that belong together, as one parameter of a command.

`@option_groups` replaces a parameter `Annotated[T, OptionGroup(make)]` by the parameters of `make`, and calls the
command with the `T` that `make` returns. So a command declares only its own options. Knows no particular option.
"""

import functools
import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeVar

R = TypeVar("R")


@dataclass(frozen=True)
class OptionGroup:
    """The options that a value is made of.

    Attributes:
        make: makes the value of the options, by their names.
        only: the names of the parameters that are options; by default all are.
        signature: the parameters, annotated like those of a command; by default those of `make`.
    """

    make: Callable[..., Any]
    only: Collection[str] = ()
    signature: inspect.Signature | None = None

    @property
    def options(self) -> list[inspect.Parameter]:
        """The options, as parameters of a command."""
        every = (self.signature or inspect.signature(self.make)).parameters.values()
        return [option for option in every if not self.only or option.name in self.only]


def option_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Replace the groups among a command's parameters by their options."""
    own = inspect.signature(command).parameters
    groups = {
        name: extra
        for name, parameter in own.items()
        for extra in getattr(parameter.annotation, "__metadata__", ())
        if isinstance(extra, OptionGroup)
    }
    options: list[inspect.Parameter] = []
    for name, parameter in own.items():
        options += groups[name].options if name in groups else [parameter]

    @functools.wraps(command)
    def run(**values: Any) -> R:
        for name, group in groups.items():
            values[name] = group.make(**{option.name: values.pop(option.name) for option in group.options})
        return command(**values)

    # typer reads this; keyword-only, so that defaults may be in any order
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [option.replace(kind=inspect.Parameter.KEYWORD_ONLY) for option in options]
    )
    return run
