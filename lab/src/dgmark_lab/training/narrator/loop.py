"""The narrator's training loop. Rows and masks are functions of seed and step; one file holds everything else."""

import math
import time
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from transformers import LlamaForCausalLM

from dgmark.cli.console import stderr
from dgmark.errors import ResumeMismatch, SettingsError
from dgmark.rows.outputs import atomic_file
from dgmark_lab.training.history import History, draw_curve, read_history
from dgmark_lab.training.narrator.adapter import AdaptedLlama, Layout
from dgmark_lab.training.narrator.config import NarratorConfig
from dgmark_lab.training.narrator.data import Data
from dgmark_lab.training.narrator.rows import COPIES, BlockBatch
from dgmark_lab.training.narrator.sampler import odds
from dgmark_lab.training.optimization import trapezoid
from dgmark_lab.training.state import check_same_settings

STATE, LOG, CURVE = "state.pt", "log.jsonl", "curve.png"
SCHEMA = 1


def read_state(path: Path) -> dict[str, Any]:
    """Read the state file of a run.

    Raises:
        ResumeMismatch: the file is damaged, or of another version.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if state.setdefault("schema", SCHEMA) != SCHEMA or not {"trained", "optimizer", "config", "data"} <= set(state):
            raise ValueError("another version")
    except Exception as error:  # torch, pickle and zipfile each have their own errors
        raise ResumeMismatch(f"{path} cannot be resumed from ({error}); delete it to start again") from error
    return state


class NarratorTrainer:
    """A run in its folder: a new one, or one resumed from its state file.

    Args:
        config: the settings.
        base: the autoregressive model, into which adapters are put.
        data: rows for training and evaluation.
        out: the run's folder, for state, log and curve.
        init: state file of another run, whose adapters to start from; ignored when a run resumes.

    Raises:
        ResumeMismatch: the folder holds a run with other settings, data or base.
        SettingsError: `init` is not a file.
        CheckpointFormat: `init`, or the folder's state, holds other adapters.
    """

    def __init__(
        self, config: NarratorConfig, base: LlamaForCausalLM, data: Data, out: Path, *, init: Path | None = None
    ) -> None:
        self.config, self.data, self.out = config, data, out
        torch.manual_seed(config.seed)
        self.model = AdaptedLlama(base, config.adapter.rank)
        params = self.model.trainable_parameters()
        self.params = list(params.values())
        mask = params.pop("mask_vector")
        self.optimizer = torch.optim.AdamW(
            [
                {"params": list(params.values()), "peak": config.optimizer.lr},
                {"params": [mask], "peak": config.optimizer.mask_lr},
            ],
            betas=config.optimizer.betas,
            weight_decay=0.0,
        )
        self.layout = Layout(config.rows.context, config.rows.response, COPIES)
        self.step, self.targets, self.seconds = 0, 0, 0.0
        self.interrupted = False  # set from outside, to save and stop after the current step
        out.mkdir(parents=True, exist_ok=True)
        if (out / STATE).exists():
            self._resume(read_state(out / STATE))
        elif init is not None:
            if not init.is_file():
                raise SettingsError(f"{init} is not a file: give --init the state.pt of another run")
            self.model.load_trained(read_state(init)["trained"])
        self.history = History(out / LOG, self.step)

    def _resume(self, state: dict[str, Any]) -> None:
        path = self.out / STATE
        if state["data"] != self.data.made_from:
            raise ResumeMismatch(f"{path} was trained on other data or another base; choose another --out")
        before = NarratorConfig.model_validate(state["config"])  # fills in defaults of settings that were added later
        check_same_settings(before.model_dump(mode="json"), self.config.model_dump(mode="json"), state["step"], path)
        self.model.load_trained(state["trained"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.targets, self.seconds = state["step"], state["targets"], state["seconds"]

    @property
    def done(self) -> bool:
        """Whether the schedule is at its end."""
        return self.step >= self.config.schedule.steps

    def train(self, max_seconds: float | None = None) -> None:
        """Train to the end of the schedule, or for `max_seconds`; then save everything.

        Raises:
            SettingsError: the loss is no longer finite.
        """
        start, before, record = time.monotonic(), self.seconds, self.config.record
        last_save, losses = start, []
        if self.step == 0:
            self._evaluate()
        while not self.done:
            losses.append(self._step(self.data.train.step(self.step, self.config.masking)))
            now = time.monotonic()
            self.seconds = before + now - start
            if self.step % record.log_steps == 0:
                self._log_losses(losses)
                losses.clear()
            if self.step % record.evaluate_steps == 0 or self.done:
                self._evaluate()
            if self.interrupted or (max_seconds is not None and now - start >= max_seconds):
                break
            if now - last_save >= record.save_seconds:
                self.save()
                last_save = now
        self.save()
        draw_curve(read_history(self.out / LOG), self.out / CURVE, "narrator")

    def _step(self, batch: BlockBatch) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * trapezoid(self.step, self.config.schedule)
        entropy, weights = self._cross_entropy(batch, soft=self.config.soft_targets)
        loss = (entropy * weights).sum() / max(int((batch.weights > 0).sum()), 1)
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self.params, self.config.optimizer.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        self.targets += len(entropy)
        return torch.stack([loss.detach(), entropy.detach().mean()])

    def _cross_entropy(self, batch: BlockBatch, *, soft: bool = False) -> tuple[Tensor, Tensor]:
        """Return (cross entropy of each target, its weight); with `soft`, against the base's odds at the front."""
        layout = self.layout
        block = torch.from_numpy(batch.block)
        clean = torch.from_numpy(batch.ids)
        copies = torch.from_numpy(batch.masked)
        ids = torch.cat([clean, clean[:, layout.context :].repeat(1, layout.copies)], 1)
        masked = torch.cat([torch.zeros_like(clean, dtype=torch.bool), copies.flatten(1)], 1)
        seen = layout.visible(torch.from_numpy(batch.absent), block)
        hidden = self.model.hidden(ids, masked, layout.positions(), seen)
        wanted = torch.from_numpy(batch.weights > 0)
        rows = torch.arange(len(ids))[:, None, None].expand_as(wanted)[wanted]
        states = hidden[rows, layout.predictors(block)[wanted]]
        log_odds = functional.linear(states, self.model.embedding).log_softmax(-1)
        targets = clean[:, None, layout.context :].expand_as(wanted)[wanted]
        entropy = -log_odds.gather(1, targets[:, None])[:, 0]
        if soft and batch.front.any():
            front = torch.from_numpy(batch.front) & wanted
            likely, chances = self._base_odds(clean, batch, front)
            soft_entropy = -(log_odds[front[wanted]].gather(1, likely) * chances).sum(-1)
            entropy = entropy.masked_scatter(front[wanted], soft_entropy)
        return entropy, torch.from_numpy(batch.weights)[wanted]

    def _base_odds(
        self,
        clean: Int[Tensor, "rows clean"],
        batch: BlockBatch,
        front: Bool[Tensor, "rows copies response"],
    ) -> tuple[Int[Tensor, "targets k"], Float[Tensor, "targets k"]]:
        """Return (tokens, their odds) from which the base draws each target's token, given the row's text before it."""
        needed = functional.pad(front.any(1), (self.layout.context, 0))
        absent, unwritten = torch.from_numpy(batch.absent), torch.from_numpy(batch.unwritten)
        some = needed.any(1)
        logits = self.model.base_logits(clean[some], absent[some], needed[some])
        row, place = needed.nonzero(as_tuple=True)
        index = torch.arange(clean.shape[1])
        before = (index >= unwritten[row, None]) & (index < place[:, None])
        counts = torch.zeros(logits.shape, dtype=torch.int16).scatter_add_(1, clean[row], before.short())
        likely, chances = odds(logits, counts > 0, self.config.own_texts.sampling)
        number = torch.zeros(needed.shape, dtype=torch.long).masked_scatter(needed, torch.arange(len(row)))
        chosen = number[:, None, self.layout.context :].expand_as(front)[front]
        return likely[chosen], (chances / chances.sum(-1, keepdim=True))[chosen]

    @torch.no_grad()
    def _evaluate(self) -> None:
        """Measure the bound on held-out rows, with the same masks every time."""
        values: dict[str, float] = {}
        for name, batches in self.data.held_out.items():
            nats, count = 0.0, 0
            for batch in batches:
                entropy, weights = self._cross_entropy(batch)
                nats += float((entropy * weights).sum())
                count += int(batch.targets.sum())
            values[name] = nats / count
        self._log(**values)

    def _log_losses(self, losses: list[Tensor]) -> None:
        loss, plain = torch.stack(losses).mean(0).tolist()
        if not math.isfinite(loss):
            raise SettingsError(
                f"the loss is {loss} at step {self.step}: lower optimizer.lr; {self.out / STATE} holds an earlier step"
            )
        self._log(loss=loss, cross_entropy=plain)

    def _log(self, **values: float) -> None:
        row = {"step": self.step, **values, "tokens": self.targets, "seconds": round(self.seconds, 1)}
        self.history.append(row)
        stderr().print(str(row), markup=False, soft_wrap=True)

    def save(self) -> None:
        """Write the state file."""
        with atomic_file(self.out / STATE) as beside:
            torch.save(
                {
                    "schema": SCHEMA,
                    "trained": {name: param.detach() for name, param in self.model.trainable_parameters().items()},
                    "optimizer": self.optimizer.state_dict(),
                    "config": self.config.model_dump(mode="json"),
                    "data": self.data.made_from,
                    "step": self.step,
                    "targets": self.targets,
                    "seconds": self.seconds,
                },
                beside,
            )
