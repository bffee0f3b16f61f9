"""Gumbel-max with noise seeded by the position (Bagchi et al. 2025): no bias; each token keeps its distribution."""

import math

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammaincc

from dgmark.detection.statistics.p_values import MIN_P
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.prf import BITS, HashKey, states, uniform_bits
from dgmark_lab.baselines.published import Ids, PublishedTest, Score
from dgmark_lab.baselines.specs import GumbelSpec

# (shift, token) pairs that are hashed at once; mean score per token of a typical mark (chance: 1)
_AT_ONCE, _TYPICAL = 2**20, 2.0


class GumbelTest(PublishedTest):
    """The test of Gumbel-max."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Sum -ln(1 - u) over the distinct (residue, token) pairs, at the best of all shifts.

        Over random keys the u of distinct pairs are independent and uniform, so the sum over n pairs is Gamma(n, 1) at
        each shift. Published: the same sum over all tokens, repeated pairs included.
        """
        period = spec_as(GumbelSpec, key).period
        residues, again = positions % period, np.arange(len(ids))
        _, first = np.unique(np.stack([residues, ids]), axis=1, return_index=True)
        distinct = np.isin(again, first)
        all_sums, sums, above = _sums(key, period, ids, residues, distinct)
        scored = int(distinct.sum())
        best = int(sums.argmax())
        p_value = _p_value(period, scored, float(sums[best]))
        return Score(
            scored=scored,
            matched=int(above[best]),
            z_score=(float(sums[best]) - scored) / math.sqrt(scored),
            p_value=p_value,
            p_published=_p_value(period, len(ids), float(all_sums.max())),
            detectable=p_value <= fpr or _p_value(period, scored, _TYPICAL * scored) <= fpr,
            shift=best,
            shifts_tested=period,
        )


def _p_value(period: int, count: int, value: float) -> float:
    """P(some shift's sum of `count` standard exponentials >= value), at most; never 0."""
    return min(1.0, period * max(MIN_P, float(gammaincc(count, value))))


def _sums(
    key: WatermarkKey, period: int, ids: np.ndarray, residues: np.ndarray, distinct: np.ndarray
) -> tuple[Float[np.ndarray, " shifts"], Float[np.ndarray, " shifts"], Int[np.ndarray, " shifts"]]:
    """Return, for each shift, the sum over all tokens, over the distinct pairs, and how many pairs have u > 1/2."""
    state = states(HashKey.of(key, "gumbel"), np.arange(period))
    parts = []
    for shifts in np.array_split(np.arange(period), -(-period * len(ids) // _AT_ONCE)):
        bits = uniform_bits(state[(residues + shifts[:, None]) % period], ids)
        # u = (top 52 bits + 1/2) / 2^52, exact in a float: neither u nor 1 - u is ever 0
        terms = -np.log((2.0 ** (BITS - 1) - 0.5 - (bits >> 1)) / 2.0 ** (BITS - 1))
        parts.append((terms.sum(1), terms[:, distinct].sum(1), (bits[:, distinct] >> (BITS - 1)).sum(1)))
    every, once, above = (np.concatenate(part) for part in zip(*parts, strict=True))
    return every, once, above
