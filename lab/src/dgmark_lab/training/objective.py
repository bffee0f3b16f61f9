"""The two objectives, as batches of (inputs, target positions, targets, weights), and the bound on held-out text.

Masked diffusion is LLaDA's: each row draws a time t, each of its tokens is masked with probability t, and the loss is
the cross entropy of the masked tokens over t, divided by the number of tokens that could have been masked. Its mean
over t and masks bounds the negative log likelihood per token from above (Nie et al. 2025, "Large Language Diffusion
Models", Eq. 3; with a prefix kept, Eq. 5). The held-out bound is this mean for t uniform in (0, 1]: times are
stratified over the rows of a repeat; repeats are independent, so their spread gives the Monte-Carlo error.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from dgmark.checkpoint.tokenizer import Tokenizer, load_tokenizer
from dgmark.errors import InputError
from dgmark_lab.training.config import Masking
from dgmark_lab.training.corpus import Document, file_hash, read_documents
from dgmark_lab.training.networks import Network, load_network, logits_at, mask_id_of
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


def target_losses(
    network: Network, batch: Batch, device: torch.device
) -> tuple[Float[Tensor, " targets"], Float[Tensor, " targets"]]:
    """Return the cross entropy of each target in nats, in float32, and its weight; copies to a GPU are asynchronous."""
    arrays = (batch.inputs, batch.positions, batch.targets, batch.weights)
    tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    if device.type == "cuda":
        tensors = [tensor.pin_memory() for tensor in tensors]
    inputs, positions, targets, weights = (tensor.to(device, non_blocking=True) for tensor in tensors)
    logits = logits_at(network, inputs, positions).float()
    return functional.cross_entropy(logits, targets, reduction="none"), weights


# ---- the bound on held-out text ----


@dataclass(frozen=True)
class HeldOut:
    """Full rows of held-out text.

    Attributes:
        ids: token ids.
        characters: number of characters of the original text that each row covers.
    """

    ids: Int[np.ndarray, "rows length"]
    characters: Int[np.ndarray, " rows"]


@dataclass(frozen=True)
class Bound:
    """A bound in nats per token and per character.

    Attributes:
        per_token: NELBO, or cross entropy of an autoregressive model.
        per_character: the same nats over the characters of the original text.
        monte_carlo_error: standard error of `per_token` due to times and masks; 0 for an autoregressive model.
        text_error: standard error of `per_token` due to the choice of rows, Monte-Carlo error included.
    """

    per_token: float
    per_character: float
    monte_carlo_error: float
    text_error: float


def held_out_rows(documents: list[Document], tokenizer: Tokenizer, length: int, rows: int) -> HeldOut:
    """Draw `rows` full rows, always the same, from random places of documents, in proportion to their length.

    Raises:
        InputError: no document is as long as a row.
    """
    encoded = [tokenizer.encode_with_offsets(document.text) for document in documents]
    fitting = [one for one in encoded if len(one.ids) >= length]
    if not fitting:
        raise InputError(f"no held-out document has {length} tokens; give longer ones or a smaller --length")
    rng = np.random.default_rng(0)
    places = np.array([len(one.ids) - length + 1 for one in fitting], np.float64)
    ids = np.empty((rows, length), np.int64)
    characters = np.empty(rows, np.int64)
    for row in range(rows):
        text = fitting[int(rng.choice(len(fitting), p=places / places.sum()))]
        start = int(rng.integers(len(text.ids) - length + 1))
        ids[row] = text.ids[start : start + length]
        # up to the start of the next token, so that white space between tokens counts once
        after = start + length
        stop = text.offsets[after][0] if after < len(text.ids) else text.offsets[-1][1]
        characters[row] = max(stop, text.offsets[after - 1][1]) - text.offsets[start][0]
    return HeldOut(ids, characters)


def held_out_bound(network: Network, held_out: HeldOut, *, repeats: int = 4, batch: int = 16) -> Bound:
    """Compute a model's bound on held-out rows; all models see the same masks.

    Args:
        network: the model, on its device.
        held_out: the rows.
        repeats: independent draws of times and masks for every row, at least 2; the cross entropy of an autoregressive
            model is not a random draw.
        batch: rows of a forward.
    """
    (rows, length), mask_id = held_out.ids.shape, mask_id_of(network)
    sums = np.empty((1 if mask_id is None else repeats, rows))
    for repeat in range(len(sums)):
        rng = np.random.default_rng((0, repeat))
        times = stratified_times(rows, rng)
        masked = rng.random(held_out.ids.shape) < times[:, None]
        for start in range(0, rows, batch):
            part = slice(start, start + batch)
            ids = held_out.ids[part]
            if mask_id is None:
                whole = autoregressive(RowBatch(ids, np.full(len(ids), length, np.int64)))
                # the first token is not predicted: scale to the row's full length
                task = replace(whole, weights=np.full(len(whole.targets), length / (length - 1), np.float32))
            else:
                task = masked_batch(ids, masked[part], 1.0 / times[part], mask_id)
            sums[repeat, part] = row_nats(network, task)
    by_repeat, by_row = sums.mean(1) / length, sums.mean(0) / length
    return Bound(
        per_token=float(sums.mean() / length),
        per_character=float(sums.mean() * rows / held_out.characters.sum()),
        monte_carlo_error=float(by_repeat.std(ddof=1) / len(sums) ** 0.5) if len(sums) > 1 else 0.0,
        text_error=float(by_row.std(ddof=1) / rows**0.5) if rows > 1 else 0.0,
    )


def row_nats(network: Network, batch: Batch) -> Float[np.ndarray, " rows"]:
    """Return each row's weighted nats; of masked tokens with weight 1 / t, this is one draw of its bound."""
    with torch.inference_mode():
        losses, weights = target_losses(network, batch, network.device)
    nats = (losses * weights).double().cpu().numpy()
    rows, length = batch.inputs.shape
    # if nothing was masked, bincount returns integers
    return np.bincount(batch.positions // length, weights=nats, minlength=rows).astype(np.float64)


def bounds_of(
    model: str, data: Path, *, against: Sequence[str], rows: int, length: int, device: torch.device
) -> dict[str, Any]:
    """Compute the bounds of models on held-out documents, as plain JSON values.

    Models are built-in names or folders. The documents give so many rows of so many tokens.

    Raises:
        ModelError: a model does not exist.
        InputError: no document is as long as a row.
    """
    documents = list(read_documents(data))
    models = {"this model": model, **{Path(other).name: other for other in against}}
    bounds = {}
    for name, folder in models.items():
        network, tokenizer = load_network(folder), load_tokenizer(folder)
        network.to(device).train(False)
        held_out = held_out_rows(documents, tokenizer, length, rows)
        bounds[name] = asdict(held_out_bound(network, held_out))
    return {"heldout_sha256": file_hash(data), "rows": rows, "length": length, "bounds": bounds, "schema": 1}
