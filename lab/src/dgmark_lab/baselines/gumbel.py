"""Gumbel-max with noise seeded by the position (Bagchi et al. 2025): no bias; each token keeps its distribution."""

import math
from typing import Annotated, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from pydantic import Field
from pydantic.dataclasses import dataclass
from scipy.special import gammaincc
from torch import Tensor

from dgmark.decode.rules import Rule
from dgmark.detection.p_values import MIN_P
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.base import Baseline, Ids, Score
from dgmark_lab.baselines.prf import BITS, HashKey, states, uniform_bits

# (shift, token) pairs that are hashed at once; mean score per token of a typical mark (chance: 1)
_AT_ONCE, _TYPICAL = 2**20, 2.0


@dataclass(frozen=True)
class Gumbel(Baseline):
    """Gumbel-max: the key's uniforms of (position mod period, token) decide the draw at a position.

    Attributes:
        period: m, positions after which the uniforms repeat; the detector tries m shifts and corrects p for them.
    """

    period: Annotated[int, Field(ge=1, le=2**16)] = 256

    name: ClassVar[str] = "gumbel"

    def rule(self, key: WatermarkKey, model: Denoiser) -> Rule:
        """The key's Gumbel noise in place of random draws; needs a temperature above 0."""
        return Rule(noise=GumbelNoise(self.hash_key(key), self.period, model.vocab_size, traits_of(model).device))

    def score(self, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Sum -ln(1 - u) over the distinct (residue, token) pairs, at the best of all shifts.

        Over random keys the u of distinct pairs are independent and uniform, so the sum over n pairs is Gamma(n, 1) at
        each shift. Published: the same sum over all tokens, repeated pairs included.
        """
        if not len(ids):
            return Score(0, 0, 0.0, 1.0, 1.0, detectable=False)
        residues, again = positions % self.period, np.arange(len(ids))
        _, first = np.unique(np.stack([residues, ids]), axis=1, return_index=True)
        distinct = np.isin(again, first)
        all_sums, sums, above = self._sums(key, ids, residues, distinct)
        scored = int(distinct.sum())
        best = int(sums.argmax())
        p_value = self._p_value(scored, float(sums[best]))
        return Score(
            scored=scored,
            matched=int(above[best]),
            z_score=(float(sums[best]) - scored) / math.sqrt(scored),
            p_value=p_value,
            p_published=self._p_value(len(ids), float(all_sums.max())),
            detectable=p_value <= fpr or self._p_value(scored, _TYPICAL * scored) <= fpr,
            shift=best,
            shifts_tested=self.period,
        )

    def _p_value(self, count: int, value: float) -> float:
        """P(some shift's sum of `count` standard exponentials >= value), at most; never 0."""
        return min(1.0, self.period * max(MIN_P, float(gammaincc(count, value))))

    def _sums(
        self, key: WatermarkKey, ids: np.ndarray, residues: np.ndarray, distinct: np.ndarray
    ) -> tuple[Float[np.ndarray, " shifts"], Float[np.ndarray, " shifts"], Int[np.ndarray, " shifts"]]:
        """Return, for each shift, the sum over all tokens, over the distinct pairs, and how many pairs have u > 1/2."""
        state = states(self.hash_key(key), np.arange(self.period))
        parts = []
        for shifts in np.array_split(np.arange(self.period), -(-self.period * len(ids) // _AT_ONCE)):
            bits = uniform_bits(state[(residues + shifts[:, None]) % self.period], ids)
            # u = (top 52 bits + 1/2) / 2^52, exact in a float: neither u nor 1 - u is ever 0
            terms = -np.log((2.0 ** (BITS - 1) - 0.5 - (bits >> 1)) / 2.0 ** (BITS - 1))
            parts.append((terms.sum(1), terms[:, distinct].sum(1), (bits[:, distinct] >> (BITS - 1)).sum(1)))
        every, once, above = (np.concatenate(part) for part in zip(*parts, strict=True))
        return every, once, above


class GumbelNoise:
    """Gumbel noise from the key's uniforms of (position mod period, token).

    The noise of the last window is cached, since every step of a block asks for it.
    """

    def __init__(self, hash_key: HashKey, period: int, vocab: int, device: torch.device) -> None:
        self._hash_key = hash_key
        self._period = period
        self._vocabulary = torch.arange(vocab, device=device)
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, positions: Int[Tensor, " window"]) -> Float[Tensor, "window vocab"]:
        """Return -ln(-ln u) for each position and token, in double precision."""
        if self._last is None or not torch.equal(self._last[0], positions):
            state = states(self._hash_key, positions % self._period)
            bits = uniform_bits(state[:, None], self._vocabulary)
            uniform = ((bits >> 1).to(torch.float64) + 0.5) / 2 ** (BITS - 1)
            self._last = positions, -torch.log(-torch.log(uniform))
        return self._last[1]
