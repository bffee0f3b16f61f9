"""Options that belong together, as one parameter of a command.

`@option_groups` makes of a parameter `Annotated[T, OptionGroup(...)]` the options of the group, and hands the command
the `T` that they say. So a command spells out its own options alone. Knows no option.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, TypeVar, get_origin, get_type_hints

import typer

R = TypeVar("R")


@dataclass(frozen=True)
class OptionGroup:
    """Options, and what becomes of them.

    Attributes:
        options: see `option` and `parameter`.
        value: makes the command's argument of the options' values by name.
    """

    options: Sequence[inspect.Parameter]
    value: Callable[[dict[str, Any]], Any]


def parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """An option or argument with typer's annotation; by keyword alone, so that defaults may stand in any order."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def option(
    name: str,
    kind: Any,
    help: str,  # noqa: A002
    *flags: str,
    panel: str | None = None,
    default: Any = None,
    default_text: str | None = None,
    choices: Sequence[str] = (),
) -> inspect.Parameter:
    """An option of a group.

    Args:
        name: of the parameter; the flag is made of it unless `flags` are given.
        kind: its type.
        help: one sentence.
        flags: as typer takes them, such as "--json".
        panel: where the command's help shows it.
        default: the value if the option is not given.
        default_text: the default in words, where the value does not say it; None for nothing to say.
        choices: the values there are, for the help and for the completion of the shell.
    """
    if choices:
        help = f"{help.rstrip('.')}: {', '.join(choices[:-1])} or {choices[-1]}."  # noqa: A001
    info = typer.Option(
        *flags,
        help=help,
        rich_help_panel=panel,
        show_default=default_text or not (default is None or default is False),
        autocompletion=(lambda incomplete: [one for one in choices if one.startswith(incomplete)]) if choices else None,
    )
    return parameter(name, Annotated[kind, info], default)


def options_of(kind: type[Any]) -> OptionGroup:
    """The fields of a dataclass as options, each annotated as a parameter of a command would be."""
    hints = get_type_hints(kind, include_extras=True)
    options = [parameter(one.name, hints[one.name], one.default) for one in fields(kind)]
    return OptionGroup(options, lambda values: kind(**values))


def set_options(options: dict[str, Any]) -> dict[str, Any]:
    """Those options that the command line sets."""
    return {name: value for name, value in options.items() if value is not None}


def option_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Give a command the options of its groups in place of the groups."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, OptionGroup] = {}
    for one in inspect.signature(command).parameters.values():
        group = _group_of(one.annotation)
        if group is None:
            parameters.append(parameter(one.name, one.annotation, one.default))
        else:
            groups[one.name] = group
            parameters += group.options

    @functools.wraps(command)
    def run(**values: Any) -> R:
        for name, group in groups.items():
            given = {one.name: values.pop(one.name) for one in group.options}
            values[name] = group.value(given)
        return command(**values)

    # what typer reads in place of the command's own
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _group_of(annotation: Any) -> OptionGroup | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((one for one in annotation.__metadata__ if isinstance(one, OptionGroup)), None)
