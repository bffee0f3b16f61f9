"""`dgmark-lab prompts`: fetch the prompts of experiments that do not come with dgmark."""

from pathlib import Path
from typing import Annotated

import typer

from dgmark.cli.console import command_errors
from dgmark_lab.cli.experiment import Runs
from dgmark_lab.experiments.prompt_sets import fetch_prompts


@command_errors
def prompts(
    name: Annotated[str, typer.Argument(help="Prompt set: c4 or writingprompts.")],
    count: Annotated[int, typer.Option(min=1, help="Number of prompts; the paper's setup takes 300.")] = 300,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write.", show_default="RUNS/prompts/NAME.jsonl, where `experiment run` finds it"),
    ] = None,
    runs: Runs = Path("runs"),
) -> None:
    """Fetch the prompts of a set from the hub, as JSON Lines."""
    path = out or runs / "prompts" / f"{name}.jsonl"
    fetch_prompts(name, count, path)
    print(path)
