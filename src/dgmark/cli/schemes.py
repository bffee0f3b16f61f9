"""The options `--scheme` and `--scheme-option`, and `dgmark schemes`, which lists their values."""

import json
from dataclasses import fields
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from dgmark.cli.console import command_errors, stdout
from dgmark.cli.option_groups import OptionGroup, parameter
from dgmark.cli.options import KEY, OneObject
from dgmark.errors import SettingsError
from dgmark.lab.baselines import SCHEMES, Scheme, parse_options
from dgmark.lab.baselines import scheme as make

SchemeName = Annotated[
    str | None,
    typer.Option(
        "--scheme", help=f"Kind of watermark: {', '.join(SCHEMES)}.", show_default="dgmark", rich_help_panel=KEY
    ),
]
SchemeOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--scheme-option",
        metavar="NAME=VALUE",
        help="Option of the --scheme, such as delta=2; may be repeated. `dgmark schemes` lists all.",
        rich_help_panel=KEY,
    ),
]


def scheme_of(name: str | None, options: list[str] | None) -> Scheme | None:
    """The scheme that `--scheme` names, with its options; None, for dgMARK, without a name.

    Raises:
        SettingsError: the scheme or an option does not exist, or options are given without a scheme.
    """
    if name is None:
        if options:
            raise SettingsError("--scheme-option needs a scheme: name it with --scheme (`dgmark schemes` lists them)")
        return None
    return make(name, **parse_options(name, options or []))


SchemeToMark = Annotated[
    Scheme | None,
    OptionGroup(
        options=(parameter("scheme", SchemeName), parameter("scheme_option", SchemeOptions)),
        value=lambda options: scheme_of(options["scheme"], options["scheme_option"]),
    ),
]


@command_errors
def schemes(as_json: OneObject = False) -> None:
    """List the kinds of watermark that `generate` and `detect` know, with their options and defaults."""
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
