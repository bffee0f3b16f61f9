"""The exact distribution of a text's matches over random keys: their count under the position rule, or their weight.

It holds the text fixed and lets the key vary, so a p-value is valid for any text chosen without knowledge of the key:
for tables, loops and poems alike, where the z-score's fair coins are not. Knows tokens and residues only.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Complex, Float, Int, Integer

from dgmark.detection.statistics.p_values import p_value_of

# beyond these limits the convolution is slow or leaves the range of a float; the Fourier path has neither limit
_CONVOLVED_SPAN = 4096
_CONVOLVED_BITS = 1000.0
# of a characteristic function, whose largest term is 1
_LEAST_TERM = 1e-22


def residue_counts(
    items: Int[np.ndarray, " n"], residues: Integer[np.ndarray, " n"], modulus: int
) -> Int[np.ndarray, "distinct modulus"]:
    """How often each distinct item is at each residue. An item is a token, or with rotation a token and its segment."""
    # sort (item, residue) as one number: sorting values is several times faster than sorting indices
    ordered = items * modulus + residues
    ordered.sort()
    distinct_items = ordered // modulus
    rank = np.zeros(len(items), dtype=np.int64)
    np.cumsum(distinct_items[1:] != distinct_items[:-1], out=rank[1:])
    distinct = int(rank[-1]) + 1 if len(items) else 0
    flat = np.bincount(rank * modulus + ordered - distinct_items * modulus, minlength=distinct * modulus)
    return flat.reshape(distinct, modulus)


@dataclass(frozen=True)
class MatchNull:
    """The distribution of one fixed text's match count over random keys: `offset` + a sum of independent items.

    Over random keys, an item's group is uniform on the m groups, so the item contributes `counts[r]` matches with r
    uniform. Items with equal contributions form a kind. The groups are taken as independent. A key's groups are exactly
    balanced, so the true tail may be larger by a factor of at most about (N / (N - U))^((m-1)/2) for U distinct tokens
    of N: 1.012 at 200 of 8,192 (docs/statistics-position.md).

    Attributes:
        kinds: (kinds, m) contributions of an item of each kind, ascending, less the smallest of them.
        sizes: (kinds,) number of items of each kind.
        offset: matches that every key gives.
    """

    kinds: Int[np.ndarray, "kinds modulus"]
    sizes: Int[np.ndarray, " kinds"]
    offset: int

    @classmethod
    def of(cls, counts: Int[np.ndarray, "distinct modulus"]) -> "MatchNull":
        """The null of a text from its `residue_counts`."""
        if counts.shape[1] == 2:  # a kind is one difference, so no rows need sorting
            differences = np.abs(counts[:, 0] - counts[:, 1])
            sizes = np.bincount(differences, minlength=1)
            sizes[0] = 0
            present = sizes.nonzero()[0]
            kinds = np.zeros((len(present), 2), dtype=np.int64)
            kinds[:, 1] = present
            return cls(kinds, sizes[present], (int(counts.sum()) - int(differences.sum())) // 2)
        ordered = np.sort(counts, axis=1)
        least = ordered[:, :1]
        kinds, sizes = np.unique(ordered - least, axis=0, return_counts=True)
        varying = kinds[:, -1] > 0
        return cls(kinds[varying], sizes[varying], int(least.sum()))

    @classmethod
    def of_distinct(cls, tokens: int, modulus: int) -> "MatchNull":
        """The null of so many tokens that are all different: a binomial of chance 1/m."""
        return cls(np.eye(1, modulus, modulus - 1, dtype=np.int64), np.array([tokens]), 0)

    @classmethod
    def of_weights(cls, weights: Int[np.ndarray, " pairs"]) -> "MatchNull":
        """The null of the weight of those of some pairs that match: of fair coins with whole weights of at least 0."""
        return cls.of(np.stack([weights, np.zeros_like(weights)], axis=1))

    @cached_property
    def span(self) -> int:
        """The largest minus the smallest match count."""
        return int(self.sizes @ self.kinds[:, -1])

    @property
    def largest(self) -> int:
        """The match count of the luckiest key."""
        return self.offset + self.span

    def tail(self, matched: int) -> float:
        """P(match count >= matched) over random keys; 0 above `largest`.

        The relative error is about 1e-12, however small the tail. A tail below the range of a float is returned as the
        smallest normal float, which errs on the safe side.
        """
        excess = matched - self.offset
        if excess <= 0:
            return 1.0
        if excess > self.span:
            return 0.0
        bits = int(self.sizes.sum()) * math.log2(self.kinds.shape[1])
        if self.span <= _CONVOLVED_SPAN and bits <= _CONVOLVED_BITS:
            return min(1.0, float(self._tails[excess]))
        return p_value_of(self.log_tail(matched))

    @cached_property
    def _tails(self) -> Float[np.ndarray, " values"]:
        """Tail probabilities of 0..span, by convolution. All terms are positive, so no precision is lost."""
        distribution = np.ones(1)
        for kind, size in zip(self.kinds.tolist(), self.sizes.tolist(), strict=True):
            distribution = np.convolve(distribution, _sum_of(tuple(kind), size))
        return np.cumsum(distribution[::-1])[::-1]

    def log_tail(self, matched: int) -> float:
        """Natural logarithm of `tail`, by exponential tilting and the Fourier transform, for any length and any tail.

        The distribution is tilted by exp(theta x) so that its mean is the observed count, computed from its
        characteristic function around that count, where it is largest, and tilted back. All terms are positive, so the
        relative error stays near 1e-12 in the farthest tail. The exponential shift of Keich (2005, "sFFT").
        """
        excess = matched - self.offset
        if excess <= 0:
            return 0.0
        if excess >= self.span:
            top = (self.kinds == self.kinds[:, -1:]).mean(axis=1)
            return float(self.sizes @ np.log(top)) if excess == self.span else -np.inf
        theta = self._tilt(excess)
        weights = np.exp(theta * (self.kinds - self.kinds[:, -1:]))
        log_mgf = self.sizes @ (np.log(weights.mean(axis=1)) + theta * self.kinds[:, -1])
        weights /= weights.sum(axis=1, keepdims=True)
        centre, distribution = self._window(weights, excess if theta > 0 else None)
        values = np.arange(len(distribution)) + centre - len(distribution) // 2
        above = values >= excess
        terms = distribution[above] * np.exp(-theta * (values[above] - excess))
        return float(min(0.0, log_mgf - theta * excess + np.log(terms.sum())))

    def _tilt(self, excess: int) -> float:
        """Theta >= 0 at which the tilted mean is `excess`; 0 if the untilted mean is larger."""

        def mean(theta: float) -> float:
            weights = np.exp(theta * (self.kinds - self.kinds[:, -1:]))
            return float(self.sizes @ ((weights * self.kinds).sum(axis=1) / weights.sum(axis=1)))

        if mean(0.0) >= excess:
            return 0.0
        low, high = 0.0, 1.0
        while mean(high) < excess and high < 64.0:
            low, high = high, 2 * high
        for _ in range(20):  # any tilt is undone exactly; near the count is near enough
            middle = (low + high) / 2
            low, high = (middle, high) if mean(middle) < excess else (low, middle)
        return high

    def _window(
        self, weights: Float[np.ndarray, "kinds modulus"], centre: int | None
    ) -> tuple[int, Float[np.ndarray, " width"]]:
        """The distribution of the sum around `centre` (its mean by default). The mass outside is below 1e-19."""
        mean = (weights * self.kinds).sum(axis=1)
        variance = float(self.sizes @ ((weights * self.kinds**2).sum(axis=1) - mean**2))
        largest = float(self.kinds.max())
        reach = 15 * largest + np.sqrt(225 * largest**2 + 90 * variance)  # Bernstein's inequality
        width = 1 << int(np.ceil(np.log2(min(2 * reach + 2, 2 * self.span + 2))))
        middle = round(float(self.sizes @ mean)) if centre is None else centre
        turns = _turns(width)
        # no item makes a term of the characteristic function larger, and most soon are too small to count
        frequencies, terms = np.arange(width // 2 + 1), np.ones(width // 2 + 1, dtype=np.complex128)
        for kind in np.argsort(-self.sizes):
            others = zip(weights[kind, 1:], self.kinds[kind, 1:].tolist(), strict=True)  # the first contribution is 0
            of_kind = weights[kind, 0] + sum(weight * turns[frequencies * place % width] for weight, place in others)
            terms = terms * _power(of_kind, int(self.sizes[kind]))
            large = np.abs(terms) > _LEAST_TERM
            frequencies, terms = frequencies[large], terms[large]
        transform = np.zeros(width // 2 + 1, dtype=np.complex128)
        transform[frequencies] = terms
        distribution = np.fft.irfft(transform, width)
        shifted = np.roll(distribution, width // 2 - middle % width)
        return middle, np.maximum(shifted, 0.0)


@lru_cache(maxsize=8)
def _turns(width: int) -> Complex[np.ndarray, " width"]:
    """The powers of a root of unity: exp(-2 pi i k / width)."""
    turns: Complex[np.ndarray, " width"] = np.exp(-2j * np.pi / width * np.arange(width))
    return turns


def _power(base: Complex[np.ndarray, " n"], exponent: int) -> Complex[np.ndarray, " n"]:
    """A power of 1 or more by repeated squaring; numpy's own takes logarithms of complex numbers from 100 on."""
    if exponent == 1:
        return base
    half = _power(base, exponent // 2)
    raised: Complex[np.ndarray, " n"] = half * half * base if exponent % 2 else half * half
    return raised


@lru_cache(maxsize=4096)
def _sum_of(kind: tuple[int, ...], size: int) -> Float[np.ndarray, " values"]:
    """Distribution of the sum of `size` items of one kind, by repeated squaring."""
    if size == 1:
        chances = np.bincount(kind) / len(kind)
    else:
        half = _sum_of(kind, size // 2)
        chances = np.convolve(half, half)
        if size % 2:
            chances = np.convolve(chances, _sum_of(kind, 1))
    chances.flags.writeable = False
    return chances
