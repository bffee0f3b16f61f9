"""Options that belong together, as one parameter of a command.

`@option_groups` replaces a parameter `Annotated[T, OptionGroup(make)]` by the parameters of `make`, and calls the
command with the `T` that `make` returns. So a command declares only its own options. Knows no particular option.
"""

import functools
import inspect
from collections.abc import Callable, Collection
from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar, get_args, get_origin

R = TypeVar("R")


@dataclass(frozen=True)
class OptionGroup:
    """The options that a value is made of.

    Attributes:
        make: a function or dataclass whose parameters are annotated like those of a command.
        only: the parameters of `make` that are options; by default all.
        hidden: options that are taken and not shown on the help page.
    """

    make: Callable[..., Any]
    only: Collection[str] = ()
    hidden: Collection[str] = ()

    @property
    def options(self) -> list[inspect.Parameter]:
        """The parameters of `make`, keyword-only, so that defaults may be in any order."""
        found = _keyword_only(inspect.signature(self.make))
        chosen = [one for one in found if not self.only or one.name in self.only]
        return [_unshown(one) if one.name in self.hidden else one for one in chosen]


def option_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Replace the groups among a command's parameters by their options."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, OptionGroup] = {}
    for one in _keyword_only(inspect.signature(command)):
        group = _group_of(one.annotation)
        if group is None:
            parameters.append(one)
        else:
            groups[one.name] = group
            parameters += group.options

    @functools.wraps(command)
    def run(**values: Any) -> R:
        for name, group in groups.items():
            values[name] = group.make(**{one.name: values.pop(one.name) for one in group.options})
        return command(**values)

    # typer reads these instead of the signature of `command`
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _keyword_only(signature: inspect.Signature) -> list[inspect.Parameter]:
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in signature.parameters.values()]


def _unshown(option: inspect.Parameter) -> inspect.Parameter:
    kind, info = get_args(option.annotation)
    info = copy(info)
    info.hidden = True
    return option.replace(annotation=Annotated[kind, info])


def _group_of(annotation: Any) -> OptionGroup | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((one for one in annotation.__metadata__ if isinstance(one, OptionGroup)), None)
