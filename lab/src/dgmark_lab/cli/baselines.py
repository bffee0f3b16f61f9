"""`dgmark-lab baselines`: list the baselines and their options."""

import json

from rich.table import Table
from rich.text import Text

from dgmark.cli.console import command_errors, stdout
from dgmark.cli.options import OneObject
from dgmark_lab.baselines import BASELINES
from dgmark_lab.options import defaults_of, summary_of


@command_errors
def baselines(as_json: OneObject = False) -> None:
    """List the watermarks that `dgmark generate --baseline` and `dgmark detect --baseline` know."""
    options = {name: defaults_of(kind) for name, kind in BASELINES.items()}
    summaries = {name: summary_of(kind) for name, kind in BASELINES.items()}
    if as_json:
        print(json.dumps({"baselines": options, "summaries": summaries, "schema": 1}))
        return
    table = Table(show_lines=True)
    for column in ("baseline", "what it does", "options and their defaults"):
        table.add_column(column, overflow="fold")
    for name, defaults in options.items():
        shown = [f"{option}={_shown(default)}" for option, default in defaults.items()]
        table.add_row(Text(name, style="bold"), Text(summaries[name]), Text("\n".join(shown)))
    stdout().print(table)


def _shown(default: object) -> str:
    """A default as it is written on the command line."""
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default).lower()
