"""`python -m training.narrator`: from the package index and the documents to trained adapters, in pieces."""

from pathlib import Path
from typing import Annotated

import torch
import typer
from transformers import LlamaForCausalLM

from dgmark.cli.console import speaks, stdout
from training.commands import stopping_on_signals
from training.narrator.base import BASE, write_base
from training.narrator.config import read_narrator_config
from training.narrator.data import read_data
from training.narrator.loop import NarratorTrainer
from training.narrator.own_texts import write_own_texts
from training.networks import quiet_transformers

OWN = "own.jsonl"
_SETTINGS = Path(__file__).with_name("narrator.toml")


@speaks
def main(
    data: Annotated[Path, typer.Option(help='Training documents: JSON Lines (.jsonl, .xz) of {"id", "paragraphs"}.')],
    heldout: Annotated[Path, typer.Option(help="Documents to measure on now and then.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; an unfinished run in it is continued.")],
    config: Annotated[Path, typer.Option(help="Settings.")] = _SETTINGS,
    init: Annotated[
        Path | None, typer.Option(help="state.pt of another run whose adapters to begin from.", show_default=False)
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop training after so long; the base and its texts come before.")
    ] = None,
) -> None:
    """Fetch the base, let it write texts, and train the narrator on them; each continues where it stopped."""
    quiet_transformers()
    settings = read_narrator_config(config)
    base = out / BASE
    if not base.is_dir():
        write_base(base)
    write_own_texts(base, out / OWN, settings.own_texts)
    network = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa")
    trainer = NarratorTrainer(settings, network, read_data(settings, base, out / OWN, data, heldout), out, init=init)
    with stopping_on_signals(trainer):
        trainer.train(max_seconds)
    state = "finished" if trainer.done else "unfinished: run the same command again to continue"
    stdout().print(f"{out}: step {trainer.step:,} of {settings.schedule.steps:,}; {state}", markup=False)


if __name__ == "__main__":
    typer.run(main)
