"""The command line: one thin module a command, over the library's own calls."""

import typer

from dgmark.cli.attack import attack
from dgmark.cli.bench_lm import bench_lm
from dgmark.cli.convert import convert
from dgmark.cli.demo import demo
from dgmark.cli.detect import detect
from dgmark.cli.evaluate import evaluate
from dgmark.cli.experiment import experiment_app
from dgmark.cli.generate import generate
from dgmark.cli.infill import infill
from dgmark.cli.keys import key_app, keygen
from dgmark.cli.models import models
from dgmark.cli.rate import rate
from dgmark.cli.schemes import schemes

app = typer.Typer(
    name="dgmark",
    help="The watermark for text written by diffusion language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command()(keygen)
app.add_typer(key_app, name="key")
app.command()(generate)
app.command()(infill)
app.command()(detect)
app.command()(attack)
app.command()(evaluate)
app.command()(rate)
app.command("bench-lm")(bench_lm)
app.command()(models)
app.command()(schemes)
app.command()(convert)
app.command()(demo)
app.add_typer(experiment_app, name="experiment")


def main() -> None:
    """Entry point of the `dgmark` command."""
    app()
