"""The exact test: the match count at one shift against its exact null. Allows for a crop, not for other edits.

The null holds the text fixed and lets the key vary, so the p-value is valid for any text chosen without knowledge of
the key: for tables, loops and poems alike, where the z-score's fair coins are not. Knows tokens, positions and residues
only. Takes the place of the paper's global z-test (section 3.5, Eq. 1), whose z-score is here for comparison, as is
its statistic of sliding windows.

Alpha spending: how the tests of one text share the false-positive rate, and what each p-value pays.

A test with share s reports p / s. If the shares add up to at most 1, the smallest of the reported p-values is itself
a valid p-value (the union bound; weighted Bonferroni). The shares, from the outside in:

    1 / keys              each key of a keyring
      1 / 2               the text as it is, and with disguises and hard wrapping undone, if it has any
        1 / period        each phase; with rotation UNCROPPED for the whole text, the rest for its crops

All p-values also pay for the balance of the group tables (`balance_of`). Each of the paper's tests has a threshold of
its own.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int, Integer

from dgmark.detection.result import Limit, Phase
from dgmark.watermark.groups import GroupTables, WatermarkSpec

# no p-value is smaller: the smallest normal float
MIN_P = float(np.finfo(np.float64).tiny)
UNCROPPED = 0.5
DEFAULT_WINDOW = 8
# the first tokens of a text, from which a rotating key's crop is found; more would not find it better
_SEARCHED = 4096
# Beyond these limits the convolution is slow or leaves the range of a float; the Fourier path has neither limit.
_CONVOLVED_SPAN = 4096
_CONVOLVED_BITS = 1000.0


def adjusted_p(p_value: float, share: float) -> float:
    """The p-value that a test with this share of the rate reports."""
    return min(1.0, max(MIN_P, p_value / share))


def bonferroni_p(p_value: float, tests: float) -> float:
    """The smallest p-value of several tests, adjusted for their number."""
    return min(1.0, tests * p_value)


def balance_of(spec: WatermarkSpec, distinct: Iterable[int]) -> float:
    """How much likelier balanced group tables can make any event than independent groups do.

    A table of N ids gives each group N / m of them (one more or less), so the groups of different tokens are not quite
    independent. U tokens have any particular groups with at most this factor times the chance m^-U; see
    docs/statistics.md. All p-values pay for it.

    Args:
        spec: the key's spec.
        distinct: how many distinct tokens each segment has. Segments have independent tables.
    """
    log, size, modulus = 0.0, spec.table_size, spec.modulus
    for tokens in distinct:
        # likeliest are the groups that leave equally many ids over in every group
        left = size - tokens
        for group in range(modulus):
            log += _log_factorial(len(range(group, size, modulus)))
            log -= _log_factorial(len(range(group, left, modulus)))
        log += tokens * math.log(modulus) - _log_factorial(size) + _log_factorial(left)
    return math.exp(min(700.0, max(0.0, log)))


def _log_factorial(number: int) -> float:
    return math.lgamma(number + 1)


def z_score(matched: int, scored: int, modulus: int) -> float:
    """Match count standardised under independent coins of chance 1/m (paper Eq. 1 at m = 2); 0 for 0 tokens."""
    if not scored:
        return 0.0
    chance = 1 / modulus
    return (matched - scored * chance) / math.sqrt(scored * chance * (1 - chance))


def window_statistic(
    matched: Bool[np.ndarray, "n *keys"], modulus: int, window: int = DEFAULT_WINDOW
) -> Float[np.ndarray, " *keys"]:
    """The paper's z_win: the mean squared z-score of the n - window + 1 windows; 1, its mean under fair coins, if none.

    Args:
        matched: whether each token matches.
        modulus: number of groups m.
        window: tokens of each window.
    """
    if len(matched) < window:
        return np.ones(matched.shape[1:])
    counts = np.cumsum(matched, axis=0, dtype=np.int64)
    sums = counts[window - 1 :].copy()
    sums[1:] -= counts[:-window]
    chance = 1 / modulus
    scores = (sums - window * chance) / math.sqrt(window * chance * (1 - chance))
    return np.asarray(np.square(scores).sum(axis=0) / len(scores))


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
    of N: 1.012 at 200 of 8,192 (docs/statistics.md).

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
        return min(1.0, max(MIN_P, float(np.exp(self.log_tail(matched)))))

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
        relative error stays near 1e-12 in the farthest tail.
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
        for _ in range(50):
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
        frequencies = np.exp(-2j * np.pi * np.arange(width // 2 + 1) / width)
        transform = np.ones(width // 2 + 1, dtype=np.complex128)
        for kind, weight, size in zip(self.kinds, weights, self.sizes, strict=True):
            one = sum(w * frequencies**x for w, x in zip(weight, kind.tolist(), strict=True))
            transform *= one ** int(size)
        distribution = np.fft.irfft(transform, width)
        shifted = np.roll(distribution, width // 2 - middle % width)
        return middle, np.maximum(shifted, 0.0)


@lru_cache(maxsize=4096)
def _sum_of(kind: tuple[int, ...], size: int) -> Float[np.ndarray, " values"]:
    """Distribution of the sum of `size` items of one kind, by repeated squaring."""
    if size == 1:
        one = np.bincount(kind) / len(kind)
    else:
        half = _sum_of(kind, size // 2)
        one = np.convolve(half, half)
        if size % 2:
            one = np.convolve(one, _sum_of(kind, 1))
    one.flags.writeable = False
    return one


@dataclass(frozen=True)
class Hypothesis:
    """The hypothesis that the text is marked and `shift` tokens are missing at its front.

    Attributes:
        shift: tokens missing at the front (modulo the code's period without rotation).
        matched: number of matches at this shift.
        weight: the hypothesis's share of the false-positive rate.
        null: the null of the match count at this shift.
        balance: what the p-value pays for the balance of the key's group tables.
    """

    shift: int
    matched: int
    weight: float
    null: MatchNull
    balance: float = 1.0

    @cached_property
    def p_value(self) -> float:
        """Chance that a random key matches as well at any of the shifts tried."""
        return self.p_value_of(self.matched)

    def p_value_of(self, matched: int) -> float:
        """The p-value if this many tokens matched."""
        return adjusted_p(self.balance * self.null.tail(matched), self.weight)

    def limit(self, scored: int, match: float, share: float, level: float) -> Limit | None:
        """Why this test would not find a typical mark in a text like this; None if it would.

        Args:
            scored: number of scored tokens.
            match: the share of them that match in a typical mark.
            share: the test's share of the rate.
            level: the p-value to reach.
        """
        if not scored:
            return "empty"
        modulus = self.null.kinds.shape[1]
        typical = math.ceil(scored * match)
        p = adjusted_p(self.p_value_of(min(typical, self.null.largest)), share)
        if p <= level:
            return None
        different = replace(self, null=MatchNull.of(np.eye(1, modulus, dtype=np.int64).repeat(scored, axis=0)))
        p_different = adjusted_p(different.p_value_of(min(typical, different.null.largest)), share)
        return "repetitive" if p_different <= level else "short"


@dataclass(frozen=True)
class ExactTest:
    """The exact test of one key.

    Attributes:
        tables: the key's groups and position code.
        phase: "any" allows for tokens missing at the front and pays for it; "start" takes the text as complete.
        max_crop: with a rotating key and phase "any", the largest number of tokens that may be missing.
    """

    tables: GroupTables
    phase: Phase
    max_crop: int

    @property
    def shifts_tested(self) -> int:
        """How many shifts are tried."""
        if self.phase == "start":
            return 1
        return self.max_crop + 1 if self.tables.spec.rotation else self.tables.spec.period

    def hypotheses(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> list[Hypothesis]:
        """The likeliest hypotheses. With rotation the first one is the uncropped text."""
        spec = self.tables.spec
        if self.phase == "start" or (spec.rotation and not self.max_crop):
            return [self._hypothesis(ids, positions, 0, 1.0)]
        # Any one shift may be picked after looking at the text, as each has its own share of the rate.
        if not spec.rotation:
            best = int(self._matched_by_phase(ids, positions).argmax())
            return [self._hypothesis(ids, positions, best, 1 / spec.period)]
        crop = self._likeliest_crop(ids[:_SEARCHED], positions[:_SEARCHED])
        return [
            self._hypothesis(ids, positions, 0, UNCROPPED),
            self._hypothesis(ids, positions, crop, (1 - UNCROPPED) / self.max_crop),
        ]

    def _hypothesis(
        self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], shift: int, weight: float
    ) -> Hypothesis:
        spec, at = self.tables.spec, positions + shift
        matched = int(np.count_nonzero(self.tables.matching(ids, at)))
        items = spec.segment(at) * spec.table_size + ids
        counts = residue_counts(items, self.tables.residues(at), spec.modulus)
        distinct = [len(counts)]
        if spec.rotation:
            distinct = np.unique(np.unique(items) // spec.table_size, return_counts=True)[1].tolist()
        return Hypothesis(shift, matched, weight, MatchNull.of(counts), balance_of(spec, distinct))

    def _matched_by_phase(
        self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]
    ) -> Int[np.ndarray, " period"]:
        """Matches if the first token's position were 0, 1, ... modulo the code's period."""
        spec, tables = self.tables.spec, self.tables
        places = positions % spec.period * spec.modulus + tables.groups_in(ids, 0)
        counts = np.bincount(places, minlength=spec.period * spec.modulus).reshape(spec.period, spec.modulus)
        matched: Int[np.ndarray, " period"] = counts[np.arange(spec.period), tables.shifted_codes].sum(axis=1)
        return matched

    def _likeliest_crop(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> int:
        """The shift in 1..max_crop at which the most tokens match a rotating key."""
        spec, tables = self.tables.spec, self.tables
        distinct, token = np.unique(ids, return_inverse=True)
        last = int(positions.max(initial=0)) + self.max_crop
        groups = np.stack([tables.groups_in(distinct, segment) for segment in range(last // spec.rotation + 1)])
        counts = [
            np.count_nonzero(groups[at // spec.rotation, token] == tables.residues(at))
            for at in (positions + shift for shift in range(1, self.max_crop + 1))
        ]
        return 1 + int(np.argmax(counts))
