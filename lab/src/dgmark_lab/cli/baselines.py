"""`dgmark-lab baselines`: list the baselines and their options."""

import json
from dataclasses import fields

from rich.table import Table
from rich.text import Text

from dgmark.cli.console import command_errors, stdout
from dgmark.cli.options import OneObject
from dgmark_lab.baselines import SCHEMES


@command_errors
def baselines(as_json: OneObject = False) -> None:
    """List the kinds of watermark that `dgmark generate --baseline` and `dgmark detect --baseline` know."""
    options = {name: {field.name: field.default for field in fields(kind)} for name, kind in SCHEMES.items()}
    descriptions = {name: (kind.__doc__ or "").splitlines()[0] for name, kind in SCHEMES.items()}
    if as_json:
        print(json.dumps({"schemes": options, "descriptions": descriptions, "schema": 1}))
        return
    table = Table(show_lines=True)
    for column in ("scheme", "what it does", "options and their defaults"):
        table.add_column(column, overflow="fold")
    for name, defaults in options.items():
        shown = [f"{option}={_shown(default)}" for option, default in defaults.items()]
        table.add_row(Text(name, style="bold"), Text(descriptions[name]), Text("\n".join(shown)))
    stdout().print(table)


def _shown(default: object) -> str:
    """A default as it is written on the command line."""
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default).lower()
