"""The held-out bound: negative log likelihood of text under a masked diffusion model, per token and per character.

For a row x of L tokens, NELBO(x) = E_t E_masks [ (1 / t) * sum over masked i of -log p(x_i | unmasked) ] with t
uniform in (0, 1] (Nie et al. 2025, Eq. 3). Times are stratified over the rows of a repeat; repeats are independent, so
their spread gives the Monte-Carlo error.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch.nn import functional

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import InputError
from dgmark_lab.training.corpus import Document
from dgmark_lab.training.networks import Network
from dgmark_lab.training.objective import Batch, autoregressive, masked_batch, stratified_times, to_device
from dgmark_lab.training.rows import RowBatch


@dataclass(frozen=True)
class HeldOut:
    """Full rows of held-out text.

    Attributes:
        ids: token ids.
        characters: number of characters of the original text that each row covers.
    """

    ids: Int[np.ndarray, "rows length"]
    characters: Int[np.ndarray, " rows"]

    def first(self, rows: int) -> "HeldOut":
        """Return the first `rows` rows."""
        return HeldOut(self.ids[:rows], self.characters[:rows])


@dataclass(frozen=True)
class Bound:
    """A bound in nats per token and per character.

    Attributes:
        per_token: NELBO, or cross entropy of an autoregressive model.
        per_character: the same nats over the characters of the original text.
        monte_carlo_error: standard error of `per_token` due to times and masks; 0 for an autoregressive model, None
            after a single repeat.
        text_error: standard error of `per_token` due to the choice of rows, Monte-Carlo error included.
        rows: number of measured rows.
        tokens: number of tokens of one repeat.
        repeats: number of independent draws of times and masks.
    """

    per_token: float
    per_character: float
    monte_carlo_error: float | None
    text_error: float
    rows: int
    tokens: int
    repeats: int

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def held_out_rows(documents: list[Document], tokenizer: Tokenizer, length: int, rows: int, seed: int = 0) -> HeldOut:
    """Draw `rows` full rows from random places of random documents, in proportion to their length.

    Raises:
        InputError: no document is as long as a row.
    """
    encoded = [tokenizer.encode_with_offsets(document.text) for document in documents]
    fitting = [one for one in encoded if len(one.ids) >= length]
    if not fitting:
        raise InputError(f"no held-out document has {length} tokens; give longer ones or a smaller --length")
    rng = np.random.default_rng(seed)
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


def nelbo(
    network: Network, held_out: HeldOut, mask_id: int, *, repeats: int = 4, seed: int = 0, batch: int = 16
) -> Bound:
    """Compute the bound of a masked diffusion model on held-out rows.

    Args:
        network: the model, on its device.
        held_out: the rows.
        mask_id: id of its mask token.
        repeats: independent draws of times and masks for every row.
        seed: seed of the draws; two models measured with one seed see the same masks.
        batch: rows of a forward.
    """
    rows = len(held_out.ids)
    sums = np.empty((repeats, rows))
    for repeat in range(repeats):
        rng = np.random.default_rng((seed, repeat))
        times = stratified_times(rows, rng)
        masked = rng.random(held_out.ids.shape) < times[:, None]
        for start in range(0, rows, batch):
            part = slice(start, start + batch)
            sums[repeat, part] = row_nats(network, held_out.ids[part], masked[part], 1.0 / times[part], mask_id)
    error = float(sums.mean(1).std(ddof=1) / repeats**0.5 / held_out.ids.shape[1]) if repeats > 1 else None
    return _bound(sums, held_out, error)


def cross_entropy(network: Network, held_out: HeldOut, *, batch: int = 16) -> Bound:
    """Compute the cross entropy of an autoregressive model: each token of a row after the first, given those before."""
    rows, length = held_out.ids.shape
    sums = np.empty((1, rows))
    for start in range(0, rows, batch):
        ids = held_out.ids[start : start + batch]
        task = autoregressive(RowBatch(ids, np.full(len(ids), length, np.int64)))
        ones = Batch(task.inputs, task.positions, task.targets, np.ones(len(task.targets), np.float32))
        sums[0, start : start + batch] = _row_sums(network, ones)
    # the first token is not predicted: scale to the row's full length
    return _bound(sums * length / (length - 1), held_out, 0.0)


def row_nats(
    network: Network,
    ids: Int[np.ndarray, "rows length"],
    masked: Bool[np.ndarray, "rows length"],
    weights: Float[np.ndarray, " rows"],
    mask_id: int,
) -> Float[np.ndarray, " rows"]:
    """Return each row's weighted nats of its masked tokens; with weight 1 / t, this is one draw of its bound."""
    return _row_sums(network, masked_batch(ids, masked, weights, mask_id))


def _row_sums(network: Network, batch: Batch) -> Float[np.ndarray, " rows"]:
    inputs, positions, targets, weights = to_device(batch, network.module.device)
    with torch.inference_mode():
        losses = functional.cross_entropy(network.logits_at(inputs, positions).float(), targets, reduction="none")
    nats = (losses * weights).double().cpu().numpy()
    rows, length = batch.inputs.shape
    # if nothing was masked, bincount returns integers
    return np.bincount(batch.positions // length, weights=nats, minlength=rows).astype(np.float64)


def _bound(sums: Float[np.ndarray, "repeats rows"], held_out: HeldOut, monte_carlo_error: float | None) -> Bound:
    repeats, (rows, length) = len(sums), held_out.ids.shape
    by_row = sums.mean(0) / length
    return Bound(
        per_token=float(sums.mean() / length),
        per_character=float(sums.mean() * rows / held_out.characters.sum()),
        monte_carlo_error=monte_carlo_error,
        text_error=float(by_row.std(ddof=1) / rows**0.5) if rows > 1 else 0.0,
        rows=rows,
        tokens=rows * length,
        repeats=repeats,
    )
