"""`dgmark-lab baselines`: list the baselines and their options."""

from collections.abc import Mapping
from typing import Any

from rich.markup import escape

from dgmark.cli.console import command_errors, stdout
from dgmark_lab.baselines import BASELINES
from dgmark_lab.options import defaults_of, summary_of


@command_errors
def baselines() -> None:
    """List the watermarks that `dgmark generate --baseline` and `dgmark detect --baseline` know."""
    print_kinds(BASELINES)


def print_kinds(kinds: Mapping[str, type[Any]]) -> None:
    """Print what attacks or baselines do, and their options with the defaults as they are written in a command."""
    console = stdout()
    for name, kind in kinds.items():
        console.print(f"[bold]{name}[/bold]  {escape(summary_of(kind))}", soft_wrap=True)
        options = (f"{option}={_shown(value)}" for option, value in defaults_of(kind).items())
        console.print("    " + "  ".join(options), soft_wrap=True)


def _shown(value: Any) -> str:
    if value in (None, ""):
        return "..."
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return escape(text.lower() if isinstance(value, bool) else text)
