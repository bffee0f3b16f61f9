"""`dgmark-lab train`: train the built-in models again, evaluate what comes out, and export it."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from transformers.utils import logging

from dgmark.cli.console import command_errors, stdout
from dgmark.cli.panels import Commands
from dgmark.models.load import device_named
from dgmark_lab.training.config import FOLDER, Kind, read_config
from dgmark_lab.training.corpus import write_json
from dgmark_lab.training.narrator.folders import BASE
from dgmark_lab.training.narrator.folders import export as export_adapters
from dgmark_lab.training.narrator.trainer import STAGES, train_narrator
from dgmark_lab.training.objective import bounds_of
from dgmark_lab.training.run import Run
from dgmark_lab.training.trainer import train

train_app = Commands(no_args_is_help=True, help="Train the built-in models again, evaluate and export them.")

Data = Annotated[Path, typer.Option(help='Training documents: JSON Lines (.jsonl, .xz, .gz) of {"id", "paragraphs"}.')]
Out = Annotated[Path, typer.Option(help="Folder of the run; an unfinished run in it is continued.")]
MaxSeconds = Annotated[float | None, typer.Option(min=0, help="Save and stop after this time.")]
Device = Annotated[str | None, typer.Option(help="A torch device; by default the GPU if there is one.")]


def _device(name: str | None) -> torch.device:
    """The device of a command, which shows transformers' errors, but no progress bars and loading reports."""
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return device_named(name)


def _report(run: Run[Any, Any]) -> None:
    state = "finished" if run.done else "unfinished: run the same command again to continue"
    counts = f"step {run.step:,} of {run.config.schedule.steps:,}, {run.tokens:,} tokens, {run.seconds:,.0f} s"
    stdout().print(f"{run.out}: {counts}; {state}", soft_wrap=True)


def _command(kind: Kind) -> Callable[..., None]:
    """Make the command that trains the storyteller or the judge."""

    @command_errors
    def main(
        data: Data,
        out: Out,
        config: Annotated[
            Path | None, typer.Option(help="Settings file (TOML).", show_default=f"the {kind}'s, for a GPU")
        ] = None,
        heldout: Annotated[Path | None, typer.Option(help="Documents for regular evaluation.")] = None,
        init: Annotated[Path | None, typer.Option(help="Model folder with the initial weights.")] = None,
        max_seconds: MaxSeconds = None,
        device: Device = None,
    ) -> None:
        settings, target = read_config(config or FOLDER / f"{kind}.toml", kind), _device(device)
        _report(train(settings, data, out, heldout=heldout, init=init, max_seconds=max_seconds, device=target))

    main.__doc__ = f"Train the {kind}: start, or continue where the run in --out stopped."
    return main


train_app.command("storyteller")(_command("storyteller"))
train_app.command("judge")(_command("judge"))


@train_app.command()
@command_errors
def narrator(
    data: Data,
    heldout: Annotated[Path, typer.Option(help="Documents for regular evaluation.")],
    out: Out,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            help="Settings file; may be repeated: each stage starts from the adapters of the one before. "
            "The first stage is stored in --out, the others in folders of their names in it.",
            show_default="both that come with dgmark-lab",
        ),
    ] = None,
    max_seconds: MaxSeconds = None,
) -> None:
    """Fetch the base, let it write texts, and train the narrator on them. Every stage resumes where it stopped."""
    _device("cpu")
    _report(train_narrator(data, heldout, out, stages=config or STAGES, max_seconds=max_seconds))


@train_app.command()
@command_errors
def evaluate(
    model: Annotated[str, typer.Option(help="Built-in model name, or a model folder.")],
    data: Annotated[Path, typer.Option(help="Held-out documents (.jsonl, .xz, .gz).")],
    out: Annotated[Path, typer.Option(help="File of the results (JSON).")],
    against: Annotated[
        list[str] | None, typer.Option(help="Another model to measure on the same documents; may be repeated.")
    ] = None,
    rows: Annotated[int, typer.Option(min=2, help="Held-out rows.")] = 256,
    length: Annotated[int, typer.Option(min=8, help="Tokens of a held-out row.")] = 320,
    device: Device = None,
) -> None:
    """Measure the bound of a model on held-out documents, in nats a token and a character.

    What its texts are like, `dgmark generate` and `dgmark-lab evaluate` tell.
    """
    target = _device(device)
    figures = bounds_of(model, data, against=against or [], rows=rows, length=length, device=target)
    write_json(out, figures)
    for name, bound in figures["bounds"].items():
        nats = f"{bound['per_token']:.3f} nats a token, {bound['per_character']:.4f} a character"
        errors = f"{bound['monte_carlo_error']:.4f} of the draws, {bound['text_error']:.3f} of the rows"
        stdout().print(f"{name}: {nats}; standard errors a token: {errors}", soft_wrap=True)


@train_app.command()
@command_errors
def export(
    run: Annotated[Path, typer.Option(help="Folder of the narrator's last stage; its base is in it, or beside it.")],
    out: Annotated[Path, typer.Option(help="Folder to write; must not exist.")],
) -> None:
    """Export a narrator's adapters as a model folder. (Other runs have theirs in `model`.)"""
    _device("cpu")
    base = run / BASE if (run / BASE).is_dir() else run.parent / BASE
    size = export_adapters(run, base, out)
    stdout().print(f"{out}: {size:,} bytes", soft_wrap=True)
