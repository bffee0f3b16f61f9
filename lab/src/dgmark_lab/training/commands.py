"""The code that the trainings of the storyteller and the judge share: prepare the data, train, report progress."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Protocol, runtime_checkable

import torch
import typer

from dgmark.cli.console import command_errors, stderr, stdout
from dgmark.errors import SettingsError
from dgmark_lab.training.config import Kind, TrainingConfig, read_config
from dgmark_lab.training.corpus import read_documents
from dgmark_lab.training.loop import Report, Trainer
from dgmark_lab.training.nelbo import HeldOut, held_out_rows
from dgmark_lab.training.networks import quiet_transformers
from dgmark_lab.training.prepare import prepare
from dgmark_lab.training.shards import Shards

SHARDS = "tokens"
_HERE = Path(__file__).parent


def command(kind: Kind) -> Callable[..., None]:
    """Make the command that trains one kind of model."""

    @command_errors
    def main(
        data: Annotated[
            Path, typer.Option(help='Training documents: JSON Lines (.jsonl, .xz) of {"id", "paragraphs"}.')
        ],
        out: Annotated[Path, typer.Option(help="Folder of the run; an unfinished run in it is continued.")],
        config: Annotated[Path, typer.Option(help="Settings file (TOML).")] = _HERE / f"{kind}.toml",
        heldout: Annotated[Path | None, typer.Option(help="Documents for regular evaluation.")] = None,
        init: Annotated[Path | None, typer.Option(help="Model folder with the initial weights.")] = None,
        max_seconds: Annotated[float | None, typer.Option(min=0, help="Save and stop after this time.")] = None,
        device: Annotated[str | None, typer.Option(help="A torch device; by default the GPU if there is one.")] = None,
        steps: Annotated[
            int | None, typer.Option(min=1, help="Overrides schedule.steps; may change until the decay begins.")
        ] = None,
        compiled: Annotated[
            bool | None, typer.Option("--compile/--no-compile", help="Overrides speed.compile.")
        ] = None,
    ) -> None:
        settings = with_overrides(read_config(config, kind), steps=steps, compiled=compiled)
        report = run(settings, data, out, heldout=heldout, init=init, max_seconds=max_seconds, device=device)
        state = "finished" if report.done else "unfinished: run the same command again to continue"
        counts = f"step {report.step:,} of {report.steps:,}, {report.tokens:,} tokens, {report.seconds:,.0f} s"
        stdout().print(f"{out}: {counts}; {state}", markup=False, soft_wrap=True)

    main.__doc__ = f"Train a {kind}: start, or continue where the run in --out stopped."
    return main


def with_overrides(config: TrainingConfig, *, steps: int | None, compiled: bool | None) -> TrainingConfig:
    """Return the settings with the command line's overrides.

    Raises:
        SettingsError: warm-up and decay need more than `steps`.
    """
    changed: dict[str, Any] = config.model_dump()
    if steps is not None:
        if steps < config.schedule.warmup_steps + config.schedule.decay_steps:
            raise SettingsError(f"--steps {steps} is less than warm-up and decay need; lower those in the settings")
        changed["schedule"]["steps"] = steps
    if compiled is not None:
        changed["speed"]["compile"] = compiled
    return TrainingConfig.model_validate(changed)


def run(
    config: TrainingConfig,
    data: Path,
    out: Path,
    *,
    heldout: Path | None = None,
    init: Path | None = None,
    max_seconds: float | None = None,
    device: str | None = None,
) -> Report:
    """Prepare the data if needed, and train for a while.

    Raises:
        DgmarkError: settings, data or folders are unusable; the message says what to do.
    """
    start = time.monotonic()
    quiet_transformers()
    target = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if target.type == "cuda":
        torch.set_float32_matmul_precision("high")
    shards = prepare(data, out / SHARDS, config.tokenizer.source, config.tokenizer.vocab_size)
    rows = None if heldout is None else _held_out(config, shards, heldout)
    trainer = Trainer(config, shards, out, target, init=init, held_out=rows)
    stderr().print(
        f"{sum(one.numel() for one in trainer.network.module.parameters()):,} parameters on {target} "
        f"({os.cpu_count()} cores), from step {trainer.step:,} of {config.schedule.steps:,}",
        markup=False,
    )
    left = None if max_seconds is None else max_seconds - (time.monotonic() - start)
    with stopping_on_signals(trainer):
        return trainer.train(left)


@runtime_checkable
class Interruptible(Protocol):
    """A trainer that stops after the current step once `interrupted` is True."""

    interrupted: bool


@contextmanager
def stopping_on_signals(trainer: Interruptible) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM finish the step and save, instead of losing the work since the last save."""

    def interrupt(_number: int, _frame: object) -> None:
        trainer.interrupted = True

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _held_out(config: TrainingConfig, shards: Shards, heldout: Path) -> HeldOut:
    documents = list(read_documents(heldout))
    return held_out_rows(documents, shards.tokenizer, config.rows.length, config.record.evaluate_rows)
