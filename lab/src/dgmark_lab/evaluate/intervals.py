"""Bootstrap confidence intervals over texts, and comparisons of two sets of texts over the same prompts.

Whole texts are resampled: tokens of one text are not independent observations. Pairs are resampled as pairs, so that
the variation between prompts cancels out; a difference is always second minus first.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from dgmark.errors import InputError, SettingsError

# one figure of each text
Figures = Sequence[float] | Float[np.ndarray, " n"]
# (draws of indexes of texts) -> the statistic of each draw, over the last axis
Statistic = Callable[[Int[np.ndarray, "*draws n"]], Any]

_CHUNK = 4_000_000  # indexes in memory at once

# The range of five values covers the median with probability 1 - 2 / 2**5 = .94; fewer values cannot reach .95.
MIN_TEXTS = 5


@dataclass(frozen=True)
class Interval:
    """A value and its 95 % interval; `low` and `high` are None for fewer than five texts, which are too few."""

    value: float
    low: float | None
    high: float | None

    def map(self, function: Callable[[float], float]) -> "Interval":
        """Return the interval of an increasing function of the value; both methods' intervals transform with it."""
        low = None if self.low is None else function(self.low)
        return Interval(function(self.value), low, None if self.high is None else function(self.high))


@dataclass(frozen=True)
class Bootstrap:
    """How to compute intervals.

    Attributes:
        method: "BCa" corrects the percentile interval for bias and skewness (Efron 1987); "percentile" does not.
        resamples: number of draws, each of as many texts as the set holds, with replacement. The same texts have the
            same draws.
    """

    method: Literal["BCa", "percentile"] = "BCa"
    resamples: int = 5000

    def interval(self, statistic: Statistic, n: int) -> Interval:
        """Compute a statistic of n texts and its interval.

        Args:
            statistic: function from indexes of texts, many draws at once, to the statistic of each draw.
            n: number of texts.

        Raises:
            SettingsError: n is less than 1.
        """
        if n < 1:
            raise SettingsError("there is no text to resample")
        value = float(statistic(np.arange(n)))
        if n < MIN_TEXTS:
            return Interval(value, None, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what does not vary is seen to below
            found = stats.bootstrap(
                (np.arange(n),),
                lambda drawn, axis: statistic(drawn),  # noqa: ARG005 (the axis is the last one)
                n_resamples=self.resamples,
                batch=max(1, _CHUNK // n),
                vectorized=True,
                method=self.method,
                rng=np.random.default_rng(0),
            )
        low, high = map(float, found.confidence_interval)
        if isnan(low):  # the statistic does not vary
            low, high = float(found.bootstrap_distribution.min()), float(found.bootstrap_distribution.max())
        return Interval(value, low, high)

    def mean(self, values: Float[np.ndarray, " n"]) -> Interval:
        """Compute a mean and its interval."""
        return self.interval(lambda drawn: values[drawn].mean(-1), len(values))

    def ratio(self, above: Float[np.ndarray, " n"], below: Float[np.ndarray, " n"]) -> Interval:
        """Compute a ratio of sums over all texts, such as nats over tokens, and its interval."""
        return self.interval(lambda drawn: above[drawn].sum(-1) / below[drawn].sum(-1), len(above))


@dataclass(frozen=True)
class Comparison:
    """A comparison of one figure over paired texts.

    Attributes:
        pairs: number of pairs.
        first: mean of the first set.
        second: mean of the second set.
        difference: difference of the means, second minus first.
        larger: number of pairs whose second figure is larger; pairs in neither count are ties.
        smaller: number of pairs whose second figure is smaller.
        sign_p_value: two-sided exact sign test: the probability of a split at least this uneven if both were equally
            likely. Ties are left out; 1.0 if all pairs are ties.
    """

    pairs: int
    first: Interval
    second: Interval
    difference: Interval
    larger: int
    smaller: int
    sign_p_value: float


def compare_paired(first: Figures, second: Figures) -> Comparison:
    """Compare two sets of one figure each, pair by pair.

    Args:
        first: figures in the order of the prompts.
        second: the figures of the other set.

    Raises:
        InputError: there is no pair, the sets differ in length, or a figure is not finite.
    """
    bootstrap = Bootstrap()
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if len(one) != len(two) or not len(one):
        raise InputError(f"the sets hold {len(one)} and {len(two)} figures: each pair needs one of both")
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        raise InputError("a figure is not finite: leave texts without a figure out of both sets")
    larger, smaller = int((two > one).sum()), int((two < one).sum())
    split = larger + smaller
    return Comparison(
        pairs=len(one),
        first=bootstrap.mean(one),
        second=bootstrap.mean(two),
        difference=bootstrap.mean(two - one),
        larger=larger,
        smaller=smaller,
        sign_p_value=float(stats.binomtest(larger, split).pvalue) if split else 1.0,
    )
