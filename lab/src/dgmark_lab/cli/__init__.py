"""The command line of the lab: one thin module per command, over the calls of the library."""

from dgmark.cli import run
from dgmark.cli.panels import Commands
from dgmark_lab.cli.attack import attack
from dgmark_lab.cli.baselines import baselines
from dgmark_lab.cli.evaluate import evaluate
from dgmark_lab.cli.experiment import experiment_app
from dgmark_lab.cli.prompts import prompts
from dgmark_lab.cli.rate import rate
from dgmark_lab.cli.train import train_app

app = Commands(
    name="dgmark-lab",
    help="Attack, compare and measure watermarks of diffusion language models.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for command in (attack, evaluate, rate, baselines, prompts):
    app.command()(command)
app.add_typer(experiment_app, name="experiment")
app.add_typer(train_app, name="train")


def main() -> None:
    """Entry point of the `dgmark-lab` command."""
    run(app)
