"""Options that belong together, as one parameter of a command.

`@option_groups` replaces a parameter `Annotated[T, OptionGroup(...)]` by the options of the group, and calls the
command with the `T` that their values describe. So a command declares only its own options. Knows no particular option.
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
    """Options, and the argument that a command gets for them.

    Attributes:
        options: made by `option` or `parameter`.
        value: maps the options' values, by name, to the command's argument.
    """

    options: Sequence[inspect.Parameter]
    value: Callable[[dict[str, Any]], Any]


def parameter(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """An option or argument with typer's annotation; keyword-only, so that defaults may be in any order."""
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
        name: name of the parameter; the flag is derived from it unless `flags` are given.
        kind: type of the value.
        help: one sentence.
        flags: the flags as typer expects them, such as "--json".
        panel: the panel of the help page that shows the option.
        default: the value if the option is not set.
        default_text: the default in words, if the value alone is unclear; None to show the value.
        choices: all valid values, for the help page and for shell completion.
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
    """The fields of a dataclass as options; each field is annotated like a parameter of a command."""
    hints = get_type_hints(kind, include_extras=True)
    options = [parameter(one.name, hints[one.name], one.default) for one in fields(kind)]
    return OptionGroup(options, lambda values: kind(**values))


def set_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the command line sets: those that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def option_groups(command: Callable[..., R]) -> Callable[..., R]:
    """Replace the groups among a command's parameters by their options."""
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
            values[name] = group.value({one.name: values.pop(one.name) for one in group.options})
        return command(**values)

    # typer reads these instead of the signature of `command`
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _group_of(annotation: Any) -> OptionGroup | None:
    if get_origin(annotation) is not Annotated:
        return None
    return next((one for one in annotation.__metadata__ if isinstance(one, OptionGroup)), None)
