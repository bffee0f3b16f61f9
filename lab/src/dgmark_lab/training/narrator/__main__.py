"""`python -m dgmark_lab.training.narrator`: from base and documents to trained adapters; resumes."""

import time
from pathlib import Path
from typing import Annotated

import torch
import typer
from transformers import LlamaForCausalLM

from dgmark.cli.console import command_errors, stdout
from dgmark.errors import SettingsError
from dgmark_lab.training.commands import stopping_on_signals
from dgmark_lab.training.narrator.base import BASE, write_base
from dgmark_lab.training.narrator.config import read_narrator_config
from dgmark_lab.training.narrator.data import read_data
from dgmark_lab.training.narrator.loop import STATE, NarratorTrainer
from dgmark_lab.training.narrator.own_texts import write_own_texts
from dgmark_lab.training.networks import quiet_transformers

OWN = "own.jsonl"
STAGES = tuple(Path(__file__).with_name(name) for name in ("narrator.toml", "continued.toml"))


@command_errors
def main(
    data: Annotated[Path, typer.Option(help='Training documents: JSON Lines (.jsonl, .xz) of {"id", "paragraphs"}.')],
    heldout: Annotated[Path, typer.Option(help="Documents for regular evaluation.")],
    out: Annotated[Path, typer.Option(help="Folder of the run; an unfinished run in it is continued.")],
    config: Annotated[
        list[Path] | None,
        typer.Option(
            help="Settings file; may be repeated: each stage starts from the adapters of the one before. "
            "The first stage is stored in --out, the others in folders of their names in it.",
            show_default="both that come with training",
        ),
    ] = None,
    init: Annotated[
        Path | None, typer.Option(help="state.pt of another run, whose adapters to start from.", show_default=False)
    ] = None,
    max_seconds: Annotated[
        float | None, typer.Option(min=0, help="Stop training after this time; the base and its texts come first.")
    ] = None,
) -> None:
    """Fetch the base, let it write texts, and train the narrator on them. Every stage resumes where it stopped."""
    quiet_transformers()
    paths = config or STAGES
    stages = [read_narrator_config(path) for path in paths]
    base = out / BASE
    if not base.is_dir():
        write_base(base)
    folders = [out, *(out / path.stem for path in paths[1:])]
    if len({base, *folders}) <= len(folders):
        raise SettingsError(
            f"stages and {BASE} need different folders: give each --config its own name, and none {BASE!r}"
        )
    left = max_seconds
    for settings, folder in zip(stages, folders, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        write_own_texts(base, folder / OWN, settings.own_texts)
        network = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="sdpa")
        rows = read_data(settings, base, folder / OWN, data, heldout)
        trainer = NarratorTrainer(settings, network, rows, folder, init=init)
        start = time.monotonic()
        with stopping_on_signals(trainer):
            trainer.train(left)
        state = "finished" if trainer.done else "unfinished: run the same command again to continue"
        stdout().print(f"{folder}: step {trainer.step:,} of {settings.schedule.steps:,}; {state}", markup=False)
        if trainer.interrupted or not trainer.done:
            return
        if left is not None:
            left = max(0.0, left - (time.monotonic() - start))
        init = folder / STATE


if __name__ == "__main__":
    typer.run(main)
