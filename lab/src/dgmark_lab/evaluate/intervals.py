"""Bootstrap confidence intervals over texts: percentile and BCa (Efron 1987).

Whole texts are resampled: tokens of one text are not independent observations. Knows nothing about the measure.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from dgmark.errors import SettingsError

Method = Literal["bca", "percentile"]
METHODS = ("bca", "percentile")

# (draws of indexes of texts) -> the statistic of each draw
Statistic = Callable[[Int[np.ndarray, "draws n"]], Float[np.ndarray, " draws"]]

_CHUNK = 4_000_000  # indexes in memory at once

# The range of five values covers the median with probability 1 - 2 / 2**5 = .94; fewer values cannot reach .95.
FEWEST = 5


@dataclass(frozen=True)
class Interval:
    """A value and its confidence interval; `low` and `high` are None for fewer than five texts, which are too few."""

    value: float
    low: float | None
    high: float | None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)

    def map(self, function: Callable[[float], float]) -> "Interval":
        """Return the interval of an increasing function of the value; both methods' intervals transform with it."""
        low = None if self.low is None else function(self.low)
        return Interval(function(self.value), low, None if self.high is None else function(self.high))


@dataclass(frozen=True)
class Bootstrap:
    """How to compute intervals.

    Attributes:
        method: "bca" corrects the percentile interval for bias and skewness; "percentile" does not.
        confidence: probability that the interval covers the true value.
        resamples: number of draws, each of as many texts as the set holds, with replacement.
        seed: seed of the draws, so that the same texts have the same intervals.
    """

    method: Method = "bca"
    confidence: float = 0.95
    resamples: int = 5000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise SettingsError(f"interval method {self.method!r} is not one of: {', '.join(METHODS)}")
        if not 0 < self.confidence < 1:
            raise SettingsError(f"confidence {self.confidence} is not between 0 and 1")
        if self.resamples < 100:
            raise SettingsError(f"{self.resamples} resamples are too few for an interval: take 100 or more")

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
        value = float(statistic(np.arange(n)[None])[0])
        if n < FEWEST:
            return Interval(value, None, None)
        draws = self._draws(statistic, n)
        tail = (1 - self.confidence) / 2
        levels = (tail, 1 - tail)
        if self.method == "bca":
            levels = _bca_levels(value, draws, _jackknife(statistic, n), levels)
        low, high = np.quantile(draws, levels)
        return Interval(value, float(low), float(high))

    def mean(self, values: Float[np.ndarray, " n"]) -> Interval:
        """Compute a mean and its interval."""
        return self.interval(lambda drawn: values[drawn].mean(1), len(values))

    def ratio(self, above: Float[np.ndarray, " n"], below: Float[np.ndarray, " n"]) -> Interval:
        """Compute a ratio of sums over all texts, such as nats over tokens, and its interval."""
        return self.interval(lambda drawn: above[drawn].sum(1) / below[drawn].sum(1), len(above))

    def _draws(self, statistic: Statistic, n: int) -> Float[np.ndarray, " resamples"]:
        rng = np.random.default_rng(self.seed)
        chunk = max(1, _CHUNK // n)
        counts = [min(chunk, self.resamples - start) for start in range(0, self.resamples, chunk)]
        return np.concatenate([statistic(rng.integers(n, size=(count, n))) for count in counts])


def _jackknife(statistic: Statistic, n: int) -> Float[np.ndarray, " n"]:
    """Compute the statistic without each text in turn."""
    chunk = max(1, _CHUNK // n)
    parts = []
    for start in range(0, n, chunk):
        left_out = np.arange(start, min(n, start + chunk))[:, None]
        others = np.arange(n - 1)[None]
        parts.append(statistic(others + (others >= left_out)))
    return np.concatenate(parts)


def _bca_levels(
    value: float,
    draws: Float[np.ndarray, " resamples"],
    jackknife: Float[np.ndarray, " n"],
    levels: tuple[float, float],
) -> tuple[float, float]:
    """Return the quantiles of the draws to use instead of `levels` (Efron 1987, eq. 2.3)."""
    normal = NormalDist()
    below = (float((draws < value).sum()) + float((draws == value).sum()) / 2) / len(draws)
    floor = 0.5 / len(draws)
    bias = normal.inv_cdf(min(max(below, floor), 1 - floor))
    centred = jackknife.mean() - jackknife
    spread = float((centred**2).sum())
    skew = float((centred**3).sum()) / (6 * spread**1.5) if spread > 0 else 0.0

    def corrected(level: float) -> float:
        score = bias + normal.inv_cdf(level)
        return normal.cdf(bias + score / (1 - skew * score))

    return corrected(levels[0]), corrected(levels[1])
