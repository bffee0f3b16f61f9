"""`dgmark-lab baselines`: list the baselines and their options."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from dgmark.cli.console import command_errors, stdout
from dgmark.watermark.spec import options_of
from dgmark_lab.baselines import BASELINES
from dgmark_lab.options import summary_of


@command_errors
def baselines() -> None:
    """List the published watermarks of which `dgmark keygen --rule` makes keys, and their options."""
    print_kinds(
        {
            name: (summary_of(rule.spec), {option: field.default for option, field in options_of(rule.spec).items()})
            for name, rule in BASELINES.items()
        }
    )


def print_kinds(kinds: Mapping[str, tuple[str, Mapping[str, Any]]]) -> None:
    """Print what things of these names do, and their options with the defaults as they are written in a command."""
    console = stdout()
    for name, (summary, defaults) in kinds.items():
        console.print(Text.assemble((name, "bold"), f"  {summary}"), soft_wrap=True)
        options = (f"{option}={_shown(value)}" for option, value in defaults.items())
        console.print("    " + "  ".join(options), soft_wrap=True)


def _shown(value: Any) -> str:
    if value in (None, ""):
        return "..."
    text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
    return text.lower() if isinstance(value, bool) else text
