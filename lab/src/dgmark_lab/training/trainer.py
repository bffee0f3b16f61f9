"""Training of the storyteller and the judge, the same for both and for every device.

A step draws rows and masks (functions of seed and step), clips the gradients, steps both optimizers, and averages the
weights.
"""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from dgmark.models.load import default_dtype
from dgmark_lab.training.config import OptimizerSettings, TrainingConfig
from dgmark_lab.training.corpus import Corpus, prepare_corpus, read_documents
from dgmark_lab.training.networks import Network, mask_id_of, new_network, save_model
from dgmark_lab.training.objective import (
    Batch,
    HeldOut,
    autoregressive,
    held_out_bound,
    held_out_rows,
    masked_diffusion,
    target_losses,
)
from dgmark_lab.training.rows import RowSource
from dgmark_lab.training.run import Run


class Trainer(Run[TrainingConfig, Batch]):
    """A run of the storyteller or the judge; its folder also holds the model with averaged weights.

    It starts from the model folder `init`, unless it resumes, and evaluates regularly on the held-out rows.

    Raises:
        SettingsError: the settings do not fit the data, the tokenizer or `init`.
        ResumeMismatch: the folder holds a run with other settings or data.
    """

    def __init__(
        self,
        config: TrainingConfig,
        corpus: Corpus,
        out: Path,
        device: torch.device,
        *,
        init: Path | None = None,
        held_out: HeldOut | None = None,
    ) -> None:
        super().__init__(config, corpus.made_from, out, device)
        self.held_out = held_out
        self.tokenizer = corpus.tokenizer
        self.rows = RowSource(corpus, config.rows, config.seed)
        start = init if self.state is None else None
        self.network = new_network(config, self.tokenizer, start).to(device).train()
        self.average = averaged(self.network, config.optimizer.ema_decay)
        muon, adamw = self.optimizers = make_optimizers(self.network, config.optimizer, device)
        self.parts = {"module": self.network, "average": self.average, "muon": muon, "adamw": adamw}
        self.resume()

    def batch(self, step: int) -> Batch:
        """Return the batch of a step (from 0)."""
        rows = self.rows.step(step)
        mask_id = mask_id_of(self.network)
        if self.config.masking is None or mask_id is None:
            return autoregressive(rows)
        return masked_diffusion(rows, self.rows.masks_rng(step), self.config.masking, mask_id)

    def update(self, batch: Batch) -> Tensor:
        """Make one step, and return (loss, plain cross entropy), still on the device."""
        with self._autocast():
            losses, weights = target_losses(self.network, batch, self.device)
        loss = (losses * weights).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        clip_grad_norm_(self.network.parameters(), self.config.optimizer.clip_norm)
        self.take_step()
        self.average.update_parameters(self.network)
        self.tokens += batch.inputs.size
        return torch.stack([loss, losses.mean()]).detach()

    def evaluate(self) -> dict[str, float]:
        """Measure the averaged weights on the held-out rows, with the same masks every time."""
        if self.held_out is None:
            return {}
        with self._autocast():
            bound = held_out_bound(self.average.module.train(False), self.held_out, repeats=2)
        return {"heldout": bound.per_token, "heldout_per_character": bound.per_character}

    def save(self) -> None:
        """Write the state file, and the averaged weights as a model folder."""
        super().save()
        save_model(self.average.module, self.tokenizer, self.out / "model", context=self.config.rows.length)

    def _autocast(self) -> torch.autocast:
        """Return the context of forwards: in bf16 where this is faster."""
        on = default_dtype(self.device) == torch.bfloat16
        return torch.autocast(self.device.type, torch.bfloat16, enabled=on)


def make_optimizers(
    network: Network, settings: OptimizerSettings, device: torch.device
) -> tuple[torch.optim.Muon, torch.optim.AdamW]:
    """Make Muon for the matrices of the blocks, and AdamW for embeddings, heads, norms and biases."""
    matrices = [param for param in network.model.layers.parameters() if param.ndim == 2]
    known = set(map(id, matrices))
    others = [param for param in network.parameters() if id(param) not in known]
    muon = torch.optim.Muon([{"params": matrices, "peak": settings.muon_lr}], weight_decay=settings.weight_decay)
    adamw = torch.optim.AdamW(
        [{"params": others, "peak": settings.adamw_lr}],
        betas=(0.9, 0.95),
        weight_decay=settings.weight_decay,
        fused=device.type == "cuda",
    )
    return muon, adamw


def averaged(module: nn.Module, decay: float) -> AveragedModel:
    """Make an exponential moving average of a module's weights, which are copied.

    It is short at first, so that it forgets the random start: its decay is `decay` once (1 + step) / (10 + step)
    exceeds that.
    """

    def update(averages: Any, weights: Any, step: Tensor | int) -> None:
        share = min(decay, float((1 + step) / (10 + step)))
        get_ema_multi_avg_fn(share)(averages, weights, step)  # type: ignore[no-untyped-call]

    return AveragedModel(module, multi_avg_fn=update)


def train(
    config: TrainingConfig,
    data: Path,
    out: Path,
    *,
    heldout: Path | None = None,
    init: Path | None = None,
    max_seconds: float | None = None,
    device: torch.device,
) -> Trainer:
    """Prepare the data if needed, and train for a while; return the run.

    Raises:
        DgmarkError: settings, data or folders are unusable; the message says what to do.
    """
    start = time.monotonic()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    corpus = prepare_corpus(data, out / "tokens")
    rows = None
    if heldout is not None:
        documents = list(read_documents(heldout))
        rows = held_out_rows(documents, corpus.tokenizer, config.rows.length, config.record.evaluate_rows)
    run = Trainer(config, corpus, out, device, init=init, held_out=rows)
    run.train(None if max_seconds is None else max_seconds - (time.monotonic() - start))
    return run
