"""Shares, medians, means, ratios and areas under ROC curves, each with a 95 % interval; two sets of texts, compared.

Whole texts are resampled: tokens of one text are not independent observations. Pairs are resampled as pairs, so that
the variation between prompts cancels out.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from scipy import stats

from dgmark.errors import InputError

# one figure of each text
Figures = Float[np.ndarray, " n"]

# The range of five values covers the median with probability 1 - 2 / 2**5 = .94; fewer values cannot reach .95.
MIN_TEXTS = 5
_RESAMPLES, _AUC_RESAMPLES = 2000, 500
_AT_ONCE = 4_000_000  # figures in memory at once


@dataclass(frozen=True)
class Estimate:
    """A value, its 95 % interval (NaN if there are too few texts), and the number of observations."""

    value: float
    low: float = math.nan
    high: float = math.nan
    count: int = 0


def share(hits: int, count: int) -> Estimate:
    """Estimate hits / count with Wilson's interval, which is valid near 0 and 1.

    Raises:
        ValueError: there is no observation.
    """
    if not count:
        raise ValueError("a share needs at least one observation")
    interval = stats.binomtest(hits, count).proportion_ci(method="wilson")
    return Estimate(hits / count, float(interval.low), float(interval.high), count)


def percent(hits: Bool[np.ndarray, " n"] | Figures) -> Estimate:
    """Estimate the share of true values, in percent."""
    one = share(int(np.count_nonzero(hits)), len(hits))
    return Estimate(100 * one.value, 100 * one.low, 100 * one.high, one.count)


def mean(values: Figures) -> Estimate:
    """Estimate the mean with a bootstrap interval."""
    return _bootstrap(np.mean, values)


def quantile(values: Figures, level: float) -> Estimate:
    """Estimate a quantile with a bootstrap interval."""
    return _bootstrap(lambda drawn, axis: np.quantile(drawn, level, axis=axis), values)


def ratio(above: Figures, below: Figures) -> Estimate:
    """Estimate a ratio of sums over all texts, such as nats over tokens, with a bootstrap interval."""
    return _bootstrap(lambda up, down, axis: up.sum(axis) / down.sum(axis), above, below)


def perplexity(nats: Figures, tokens: Figures) -> Estimate:
    """Estimate exp(all nats / all tokens), with a bootstrap interval over texts.

    Args:
        nats: negative log-likelihood of each text.
        tokens: judge tokens of each text, at least 1.
    """
    one = ratio(nats, tokens)
    return Estimate(math.exp(one.value), math.exp(one.low), math.exp(one.high), one.count)


def auc(marked: Float[np.ndarray, " n"], unmarked: Float[np.ndarray, " m"]) -> Estimate:
    """Estimate the probability that a marked text scores higher than an unmarked one (ties: half), with an interval.

    The bootstrap resamples both sets. If no unmarked text reaches a marked one, the interval is a point, and only the
    number of texts shows how certain that is.
    """
    # 1, 1/2 or 0 for each pair, if the marked text scores higher, the same, or lower
    wins = (marked[:, None] > unmarked) + 0.5 * (marked[:, None] == unmarked)
    if min(wins.shape) < MIN_TEXTS:
        return Estimate(float(wins.mean()), count=len(marked))
    rng = np.random.default_rng(0)
    draws = [
        wins[rng.integers(len(marked), size=len(marked))][:, rng.integers(len(unmarked), size=len(unmarked))].mean()
        for _ in range(_AUC_RESAMPLES)
    ]
    return interval(float(wins.mean()), np.array(draws), len(marked))


def interval(value: float, draws: Figures, count: int) -> Estimate:
    """An estimate with the interval of its draws, if there are enough texts."""
    if count < MIN_TEXTS:
        return Estimate(value, count=count)
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(value, float(low), float(high), count)


def _bootstrap(statistic: Callable[..., Any], *figures: Figures) -> Estimate:
    """Estimate a statistic of figures of the same texts; the same number of texts has the same draws."""
    value, count = float(statistic(*figures, axis=-1)), len(figures[0])
    if count < MIN_TEXTS:
        return Estimate(value, count=count)
    low, high = stats.bootstrap(
        figures,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=_RESAMPLES,
        batch=max(1, _AT_ONCE // count),
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return Estimate(value, float(low), float(high), count)


@dataclass(frozen=True)
class Comparison:
    """A comparison of one figure over paired texts.

    Attributes:
        pairs: number of pairs.
        difference: difference of the means, second minus first.
        larger: number of pairs whose second figure is larger; pairs in neither count are ties.
        smaller: number of pairs whose second figure is smaller.
        sign_p_value: two-sided exact sign test: the probability of a split at least this uneven if both were equally
            likely. Ties are left out; 1.0 if all pairs are ties.
    """

    pairs: int
    difference: Estimate
    larger: int
    smaller: int
    sign_p_value: float


def compare_paired(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Compare two sets of one figure each, pair by pair.

    Raises:
        InputError: there is no pair.
    """
    if not first or len(first) != len(second):
        raise InputError("no pair of texts has the figure that is to be compared")
    difference = np.array(second) - np.array(first)
    larger, smaller = int((difference > 0).sum()), int((difference < 0).sum())
    split = larger + smaller
    p_value = float(stats.binomtest(larger, split).pvalue) if split else 1.0
    return Comparison(len(difference), mean(difference), larger, smaller, p_value)
