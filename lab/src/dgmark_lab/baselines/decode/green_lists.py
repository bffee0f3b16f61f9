"""The decode sides of KGW, Unigram, DMark and LR-DWM: green tokens are favoured by a bias on the logits."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.keyed_side import OneKeySide
from dgmark.decode.rules import Step
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.green_lists import is_green, sides_of
from dgmark_lab.baselines.prf import HashKey
from dgmark_lab.baselines.specs import DMarkSpec, KgwSpec, LrDwmSpec, UnigramSpec

# of cached rows
_CACHED_BYTES = 2**26


class GreenRows:
    """Rows of the green relation B[left, right] over the vocabulary, computed when first needed and then cached.

    One step needs nearly the same rows as the step before. The whole relation would be too large to keep.

    Args:
        hash_key: the hash key of the relation.
        gamma: share of green pairs.
        vocab_size: number of token ids.
        device: where the rows are needed.
        right: whether the tokens of the rows stand on the right of their pairs.
    """

    def __init__(
        self, hash_key: HashKey, gamma: float, vocab_size: int, device: torch.device, *, right: bool = False
    ) -> None:
        vocabulary = torch.arange(vocab_size, device=device)

        @lru_cache(maxsize=max(1, _CACHED_BYTES // vocab_size))
        def row(token: int) -> Bool[Tensor, " vocab"]:
            one = torch.tensor([token], device=device)
            green: Bool[Tensor, " vocab"]
            green = is_green(hash_key, vocabulary, one, gamma) if right else is_green(hash_key, one, vocabulary, gamma)
            return green

        self.row = row

    def __call__(self, tokens: Int[Tensor, " n"]) -> Bool[Tensor, "n vocab"]:
        """Return the row of each token."""
        return torch.stack([self.row(token) for token in tokens.tolist()])


# kept from batch to batch of a key
green_rows = lru_cache(maxsize=8)(GreenRows)


def without_held(
    favoured: Bool[Tensor, "places vocab"],
    tokens: Int[Tensor, " places"],
    offset: int,
    step: Step,
    canvas: Int[Tensor, " places"],
) -> Bool[Tensor, "places vocab"]:
    """Leave out what the tests would not count: tokens that complete a pair which the text already holds.

    Args:
        favoured: the tokens that a bias favours at each place.
        tokens: the neighbour of each place.
        offset: where the neighbour stands.
        step: the step.
        canvas: the canvas of each place.
    """
    distance, (first, stop) = abs(offset), step.window.text
    ids = step.window.ids[:, first:stop]
    near, far = ids[:, :-distance], ids[:, distance:]
    if offset > 0:
        near, far = far, near
    held = (near[canvas] == tokens[:, None]) & (far[canvas] != step.window.mask_id)
    place, pair = held.nonzero(as_tuple=True)
    fresh = favoured.clone()
    fresh[place, far[canvas[place], pair]] = False
    return fresh


def biased_by_neighbours(
    step: Step,
    sides: Sequence[tuple[int, GreenRows]],
    delta: float,
    *,
    predicts: bool = False,
    new_only: bool = False,
) -> Float[Tensor, "k vocab"]:
    """The logits of a step with `delta` added to the tokens that are green with a neighbour, once for each neighbour.

    Args:
        step: the step.
        sides: the offset of each neighbour and the rows for it; one that is not committed adds nothing.
        delta: what is added.
        predicts: where no neighbour is committed, take the likeliest token to the left for the first one.
        new_only: favour only pairs that the text does not hold yet.
    """
    logits, beside = step.copied_logits(), [step.neighbours(offset) for offset, _ in sides]
    if predicts:
        alone = (torch.stack(beside) < 0).all(0)
        beside[0] = torch.where(alone, _predicted_left(step), beside[0])
    canvas = step.places.canvas
    for tokens, (offset, rows) in zip(beside, sides, strict=True):
        known = (tokens[step.places.index] >= 0).nonzero()[:, 0]
        if len(known):
            neighbours = tokens[step.places.index][known]
            green = rows(neighbours)
            if new_only:
                green = without_held(green, neighbours, offset, step, canvas[known])
            logits.index_add_(0, known, green.to(logits.dtype), alpha=delta)
    return logits


def biased_by_position(step: Step, table: Float[Tensor, "period vocab"]) -> Float[Tensor, "k vocab"]:
    """The logits of a step with row `position % period` of a table added at each position."""
    return step.copied_logits().add_(table[step.places.positions % len(table)])


def _predicted_left(step: Step) -> Int[Tensor, "canvases window"]:
    """Return the most likely token of the position to the left, or -1 if that is outside the window."""
    likeliest = step.logits.index_fill(-1, step.forbidden, -torch.inf).argmax(-1)
    return torch.nn.functional.pad(likeliest[:, :-1], (1, 0), value=-1)


class KgwSide(OneKeySide):
    """A bias where the left neighbour is committed; the first position's neighbour is the prompt's last token."""

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The biased logits."""
        spec = spec_as(KgwSpec, self.key)
        rows = green_rows(HashKey.of(self.key, "kgw"), spec.gamma, spec.table_size, self.device)
        return biased_by_neighbours(step, [(-1, rows)], spec.delta)


class UnigramSide(OneKeySide):
    """The same bias at every position."""

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The biased logits."""
        spec = spec_as(UnigramSpec, self.key)
        return biased_by_position(step, _unigram_table(HashKey.of(self.key, "unigram"), spec, self.device))


@lru_cache(maxsize=8)
def _unigram_table(hash_key: HashKey, spec: UnigramSpec, device: torch.device) -> Float[Tensor, "1 vocab"]:
    every = np.arange(spec.table_size)
    green = is_green(hash_key, np.zeros_like(every), every, spec.gamma)
    return table_on(green[None] * spec.delta, device)


def table_on(table: Float[np.ndarray, "period vocab"], device: torch.device) -> Float[Tensor, "period vocab"]:
    """A table of biases on a device, in float32."""
    return torch.from_numpy(table.astype(np.float32)).to(device)


class DMarkSide(OneKeySide):
    """A bias by the relation's row for a left neighbour, and by its column for a right one."""

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The biased logits."""
        spec, hash_key = spec_as(DMarkSpec, self.key), HashKey.of(self.key, "dmark")
        offsets = (-1, 1) if spec.form.endswith("bidirectional") else (-1,)
        sides = [
            (offset, green_rows(hash_key, spec.gamma, spec.table_size, self.device, right=offset > 0))
            for offset in offsets
        ]
        predicts = spec.form.startswith("predictive")
        return biased_by_neighbours(step, sides, spec.delta, predicts=predicts, new_only=spec.new_only)


class LrDwmSide(OneKeySide):
    """A bias by the list of the left neighbour and by that of the right one, where these are committed."""

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The biased logits."""
        spec = spec_as(LrDwmSpec, self.key)
        sides = [
            (side, green_rows(hash_key, spec.gamma, spec.table_size, self.device))
            for side, hash_key in sides_of(self.key)
        ]
        return biased_by_neighbours(step, sides, spec.delta, new_only=spec.new_only)
