"""The training loop, the same for both kinds of model and every device.

A step draws rows and masks (functions of seed and step), sums the loss of its parts, clips the gradients, steps both
optimizers, and averages the weights. Everything that a later step depends on is in one state file.
"""

import math
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_

from dgmark.cli.console import stderr
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.load import faster_dtype
from dgmark_lab.training.config import Masking, TrainingConfig
from dgmark_lab.training.history import History, Row, draw_curve, read_history
from dgmark_lab.training.layout import save_model
from dgmark_lab.training.nelbo import HeldOut, cross_entropy, nelbo
from dgmark_lab.training.networks import Network, build_network, new_network, weights_fingerprint
from dgmark_lab.training.objective import Batch, autoregressive, masked_diffusion, to_device, weighted_loss
from dgmark_lab.training.optimization import Average, make_optimizers, trapezoid
from dgmark_lab.training.rows import RowSource
from dgmark_lab.training.shards import Shards
from dgmark_lab.training.state import State, check_same_run, load_state, save_state
from dgmark_lab.training.tokens import sentence_ends, special_ids

STATE, LOG, CURVE, MODEL = "state.pt", "log.jsonl", "curve.png", "model"


@dataclass(frozen=True)
class Report:
    """Progress of a run at the end of a call of `train`."""

    step: int
    steps: int
    tokens: int
    seconds: float

    @property
    def done(self) -> bool:
        """Whether the schedule is at its end."""
        return self.step >= self.steps


