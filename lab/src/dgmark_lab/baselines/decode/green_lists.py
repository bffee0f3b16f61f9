"""The decode side of KGW, DMark and LR-DWM: tokens that are green with a neighbour are favoured by a bias."""

from collections.abc import Callable
from functools import lru_cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.marks.keyed_side import OneKeySide
from dgmark.decode.marks.rules import Step
from dgmark_lab.baselines.green_lists import gamma_of, is_green, sides_of
from dgmark_lab.baselines.prf import HashKey
from dgmark_lab.baselines.specs import DMarkSpec, GreenListSpec, LrDwmSpec

# of cached rows
_CACHED_BYTES = 2**26


# the rows of some tokens
GreenRows = Callable[[Int[Tensor, " n"]], Bool[Tensor, "n vocab"]]


@lru_cache(maxsize=8)  # kept from batch to batch of a key
def green_rows(hash_key: HashKey, gamma: float, vocab_size: int, device: torch.device, *, right: bool) -> GreenRows:
    """Rows of the green relation B[left, right] over the vocabulary, computed when first needed and then cached.

    One step needs nearly the same rows as the step before. The whole relation would be too large to keep. `gamma` is
    the share of green pairs, and `right` tells whether the tokens of the rows stand on the right of their pairs.
    """
    vocabulary = torch.arange(vocab_size, device=device)

    @lru_cache(maxsize=max(1, _CACHED_BYTES // vocab_size))
    def row(token: int) -> Bool[Tensor, " vocab"]:
        one = torch.tensor([token], device=device)
        left, beside = (vocabulary, one) if right else (one, vocabulary)
        return is_green(hash_key, left, beside, gamma)

    return lambda tokens: torch.stack([row(token) for token in tokens.tolist()])


def without_held(
    favoured: Bool[Tensor, "places vocab"],
    tokens: Int[Tensor, " places"],
    offset: int,
    step: Step,
    canvas: Int[Tensor, " places"],
) -> Bool[Tensor, "places vocab"]:
    """Leave out what the tests would not count: tokens that complete a pair which the text already holds.

    `favoured` are the tokens that a bias favours at each place of a canvas, and `tokens` the neighbour of each place,
    which stands at the offset.
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


class NeighbourSide(OneKeySide):
    """`delta` is added to the tokens that are green with a neighbour, once for each.

    A neighbour that is not committed adds nothing; the first position's left one is the prompt's last token.
    """

    def neighbours(self) -> list[tuple[int, GreenRows]]:
        """The offset of each neighbour, and the rows for it: left alone, or both, of LR-DWM with lists of its own."""
        spec = self.key.spec
        if isinstance(spec, LrDwmSpec):
            return [(side, self.rows(hash_key)) for side, hash_key in sides_of(self.key)]
        hash_key = HashKey.of(self.key, spec.rule)
        both = [(-1, self.rows(hash_key)), (1, self.rows(hash_key, right=True))]
        return both if isinstance(spec, DMarkSpec) and spec.form.endswith("bidirectional") else both[:1]

    def rows(self, hash_key: HashKey, *, right: bool = False) -> GreenRows:
        """The rows of a relation of the key; see `green_rows`."""
        return green_rows(hash_key, gamma_of(self.key), self.key.spec.table_size, self.device, right=right)

    def change(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The biased logits."""
        spec, sides = self.key.spec, self.neighbours()
        assert isinstance(spec, GreenListSpec)
        logits, beside = step.copied_logits(), [step.neighbours(offset) for offset, _ in sides]
        if isinstance(spec, DMarkSpec) and spec.form.startswith("predictive"):
            # where no neighbour is committed, the likeliest token to the left stands for the first one
            alone = (torch.stack(beside) < 0).all(0)
            likeliest = step.logits.index_fill(-1, step.forbidden, -torch.inf).argmax(-1)
            predicted = torch.nn.functional.pad(likeliest[:, :-1], (1, 0), value=-1)
            beside[0] = torch.where(alone, predicted, beside[0])
        canvas = step.places.canvas
        for tokens, (offset, rows) in zip(beside, sides, strict=True):
            known = (tokens[step.places.index] >= 0).nonzero()[:, 0]
            if len(known):
                neighbours = tokens[step.places.index][known]
                green = rows(neighbours)
                if isinstance(spec, DMarkSpec | LrDwmSpec) and spec.new_only:
                    green = without_held(green, neighbours, offset, step, canvas[known])
                logits.index_add_(0, known, green.to(logits.dtype), alpha=spec.delta)
        return logits
