"""The command line: one thin module per command, over the calls of the library."""

import sys
from typing import Annotated

import typer

from dgmark.cli.console import report_system_error
from dgmark.cli.demo import demo
from dgmark.cli.detect import detect
from dgmark.cli.generate import generate
from dgmark.cli.infill import infill
from dgmark.cli.keys import key_app, keygen
from dgmark.cli.models import models
from dgmark.cli.other_commands import add_other_commands
from dgmark.cli.panels import Commands
from dgmark.cli.process import prepare_process
from dgmark.cli.report import report_app
from dgmark.cli.rule_options import RuleCommand
from dgmark.version import __version__

app = Commands(
    name="dgmark",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, an option a line or two
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(version: bool) -> bool:
    if version:
        print(f"dgmark {__version__}")
        raise typer.Exit
    return version


@app.callback()
def dgmark(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Mark text that a diffusion language model writes, and detect the mark."""


app.command()(demo)
app.command(cls=RuleCommand)(keygen)
app.add_typer(key_app, name="key")
for command in (generate, infill, detect):
    app.command()(command)
app.add_typer(report_app, name="report")
app.command()(models)
add_other_commands(app)


def main() -> None:
    """Entry point of the `dgmark` command."""
    run(app)


def run(application: typer.Typer) -> None:
    """Run a command line; an error of the operating system becomes a message and an exit code."""
    prepare_process()
    try:
        try:
            application()
        finally:
            sys.stdout.flush()
    except OSError as error:
        sys.exit(report_system_error(error))