class Trainer:
    """A run in its folder: a new one, or one resumed from its state file.

    Args:
        config: the settings.
        shards: the training data.
        out: the run's folder, for state, log, curve, and the model with averaged weights.
        device: the device to train on.
        init: a model folder to start from; ignored when a run resumes.
        held_out: rows for regular evaluation.

    Raises:
        SettingsError: the settings do not fit the data, the tokenizer or `init`.
        ResumeMismatch: the folder holds a run with other settings or data.
    """

    def __init__(
        self,
        config: TrainingConfig,
        shards: Shards,
        out: Path,
        device: torch.device,
        *,
        init: Path | None = None,
        held_out: HeldOut | None = None,
    ) -> None:
        self.config, self.shards, self.out, self.device, self.held_out = config, shards, out, device, held_out
        self.tokenizer = shards.tokenizer
        self.special = special_ids(self.tokenizer)
        if config.masking is not None and self.special.mask is None:
            raise CheckpointFormat(f"{shards.folder}: the tokenizer has no mask token; a storyteller needs one")
        self.rows = RowSource(shards, config.rows, self.special.end, sentence_ends(self.tokenizer), config.seed)
        self.start: dict[str, str] | None = None
        state = load_state(out / STATE) if (out / STATE).exists() else None
        if state is not None:
            check_same_run(state, config, shards.manifest, out / STATE)
            self.network = build_network(state.family, state.network)
        else:
            self.network = new_network(config, self.tokenizer.vocab_size, self.special, init)
            if init is not None:
                self.start = {"name": init.name, "weights": weights_fingerprint(self.network.module)}
        self.network.module.to(device)
        self.average = Average(self.network.module, config.optimizer.ema_decay)
        self.optimizers = make_optimizers(self.network.module, config.optimizer, device)
        self.step = self.tokens = 0
        self.seconds = 0.0
        self.interrupted = False  # set from outside, to save and stop after the current step
        if state is not None:
            self._resume(state)
        out.mkdir(parents=True, exist_ok=True)
        self.history = History(out / LOG, self.step)
        if config.speed.compile:
            self.network.compile()

    def _resume(self, state: State) -> None:
        self.step, self.tokens, self.seconds, self.start = state.step, state.tokens, state.seconds, state.start
        self.network.module.load_state_dict(state.tensors["module"])
        self.average.averaged.load_state_dict(state.tensors["average"])
        self.optimizers.muon.load_state_dict(state.tensors["muon"])
        self.optimizers.adamw.load_state_dict(state.tensors["adamw"])

    def train(self, max_seconds: float | None = None) -> Report:
        """Train to the end of the schedule, or for `max_seconds`; then save everything.

        Raises:
            SettingsError: the loss is no longer finite.
        """
        start, before = time.monotonic(), self.seconds
        last_save = start
        self.network.module.train()
        # sums stay on the device between rows of the log, so that the GPU does not wait
        totals = torch.zeros(2, dtype=torch.float64, device=self.device)
        since = 0
        for batch in self._batches():
            totals += self._step(batch)
            since += 1
            now = time.monotonic()
            self.seconds = before + now - start
            done = self.step == self.config.schedule.steps
            stop = done or self.interrupted or (max_seconds is not None and now - start >= max_seconds)
            if self.step % self.config.record.log_steps == 0 or stop:
                self._log(totals / since)
                totals.zero_()
                since = 0
                if now - last_save >= self.config.record.save_seconds and not stop:
                    self.save()  # only here, after the log's check that the loss is finite
                    last_save = now
            if self.step % self.config.record.evaluate_steps == 0 or done:
                self._evaluate()
            if stop:
                break
        self.save()
        self._save_model()
        return Report(self.step, self.config.schedule.steps, self.tokens, self.seconds)

    def _step(self, batch: Batch) -> torch.Tensor:
        """Make one update; return (loss, plain cross entropy), still on the device."""
        measured = torch.zeros(2, dtype=torch.float64, device=self.device)
        parts = list(batch.split(self.config.speed.micro_rows))
        for part in parts:
            if not len(part.targets):
                continue
            inputs, positions, targets, weights = to_device(part, self.device)
            with self._autocast():
                logits = self.network.logits_at(inputs, positions)
            loss, plain = weighted_loss(logits, targets, weights)
            loss.backward()  # type: ignore[no-untyped-call]
            share = len(part.targets) / len(batch.targets)
            measured += torch.stack([loss.detach(), plain * share])
        clip_grad_norm_(self.network.module.parameters(), self.config.optimizer.clip_norm)
        self.optimizers.step(trapezoid(self.step, self.config.schedule))
        self.average.update(self.network.module, self.step)
        self.step += 1
        self.tokens += batch.inputs.size
        return measured

    def _batches(self) -> Iterator[Batch]:
        """Yield the batches from the current step to the end, prepared ahead by other threads."""
        ahead = 2 * self.config.speed.workers
        with ThreadPoolExecutor(self.config.speed.workers) as pool:
            waiting: list[Future[Batch]] = []
            try:
                for step in range(self.step, self.config.schedule.steps):
                    waiting.append(pool.submit(self.batch, step))
                    if len(waiting) > ahead:
                        yield waiting.pop(0).result()
                while waiting:
                    yield waiting.pop(0).result()
            finally:
                for future in waiting:
                    future.cancel()

    def batch(self, step: int) -> Batch:
        """Return the batch of a step (from 0)."""
        rows = self.rows.step(step)
        if self.config.masking is None:
            return autoregressive(rows)
        return masked_diffusion(rows, self.rows.masks_rng(step), self.config.masking, self._mask_id())

    def _mask_id(self) -> int:
        assert self.special.mask is not None  # checked at the start
        return self.special.mask

    def _autocast(self) -> AbstractContextManager[Any]:
        mode = self.config.speed.autocast
        on = mode == "bf16" or (mode == "auto" and faster_dtype(self.device) == torch.bfloat16)
        return torch.autocast(self.device.type, torch.bfloat16) if on else nullcontext()

    def _log(self, means: torch.Tensor) -> None:
        loss, plain = means.tolist()
        if not math.isfinite(loss):
            raise SettingsError(
                f"the loss is {loss} at step {self.step}: lower optimizer.muon_lr and adamw_lr, or clip_norm; "
                f"{self.out / STATE} holds the last good step"
            )
        self.history.append(
            self._row(
                loss=loss,
                cross_entropy=plain,
                lr=self.config.optimizer.muon_lr * trapezoid(self.step - 1, self.config.schedule),
            )
        )

    def _evaluate(self) -> None:
        """Measure the averaged weights on the held-out rows, with the same masks every time."""
        if self.held_out is None:
            return
        network = Network(self.network.family, self.average.module.train(False))
        rows = self.held_out.first(self.config.record.evaluate_rows)
        with self._autocast():
            if isinstance(self.config.masking, Masking):
                bound = nelbo(network, rows, self._mask_id(), repeats=2)
            else:
                bound = cross_entropy(network, rows)
        self.history.append(self._row(heldout=bound.per_token, heldout_per_character=bound.per_character))

    def _row(self, **values: float) -> Row:
        return {"step": self.step, **values, "tokens": self.tokens, "seconds": round(self.seconds, 3)}

    def save(self) -> None:
        """Write the state file."""
        tensors = {
            "module": self.network.module.state_dict(),
            "average": self.average.averaged.state_dict(),
            "muon": self.optimizers.muon.state_dict(),
            "adamw": self.optimizers.adamw.state_dict(),
        }
        state = State(
            step=self.step,
            tokens=self.tokens,
            seconds=self.seconds,
            config=self.config.model_dump(mode="json"),
            data=self.shards.manifest,
            family=self.network.family,
            network=self.network.config,
            device=device_name(self.device),
            tensors=tensors,
            start=self.start,
        )
        save_state(state, self.out / STATE)

    def _save_model(self) -> None:
        """Write the averaged weights as a model folder, and the curve."""
        save_model(
            self.network.of(self.average.module),
            self.tokenizer,
            self.special,
            self.out / MODEL,
            context=self.config.rows.length,
        )
        try:
            draw_curve(read_history(self.out / LOG), self.out / CURVE, self.config.card.name)
        except ModuleNotFoundError:  # a machine that only trains may lack it; the log has all numbers
            stderr().print(f"{self.out / CURVE} is not drawn: matplotlib is not installed", markup=False)


def device_name(device: torch.device) -> str:
    """Return the device's name for the model card: the GPU's, or the number of CPU threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{torch.get_num_threads()} {device.type.upper()} threads"
