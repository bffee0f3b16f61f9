"""The help of a command, laid out for a terminal of 80 columns."""

from copy import copy
from enum import Enum
from inspect import cleandoc
from typing import Any

from rich.markup import escape
from typer.core import TyperCommand


class Command(TyperCommand):
    """A command with its help as running text.

    A default follows the help of its option in the same line, and so do other spellings of the option and the --no-...
    of a switch, which would take columns of every panel. The paragraphs of the description have no line breaks of the
    source code.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help as typer does, from options that are changed for the page alone."""
        page = copy(self)
        paragraphs = cleandoc(self.help or "").split("\n\n")
        page.help = "\n\n".join(" ".join(one.splitlines()) for one in paragraphs)
        page.params = [_on_the_page(one) for one in self.params]
        super(Command, page).format_help(ctx, formatter)


def _on_the_page(parameter: Any) -> Any:
    shown = copy(parameter)
    sentences = [shown.help or ""]
    default = _default(parameter)
    long = [flag for flag in shown.opts if flag.startswith("--")]
    if len(long) > 1:
        sentences.append(f"Also {', '.join(long[1:])}.")
        shown.opts = [flag for flag in shown.opts if flag not in long[1:]]
    if getattr(shown, "secondary_opts", None):
        if shown.default is not False:
            sentences.append(f"{shown.secondary_opts[0]}: off.")
        shown.secondary_opts = []
    if default:
        sentences.append(f"[dim]{escape(f'[default: {default}]')}[/dim]")
    shown.help, shown.show_default = " ".join(sentences), False
    return shown


def _default(parameter: Any) -> str:
    """The default of an option in words; "" if there is none to show."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    value = parameter.default
    if not parameter.show_default or value is None or value is False or parameter.required:
        return ""
    if value is True:
        return "on"
    return str(value.value if isinstance(value, Enum) else value)
