"""Shares, medians, means and areas under ROC curves, each with a 95 % interval."""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import stats

from dgmark_lab.evaluate.intervals import MIN_TEXTS, Bootstrap, Interval

_AUC_RESAMPLES = 500
_BOOTSTRAP = Bootstrap(method="percentile", resamples=2000)


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


def percent(hits: np.ndarray) -> Estimate:
    """Estimate the share of texts that are hits, in percent."""
    one = share(int(np.count_nonzero(hits)), len(hits))
    return Estimate(100 * one.value, 100 * one.low, 100 * one.high, one.count)


def quantile(values: Float[np.ndarray, " n"], level: float) -> Estimate:
    """Estimate a quantile with a bootstrap interval."""
    return _of(_BOOTSTRAP.interval(lambda drawn: np.quantile(values[drawn], level, axis=-1), len(values)), len(values))


def mean(values: Float[np.ndarray, " n"]) -> Estimate:
    """Estimate the mean with a bootstrap interval."""
    return _of(_BOOTSTRAP.mean(values), len(values))


def perplexity(nats: Float[np.ndarray, " n"], tokens: Float[np.ndarray, " n"]) -> Estimate:
    """Estimate exp(all nats / all tokens), with a bootstrap interval over texts.

    Args:
        nats: negative log-likelihood of each text.
        tokens: judge tokens of each text, at least 1.
    """
    return _of(_BOOTSTRAP.ratio(nats, tokens).map(math.exp), len(nats))


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
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(float(wins.mean()), float(low), float(high), len(marked))


def _of(interval: Interval, count: int) -> Estimate:
    low, high = (math.nan if end is None else end for end in (interval.low, interval.high))
    return Estimate(interval.value, low, high, count)
