"""Keyed draws: mass moved between candidates by the key's bits, so that over random keys each draw is unbiased.

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
        levels = torch.zeros_like(drawn)
        gains[self.at] = torch.where(chosen.any(-1), (self.gains * chosen).sum(-1), 1.0)
        levels[self.at] = (self.signs.sum(-1) * chosen).sum(-1)
        return gains, levels
