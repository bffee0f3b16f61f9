"""The sum of the weights of those fair coins that show heads: its tail. Knows no text and no rule.

The weights are whole numbers. The coins are tilted until the sum asked for is the expected one, so that small tails
keep their digits; the distribution of tilted coins is the inverse of its characteristic function, which is close to 0
but at few frequencies. The exponential shift of Keich (2005, "sFFT").
"""

import math

import numpy as np
from jaxtyping import Float, Int

# a term below this share of the largest is left out
_LEAST = 1e-22


class WeightedCoins:
    """Fair coins with whole weights of at least 0.

    Args:
        weights: the weight of each coin; coins of weight 0 add nothing.
    """

    def __init__(self, weights: Int[np.ndarray, " coins"]) -> None:
        counts = np.bincount(weights, minlength=1)
        self._values = np.flatnonzero(counts)
        self._values = self._values[self._values > 0]
        self._counts = counts[self._values]
        self.coins, self.total = int(self._counts.sum()), int(self._values @ self._counts)

    def log_tail(self, heads: int) -> float:
        """The logarithm of the chance that the heads have at least this weight, without limits; -inf for none."""
        if heads <= 0:
            return 0.0
        if heads > self.total:
            return -math.inf
        if heads == self.total:
            return -self.coins * math.log(2)
        if 2 * heads <= self.total:  # the shorter tail is the smaller one
            return math.log1p(-math.exp(self.log_tail(self.total - heads + 1)))
        tilt = self._tilt(heads)
        chance = 1 / (1 + np.exp(-tilt * self._values))
        chances = self._tilted_chances(heads, chance)
        # undone: each sum above the one asked for has its chance back
        tail = float(chances @ np.exp(-tilt * np.arange(len(chances))))
        cumulant = float(self._counts @ (np.logaddexp(0, tilt * self._values) - math.log(2)))
        return min(0.0, math.log(tail) + cumulant - tilt * heads)

    def _tilt(self, heads: int) -> float:
        """The tilt at which the expected weight of the heads is `heads`."""
        low, high = 0.0, 64.0  # at which coins show heads but for one in 10^27
        for _ in range(60):
            middle = (low + high) / 2
            expected = self._counts @ (self._values / (1 + np.exp(-middle * self._values)))
            low, high = (middle, high) if expected < heads else (low, middle)
        return low

    def _tilted_chances(self, heads: int, chance: Float[np.ndarray, " values"]) -> Float[np.ndarray, " sums"]:
        """The chances of the sums from `heads` on, if the coins of each weight show heads with a chance of their own.

        Sums are known modulo a period. By Hoeffding's bound, which holds for any such coins, what lies beyond half a
        period from the expected sum is less than `_LEAST`.
        """
        spread = math.sqrt(float(self._counts @ self._values**2) * math.log(2 / _LEAST) / 2)
        period = min(2 * math.ceil(spread) + 2, self.total + 1)
        period += period % 2
        frequencies = np.arange(period // 2 + 1)
        turns = 2 * np.pi / period * np.arange(period)
        cosines, sizes = np.cos(turns), np.zeros(len(frequencies))
        for value, count, p in zip(self._values.tolist(), self._counts.tolist(), chance.tolist(), strict=True):
            inside = np.maximum(1 - 2 * p * (1 - p) * (1 - cosines[frequencies * value % period]), 1e-300)
            sizes += count / 2 * np.log(inside)
        kept = frequencies[sizes > math.log(_LEAST)]
        transform = np.zeros(len(frequencies), dtype=complex)
        angle = turns[kept[:, None] * self._values % period]
        # turned back to where the sum asked for is the first
        logs = np.log(1 - chance + chance * np.exp(-1j * angle)) @ self._counts + 1j * turns[kept * heads % period]
        transform[kept] = np.exp(logs)
        chances = np.maximum(np.fft.irfft(transform, period), 0.0)
        sums = self.total - heads if period > self.total else min(period // 2, self.total - heads)
        return chances[: sums + 1]


def close_log_tails(
    heads: Int[np.ndarray, " sums"],
    total: Int[np.ndarray, " sums"],
    squares: Int[np.ndarray, " sums"],
    fourths: Int[np.ndarray, " sums"],
) -> Float[np.ndarray, " sums"]:
    """About the logarithm of each tail, by coins of one weight that have the same second and fourth cumulant.

    It says which tails are worth computing; no p-value rests on it. 0 where the heads have no more than half of the
    weight.

    Args:
        heads: the weight of the heads.
        total: the weight of all coins.
        squares: the sum of the squares of the weights.
        fourths: the sum of their fourth powers.
    """
    more = 2 * heads > total
    coins = np.where(more, squares.astype(float) ** 2 / np.maximum(fourths, 1), 1)
    weight = np.sqrt(np.where(more, fourths / np.maximum(squares, 1), 1))
    lean = np.clip((2 * heads - total) / weight / coins, 0, 1 - 1e-9)
    rate = np.log1p(-(lean**2)) / 2 + lean * np.arctanh(lean)
    z = np.arctanh(lean) * np.sqrt(coins * (1 - lean**2))
    mills = 2 / (z + np.sqrt(z**2 + 8 / np.pi)) / math.sqrt(2 * np.pi)
    logs: Float[np.ndarray, " sums"] = np.where(more, -coins * rate + np.log(mills), 0.0)
    return logs


def effective_number(weights: Int[np.ndarray, " coins"]) -> float:
    """How many coins of one weight say as much: the square of the sum over the sum of the squares; 0 for no weight."""
    squares = float(np.sum(np.square(weights, dtype=np.float64)))
    return float(weights.sum()) ** 2 / squares if squares else 0.0
