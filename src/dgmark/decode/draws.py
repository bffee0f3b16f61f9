"""Draws of tokens: the filters of a distribution, keyed draws, and the draw itself.

A keyed draw moves mass between candidates by the key's bits, so that over random keys each draw is unbiased.

A bit moves mass between the candidates that complete it, of bit 1 or 0, and leaves the others their own. With m the
share of the ones, they get M(m) = m + alpha min(m, 1 - m). If the bits are turned over, the ones have M(1 - m), and as
M(m) + 1 - M(1 - m) = 2m, each token keeps its probability on average. alpha = 1 is the gamma reweighting of Hu et al.
(2023). Knows no key and no rule.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor

# of the tokens of a place, at most so many have keyed bits: the most likely ones, of at least this probability
CANDIDATES, LEAST = 64, 1e-4


def keyed_shares(
    shares: Float[Tensor, "k candidates"], signs: Int8[Tensor, "k candidates bits"], alpha: float, bias: float = 0.0
) -> Float[Tensor, "k candidates"]:
    """The probabilities of candidates after each bit, in the order of the bits.

    Args:
        shares: the candidates' probabilities at k places, in float64; each place has some mass.
        signs: 1 or -1 for each bit of 1 or 0 that a candidate completes, 0 for none.
        alpha: how far to go, from 0, which leaves all as it is, to 1.
        bias: the probabilities of ones are then multiplied by exp(bias), and all divided by what this adds: no longer
            unbiased.
    """
    total = shares.sum(-1, keepdim=True)
    for sign in signs.unbind(-1):
        ones, zeros = shares * (sign > 0), shares * (sign < 0)
        of_ones, of_zeros = ones.sum(-1, keepdim=True), zeros.sum(-1, keepdim=True)
        moved = alpha * torch.minimum(of_ones, of_zeros)  # 0 where there is none of either
        shares = shares + ones * (moved / of_ones.clamp(min=_TINY)) - zeros * (moved / of_zeros.clamp(min=_TINY))
        if bias:
            shares = torch.where(sign > 0, shares * math.exp(bias), shares)
            shares = shares * (total / shares.sum(-1, keepdim=True))
    return shares


_TINY = torch.finfo(torch.float64).tiny


@dataclass(frozen=True)
class KeyedDraw:
    """What keyed draws need to know of a rule at k places.

    Attributes:
        signs: tells the bits of candidates (n, candidates) at n of the places; -1 stands for no candidate.
        at: these n places among the k; None for all of them.
        alpha: how far to go towards the bits.
        bias: what they add to the logarithm of a probability.
    """

    signs: Callable[[Int[Tensor, "n candidates"]], Int8[Tensor, "n candidates bits"]]
    at: Int[Tensor, " n"] | None
    alpha: float
    bias: float

    def apply(self, weights: Float[Tensor, "k vocab"]) -> "KeyedWeights":
        """Move mass in these weights, in place."""
        every = torch.arange(len(weights), device=weights.device) if self.at is None else self.at
        rows = weights if self.at is None else weights[self.at]
        top, tokens = rows.topk(min(CANDIDATES, weights.shape[-1]), -1)
        before, mass = top.double(), rows.sum(-1, keepdim=True)
        signs = self.signs(tokens.masked_fill(top < LEAST * mass, -1))
        after = keyed_shares(before, signs, self.alpha, self.bias)
        weights[every[:, None], tokens] = after.to(weights.dtype)
        return KeyedWeights(every, tokens, after / before.clamp(min=_TINY), signs)


@dataclass(frozen=True)
class KeyedWeights:
    """What a keyed draw has done to the candidates of n places among k.

    Attributes:
        at: these places.
        tokens: their candidates.
        gains: the probability of each over what it was.
        signs: the bits that each completes.
    """

    at: Int[Tensor, " n"]
    tokens: Int[Tensor, "n candidates"]
    gains: Float[Tensor, "n candidates"]
    signs: Int8[Tensor, "n candidates bits"]

    def of(self, drawn: Int[Tensor, " k"]) -> tuple[Float[Tensor, " k"], Int[Tensor, " k"]]:
        """The gain of what was drawn at each place, and its bits of 1 less those of 0; 1 and 0 without bits."""
        chosen = self.tokens == drawn[self.at, None]
        gains = torch.ones(len(drawn), dtype=torch.float64, device=drawn.device)
        net_bits = torch.zeros_like(drawn)
        gains[self.at] = torch.where(chosen.any(-1), (self.gains * chosen).sum(-1), 1.0)
        net_bits[self.at] = (self.signs.sum(-1) * chosen).sum(-1)
        return gains, net_bits


# --- plain draws ---

_SORTED_FIRST = 256  # weights


def filter_weights(
    weights: Float[Tensor, "k vocab"], top_k: int | None, top_p: float | None
) -> Float[Tensor, "k vocab"]:
    """Set the probabilities outside top-k, then those outside top-p, to 0; the rest is not renormalised.

    Tokens tied with the k-th stay, as in transformers. Top-p is a share of the mass that top-k left.
    """
    if top_k is not None and top_k < weights.shape[-1]:
        kth = weights.topk(top_k, -1).values[:, -1:]
        weights = weights.where(weights >= kth, 0.0)
    if top_p is not None and top_p < 1:
        weights = _nucleus(weights, top_p)
    return weights


def _nucleus(weights: Float[Tensor, "k vocab"], top_p: float) -> Float[Tensor, "k vocab"]:
    """Keep the fewest most likely tokens with a share `top_p` of the mass; of equal ones, the lower ids.

    Sorting a whole vocabulary costs as much as a small model's forward, so only the largest weights are sorted: as many
    as hold the share.
    """
    share = top_p * weights.sum(-1, keepdim=True, dtype=torch.float64)
    count = min(_SORTED_FIRST, weights.shape[-1])
    while True:
        largest = weights.topk(count, -1).values
        mass = largest.cumsum(-1, dtype=torch.float64)
        if count == weights.shape[-1] or bool((mass[:, -1:] >= share).all()):
            break
        count = min(8 * count, weights.shape[-1])
    kept = (mass - largest < share).sum(-1, keepdim=True).clamp(min=1)  # of NaN none is less; a fault, reported later
    least = largest.gather(-1, kept - 1)
    above, level = weights > least, weights == least
    among_equals = level & (level.cumsum(-1) <= kept - above.sum(-1, keepdim=True))
    return weights.where(above | among_equals, 0.0)


def draw(weights: Float[Tensor, "k vocab"], uniforms: Float[Tensor, " k"]) -> Int[Tensor, " k"]:
    """Draw one token for each row by inverting the cumulative weights at `uniforms`; never a token of weight 0.

    This needs one random number for each position instead of one for each token of the vocabulary.
    """
    mass = weights.cumsum(-1, dtype=torch.float64)
    total = mass[:, -1]
    # u * total may round up to total, above which there is no token
    target = torch.minimum(uniforms.to(torch.float64) * total, torch.nextafter(total, torch.zeros_like(total)))
    # weights of NaN have no token either; what comes of them must still be an id until the fault is reported
    return torch.searchsorted(mass, target[:, None], right=True)[:, 0].clamp(max=weights.shape[-1] - 1)
