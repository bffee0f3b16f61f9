"""The two objectives, as batches of (inputs, target positions, targets, weights) for one training loop.

Masked diffusion is LLaDA's: each row draws a time t, each of its tokens is masked with probability t, and the loss is
the cross entropy of the masked tokens over t, divided by the number of tokens that could have been masked. Its mean
over t and masks bounds the negative log likelihood per token from above (Nie et al. 2025, "Large Language Diffusion
Models", Eq. 3; with a prefix kept, Eq. 5).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from dgmark_lab.training.config import Masking
from dgmark_lab.training.rows import RowBatch


@dataclass(frozen=True)
class Batch:
    """The data of a step; `positions` count through the inputs row by row.

    The loss is the sum over targets of weight * cross entropy.
    """

    inputs: Int[np.ndarray, "batch length"]
    positions: Int[np.ndarray, " targets"]
    targets: Int[np.ndarray, " targets"]
    weights: Float[np.ndarray, " targets"]

    def split(self, rows: int | None) -> Iterator["Batch"]:
        """Yield the batch in parts of at most `rows` rows; their losses add up to the whole's."""
        batch, length = self.inputs.shape
        for start in range(0, batch, rows or batch):
            inputs = self.inputs[start : start + (rows or batch)]
            begin, end = start * length, (start + len(inputs)) * length
            inside = (self.positions >= begin) & (self.positions < end)
            yield Batch(inputs, self.positions[inside] - begin, self.targets[inside], self.weights[inside])


def stratified_times(count: int, rng: np.random.Generator, smallest: float = 0.0) -> Float[np.ndarray, " count"]:
    """Draw times in (smallest, 1], one from each of `count` equal strata, in random order; each alone is uniform."""
    within = 1.0 - rng.random(count)  # in (0, 1]
    return smallest + (1.0 - smallest) * rng.permutation((np.arange(count) + within) / count)


def masked_diffusion(rows: RowBatch, rng: np.random.Generator, settings: Masking, mask_id: int) -> Batch:
    """Make LLaDA's batch from rows; filling end tokens count as text, so that the model learns to end."""
    batch, length = rows.ids.shape
    times = stratified_times(batch, rng, settings.smallest_t)
    drawn: Int[np.ndarray, " batch"] = rng.integers(settings.prefix_min, settings.prefix_max, (batch,), endpoint=True)
    prefixes = np.where(rng.random(batch) < settings.prefix_share, drawn, 0)
    prefixes = np.minimum(prefixes, rows.sizes - 1)  # a prefix leaves at least one token of text
    masked = rng.random((batch, length)) < times[:, None]
    masked &= np.arange(length) >= prefixes[:, None]
    return masked_batch(rows.ids, masked, 1.0 / (times * (length - prefixes) * batch), mask_id)


def masked_batch(
    ids: Int[np.ndarray, "batch length"],
    masked: np.ndarray,
    row_weights: Float[np.ndarray, " batch"],
    mask_id: int,
) -> Batch:
    """Make a batch in which the `masked` positions are hidden and predicted, each with its row's weight."""
    weights = np.broadcast_to(row_weights[:, None], ids.shape)[masked].astype(np.float32)
    return Batch(np.where(masked, mask_id, ids), np.flatnonzero(masked), ids[masked], weights)


def autoregressive(rows: RowBatch) -> Batch:
    """Make a batch for next-token prediction: all tokens of text after a row's first, and the end token after them."""
    length = rows.ids.shape[1]
    sources = np.arange(length - 1) < rows.sizes[:, None]
    row, column = np.nonzero(sources)
    weights = np.full(len(row), 1.0 / max(len(row), 1), np.float32)
    return Batch(rows.ids, row * length + column, rows.ids[row, column + 1], weights)


def weighted_loss(
    logits: Float[Tensor, "targets vocab"], targets: Int[Tensor, " targets"], weights: Float[Tensor, " targets"]
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Compute the batch's loss, and the plain mean cross entropy of its targets (both in nats, in float32)."""
    losses = functional.cross_entropy(logits.float(), targets, reduction="none")
    return (losses * weights).sum(), losses.detach().sum() / max(len(targets), 1)


def to_device(batch: Batch, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return inputs, positions, targets and weights as tensors; copies to a GPU are asynchronous."""
    arrays = (batch.inputs, batch.positions, batch.targets, batch.weights)
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    if device.type == "cuda":
        tensors = [tensor.pin_memory() for tensor in tensors]
    inputs, positions, targets, weights = (tensor.to(device, non_blocking=True) for tensor in tensors)
    return inputs, positions, targets, weights
