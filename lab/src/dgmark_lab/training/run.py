"""A training run in its folder: the loop, the log, and the one file that the run resumes from.

There is no random state to save: the batch of a step is a function of seed and step. Knows no network.
"""

import json
import math
import os
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from dgmark.cli.console import stderr
from dgmark.errors import ResumeMismatch, SettingsError
from dgmark.files.outputs import atomic_file, atomic_write
from dgmark_lab.training.config import RunConfig, Schedule

STATE, LOG = "state.pt", "log.jsonl"
SCHEMA = 1

Row = dict[str, Any]
Config = TypeVar("Config", bound=RunConfig)
Batch = TypeVar("Batch")


def load_state(path: Path) -> dict[str, Any]:
    """Read what `Run.save` wrote, with tensors on the CPU.

    Raises:
        ResumeMismatch: the file is missing, damaged, or of another version.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if state["schema"] != SCHEMA:
            raise ValueError("another version")
        return state
    except Exception as error:  # torch, pickle and zipfile each have their own errors
        raise ResumeMismatch(
            f"{path} cannot be resumed from ({error}); if it is damaged, delete it to start again"
        ) from error


class Run(ABC, Generic[Config, Batch]):
    """A training run: a new one, or one resumed from its state file.

    A subclass builds its networks and optimizers, names them in `parts`, and then calls `resume`. The folder `out`
    holds state and log; `made_from` has hashes of the data.
    """

    # the largest share of the learning rate that a step may take stands in "peak" of each group of parameters
    optimizers: Sequence[torch.optim.Optimizer]
    # what the run resumes from: all that has a state dict, by name
    parts: dict[str, Any]

    def __init__(self, config: Config, made_from: dict[str, str], out: Path, device: torch.device) -> None:
        self.config, self.out, self.device = config, out, device
        self._made_from = made_from
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.interrupted = False
        self.state = load_state(out / STATE) if (out / STATE).exists() else None
        if self.state is not None:
            self._check_same_run(self.state)

    @abstractmethod
    def batch(self, step: int) -> Batch:
        """Return the batch of a step (from 0)."""

    @abstractmethod
    def update(self, batch: Batch) -> Tensor:
        """Make one step, and return (loss, plain cross entropy), still on the device."""

    @abstractmethod
    def evaluate(self) -> dict[str, float]:
        """Measure the weights on held-out text, with the same masks every time; empty if there is none."""

    @property
    def done(self) -> bool:
        """Whether the schedule is at its end."""
        return self.step >= self.config.schedule.steps

    def resume(self) -> None:
        """Continue at the step of the state file, if there is one; rows of the log after it describe lost work."""
        if self.state is not None:
            self.step, self.tokens, self.seconds = (self.state[name] for name in ("step", "tokens", "seconds"))
            for name, part in self.parts.items():
                part.load_state_dict(self.state["tensors"][name])
            self.state = None
        self.out.mkdir(parents=True, exist_ok=True)
        valid = [row for row in read_log(self.out / LOG) if row["step"] <= self.step]
        atomic_write(self.out / LOG, "".join(json.dumps(row) + "\n" for row in valid))

    def train(self, max_seconds: float | None = None) -> None:
        """Train to the end of the schedule, or for `max_seconds`; then save everything.

        Ctrl-C and SIGTERM finish the step and save, instead of losing the work since the last save.

        Raises:
            SettingsError: the loss is no longer finite.
        """
        handlers = {number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._train(max_seconds)
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _interrupt(self, _number: int, _frame: object) -> None:
        self.interrupted = True

    def _train(self, max_seconds: float | None) -> None:
        start, before, record = time.monotonic(), self.seconds, self.config.record
        last_save = start
        # sums stay on the device between rows of the log, so that the GPU does not wait
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        since = 0
        if self.step == 0:
            self._log(**self.evaluate())
        for step in range(self.step, self.config.schedule.steps):
            totals += self.update(self.batch(step))
            self.step += 1
            since += 1
            now = time.monotonic()
            self.seconds = before + now - start
            stop = self.done or self.interrupted or (max_seconds is not None and now - start >= max_seconds)
            if self.step % record.log_steps == 0 or stop:
                self._log_losses(totals / since)
                totals.zero_()
                since = 0
                if now - last_save >= record.save_seconds and not stop:
                    self.save()  # only here, after the log's check that the loss is finite
                    last_save = now
            if self.step % record.evaluate_steps == 0 or self.done:
                self._log(**self.evaluate())
            if stop:
                break
        self.save()

    def take_step(self) -> None:
        """Update the parameters at the current step's share of the peak rates, and clear the gradients."""
        share = trapezoid(self.step, self.config.schedule)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def save(self) -> None:
        """Write the state file; a crash leaves the previous one intact."""
        state = {
            "schema": SCHEMA,
            "step": self.step,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "config": self.config.model_dump(mode="json"),
            "made_from": self._made_from,
            "tensors": {name: part.state_dict() for name, part in self.parts.items()},
        }
        with atomic_file(self.out / STATE) as beside:
            torch.save(state, beside)

    def _log_losses(self, means: Tensor) -> None:
        loss, plain = means.tolist()
        if not math.isfinite(loss):
            raise SettingsError(
                f"the loss is {loss} at step {self.step}: lower the learning rates or clip_norm in [optimizer]; "
                f"{self.out / STATE} holds the last good step"
            )
        self._log(loss=loss, cross_entropy=plain, rate=trapezoid(self.step - 1, self.config.schedule))

    def _log(self, **values: float) -> None:
        """Append a row to the log; it is on the disk when this returns."""
        if not values:
            return
        row = {"step": self.step, **values, "tokens": self.tokens, "seconds": round(self.seconds, 3)}
        with open(self.out / LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())
        stderr().print(str(row), soft_wrap=True)

    def _check_same_run(self, state: dict[str, Any]) -> None:
        """Refuse to resume a run with other settings or data.

        Raises:
            ResumeMismatch: settings or data differ; the message names the sections of the settings.
        """
        path, old, new = self.out / STATE, state["config"], self.config.model_dump(mode="json")
        different = [name for name in new if name != "record" and old.get(name) != new[name]]
        if different:
            raise ResumeMismatch(
                f"{path} was made with another {', '.join(different)}; undo the change, or choose another --out"
            )
        if state["made_from"] != self._made_from:
            raise ResumeMismatch(f"{path} was trained on other data, tokenizer or base; choose another --out")


def trapezoid(step: int, schedule: Schedule) -> float:
    """Return the share of the peak rate at a step (from 0): linear up, constant, linear down; never zero."""
    up = (step + 1) / schedule.warmup_steps
    down = (schedule.steps - step) / schedule.decay_steps if step >= schedule.steps - schedule.decay_steps else 1.0
    return min(up, down, 1.0)


def read_log(path: Path) -> list[Row]:
    """Read the rows of a log; a last line that a crash cut off is ignored, and a missing file has no rows."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [json.loads(line) for line in whole.splitlines()]
