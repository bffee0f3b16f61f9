"""Gumbel-max with noise seeded by the position (Bagchi et al. 2025): no bias; each token keeps its distribution."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float, Int

from dgmark.detection.alpha_spending import SMALLEST_P
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.baseline import Baseline
from dgmark_lab.baselines.prf import BITS, states, uniform_bits
from dgmark_lab.baselines.score import Score

if TYPE_CHECKING:
    from dgmark.decode.steering import Steering
    from dgmark.models.denoiser import Denoiser

LONGEST_PERIOD = 2**16
# (shift, token) pairs that are hashed at once; mean score per token of a typical mark (chance: 1)
_AT_ONCE, _TYPICAL = 2**20, 2.0


@dataclass(frozen=True)
class Gumbel(Baseline):
    """Gumbel-max: the key's uniforms of (position mod period, token) decide the draw at a position.

    Attributes:
        period: m, positions after which the uniforms repeat; the detector tries m shifts and corrects p for them.
    """

    period: int = 256

    name: ClassVar[str] = "gumbel"

    def __post_init__(self) -> None:
        if not 1 <= self.period <= LONGEST_PERIOD:
            raise SettingsError(f"period {self.period} is not in 1..{LONGEST_PERIOD}")

    def steering(self, key: WatermarkKey, model: "Denoiser") -> "Steering":
        """The key's Gumbel noise in place of random draws; needs a temperature above 0."""
        from dgmark.decode.steering import Steering
        from dgmark.models.denoiser import traits_of
        from dgmark_lab.baselines.embed.noise import GumbelNoise

        return Steering(noise=GumbelNoise(self.subkey(key), self.period, model.vocab_size, traits_of(model).device))

    def score(
        self, key: WatermarkKey, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], fpr: float
    ) -> Score:
        """Sum -ln(1 - u) over the distinct (residue, token) pairs, at the best of all shifts.

        Over random keys the u of distinct pairs are independent and uniform, so the sum over n pairs is Gamma(n, 1) at
        each shift. Published: the same sum over all tokens, repeated pairs included.
        """
        if not len(ids):
            return Score(0, 0, 0.0, 1.0, 1.0, tells=False)
        residues, again = positions % self.period, np.arange(len(ids))
        _, first = np.unique(np.stack([residues, ids]), axis=1, return_index=True)
        distinct = np.isin(again, first)
        all_sums, sums, above = self._sums(key, ids, residues, distinct)
        scored = int(distinct.sum())
        best = int(sums.argmax())
        p_value = min(1.0, self.period * gamma_tail(scored, float(sums[best])))
        return Score(
            scored=scored,
            matched=int(above[best]),
            z_score=(float(sums[best]) - scored) / math.sqrt(scored),
            p_value=p_value,
            p_published=min(1.0, self.period * gamma_tail(len(ids), float(all_sums.max()))),
            tells=p_value <= fpr or self.period * gamma_tail(scored, _TYPICAL * scored) <= fpr,
            shift=best,
            shifts_tested=self.period,
        )

    def _sums(
        self, key: WatermarkKey, ids: np.ndarray, residues: np.ndarray, distinct: np.ndarray
    ) -> tuple[Float[np.ndarray, " shifts"], Float[np.ndarray, " shifts"], Int[np.ndarray, " shifts"]]:
        """Return, for each shift, the sum over all tokens, over the distinct pairs, and how many pairs have u > 1/2."""
        state = states(self.subkey(key), np.arange(self.period))
        parts = []
        for shifts in np.array_split(np.arange(self.period), -(-self.period * len(ids) // _AT_ONCE)):
            bits = uniform_bits(state[(residues + shifts[:, None]) % self.period], ids)
            # u = (top 52 bits + 1/2) / 2^52, exact in a float: neither u nor 1 - u is ever 0
            terms = -np.log((2.0 ** (BITS - 1) - 0.5 - (bits >> 1)) / 2.0 ** (BITS - 1))
            parts.append((terms.sum(1), terms[:, distinct].sum(1), (bits[:, distinct] >> (BITS - 1)).sum(1)))
        every, once, above = (np.concatenate(part) for part in zip(*parts, strict=True))
        return every, once, above


def gamma_tail(count: int, value: float) -> float:
    """P(sum of `count` standard exponentials >= value) = P(Poisson(value) < count); never 0."""
    if value <= 0 or not count:
        return 1.0
    k = np.arange(count)
    log_factorials = np.concatenate([[0.0], np.log(k[1:]).cumsum()])
    logs = k * math.log(value) - value - log_factorials
    peak = logs.max()
    log_p = float(peak + np.log(np.exp(logs - peak).sum()))
    return max(SMALLEST_P, min(1.0, math.exp(log_p) if log_p > -700 else 0.0))
