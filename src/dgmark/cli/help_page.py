"""The help page of a command, laid out for a terminal of 80 columns."""

from copy import copy
from enum import Enum
from inspect import cleandoc
from typing import Any

from rich.markup import escape
from typer.core import TyperCommand


class Command(TyperCommand):
    """A command with its help as running text.

    The default of an option follows its help in the same line, and so do other spellings of the option and the --no-...
    of a switch, which otherwise take up columns in every panel. Line breaks of the source code are removed from the
    paragraphs of the description.
    """

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help as typer does, from copies of the options that are changed for this page only."""
        page = copy(self)
        paragraphs = cleandoc(self.help or "").split("\n\n")
        page.help = "\n\n".join(" ".join(one.splitlines()) for one in paragraphs)
        page.params = [_with_default_in_help(one) for one in self.params]
        super(Command, page).format_help(ctx, formatter)


def _with_default_in_help(parameter: Any) -> Any:
    shown = copy(parameter)
    sentences = [shown.help or ""]
    default = _default(parameter)
    long = [flag for flag in shown.opts if flag.startswith("--")]
    if len(long) > 1:
        sentences.append(f"Also {', '.join(long[1:])}.")
        shown.opts = [flag for flag in shown.opts if flag not in long[1:]]
    if getattr(shown, "is_flag", False):
        shown.metavar = ""  # a switch takes no value, but typer shows <bool>
    if getattr(shown, "secondary_opts", None):
        if shown.default is not False:
            sentences.append(f"{shown.secondary_opts[0]} turns it off.")
        shown.secondary_opts = []
    if default:
        sentences.append(f"[dim]{escape(f'[default: {default}]')}[/dim]")
    shown.help, shown.show_default = " ".join(sentences), False
    return shown


def _default(parameter: Any) -> str:
    """The default of an option in words; "" if there is nothing to show."""
    if isinstance(parameter.show_default, str):
        return parameter.show_default
    value = parameter.default
    if not parameter.show_default or value is None or value is False or parameter.required:
        return ""
    if value is True:
        return "on"
    return str(value.value if isinstance(value, Enum) else value)
