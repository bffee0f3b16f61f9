"""Commands of other distributions, which the entry point `dgmark.commands` names. Knows none of them."""

from collections.abc import Callable
from importlib.metadata import entry_points

import typer

from dgmark.cli.console import command_errors
from dgmark.errors import MissingExtra, distribution_hint

# commands of the distributions in this repository, which are listed also where these are not installed
_HERE = {
    "serve": ("service", "check and write texts over HTTP and on pages"),
    "access": ("service", "make, list and remove access tokens"),
}
_ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


def add_other_commands(app: typer.Typer) -> None:
    """Add the commands of other distributions: a function is a command, a `typer.Typer` several."""
    found = {command.name: command for command in entry_points(group="dgmark.commands")}
    for name in sorted({*found, *_HERE}, key=lambda name: (name not in _HERE, name)):
        if name not in found:
            folder, purpose = _HERE[name]
            missing = f"Needs dgmark-{folder}: {purpose}."
            app.command(name, help=missing, context_settings=_ANY_ARGUMENTS)(_refusal(name, folder))
            continue
        command = found[name].load()
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name)(command)


def _refusal(name: str, folder: str) -> Callable[[], None]:
    """A command that says what to install."""

    @command_errors
    def refuse() -> None:
        raise MissingExtra(f"`dgmark {name}` needs dgmark-{folder}: {distribution_hint(folder)}")

    return refuse
