"""What the matching pairs of a text say: counted, each as much as another, or weighted by the choice they had.

Over random keys the bits of distinct pairs are independent fair coins, for any text, so that each count has an exact
binomial tail, and each weight of matching pairs an exact tail as well. Both give the parts of a text that may pass,
each with its p-value. Ours.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmark.detection.reading.pair_weights import Surprisal, digest_of, weights_of
from dgmark.detection.results.figures import TestKind, TokenSpan, WeightFigures
from dgmark.detection.statistics.match_null import MatchNull
from dgmark.detection.statistics.p_values import MIN_P, adjusted_p, log_bounds, log_tail, p_value_of, z_score
from dgmark.detection.statistics.pairs import DistinctPairs
from dgmark.watermark.bigram import PairHashes, sums_by_subkey

Matches = Bool[np.ndarray, " pairs"]
Logs = Float[np.ndarray, " parts"]

# A weighted tail is computed for parts whose estimate is as good as the best one, or the level, but for so many nats
# and this share; the estimates are off by less. Of more than so many parts the best by estimate.
_SLACK_NATS, _SLACK_SHARE = 1.0, 0.08
_MOST_TAILS = 32


class Evidence:
    """What the matching pairs of a text say, all of which count alike.

    Attributes:
        pairs: the distinct pairs of the text.
        values: how much each of them counts, as a whole number.
    """

    kind: TestKind = "count"

    def __init__(self, pairs: DistinctPairs) -> None:
        self.pairs, self.values = pairs, np.ones(len(pairs), dtype=np.int64)

    def best(self, matches: Matches) -> TokenSpan:
        """The part with the smallest p-value, or the whole text."""
        matching, lower, upper = self._bounds(matches)
        return min(self._spans(matching, lower <= upper.min()), key=lambda span: span.log_p)

    def passing(self, matches: Matches, level: float) -> Iterator[TokenSpan]:
        """The parts with a p-value of at most `level`."""
        matching, lower, _ = self._bounds(matches)
        return (span for span in self._spans(matching, lower <= _log_of(level)) if span.p_value <= level)

    def _bounds(self, matches: Matches) -> tuple[Int[np.ndarray, " parts"], Logs, Logs]:
        """How many pairs of each part match, and bounds of the logarithm of its p-value."""
        parts = self.pairs.parts
        matching = parts.counts(matches[self.pairs.number])
        lower, upper = (bound - np.log(parts.share) for bound in log_bounds(matching, parts.pairs))
        return matching, lower, upper

    def _spans(self, matching: Int[np.ndarray, " parts"], chosen: Bool[np.ndarray, " parts"]) -> Iterator[TokenSpan]:
        """The whole text, and the chosen parts of which most pairs match."""
        parts = self.pairs.parts
        chosen = chosen & (2 * matching > parts.pairs)
        chosen[0] = True
        columns = (parts.first, parts.last, matching, parts.pairs, parts.share)
        for first, last, matched, pairs, share in zip(*(column[chosen].tolist() for column in columns), strict=True):
            yield _span(first, last, log_tail(matched, pairs), share)

    def z_score(self, matches: Matches) -> float:
        """The value of the matching pairs, standardised under fair coins; 0 for none."""
        return z_score(int(matches.sum()), len(self.pairs), 2)

    def equal_pairs(self) -> tuple[int, int]:
        """How many pairs of one value say as much as those of the text, and as if none of them were repeated."""
        return len(self.pairs), len(self.pairs.number)

    def sums_by_subkey(
        self, hashes: PairHashes, subkeys: int, which: Int[np.ndarray, " some"], sizes: Any = None
    ) -> Int[np.ndarray, "parts subkeys"]:
        """The value of the matching pairs under each sub-key; see `dgmark.watermark.bigram.sums_by_subkey`."""
        weights = None if self.kind == "count" else self.values[which]  # without weights, it adds up bits
        return sums_by_subkey(hashes, subkeys, which, sizes, weights)

    def log_ratios(
        self, heads: Int[np.ndarray, " subkeys"], inside: Int[np.ndarray, " some"], strengths: Sequence[float]
    ) -> list[Float[np.ndarray, " subkeys"]]:
        """The log likelihood ratios of a mark of each strength to none: of coins with chances (1 + strength) / 2.

        `heads` is the value of the matching pairs under each sub-key; `inside` says which of the distinct pairs are
        looked at.
        """
        return [heads * math.log1p(s) + (len(inside) - heads) * math.log1p(-s) for s in strengths]

    def figures(self, matches: Matches) -> WeightFigures | None:  # noqa: ARG002
        """What a language model's weights say; None without one."""
        return None


class WeightedEvidence(Evidence):
    """Each pair counts by how much choice its tokens had, as a language model sees the text."""

    kind: TestKind = "weighted"

    def __init__(self, pairs: DistinctPairs, surprisal: Surprisal) -> None:
        self.pairs, self._surprisal = pairs, surprisal
        self.values = weights_of(surprisal.nats, pairs.left[pairs.first], pairs.right[pairs.first])

    def best(self, matches: Matches) -> TokenSpan:
        """The part with the smallest p-value, or the whole text, among the best by estimate."""
        heads, estimates = self._estimates(matches)
        close = np.union1d(_close(estimates, float(estimates.min()))[:_MOST_TAILS], [0])
        return min((self._weighed(part, heads) for part in close.tolist()), key=lambda span: span.log_p)

    def passing(self, matches: Matches, level: float) -> Iterator[TokenSpan]:
        """The parts with a p-value of at most `level`; of those that overlap, only the best by estimate."""
        heads, estimates = self._estimates(matches)
        parts, pairs, order = self.pairs.parts, self.pairs, _close(estimates, _log_of(level))
        if pairs.any_gap:
            gaps = [pairs.has_gap(int(parts.first[part]), int(parts.last[part])) for part in order]
            order = order[np.argsort(gaps, kind="stable")]
        free = np.ones(len(pairs.tokens.ids), dtype=bool)
        for part in order.tolist():
            inside = slice(int(parts.first[part]), int(parts.last[part]))
            if free[inside].all() and (span := self._weighed(part, heads)).p_value <= level:
                free[inside] = False
                yield span

    def _estimates(self, matches: Matches) -> tuple[Int[np.ndarray, " parts"], Logs]:
        """The weight of the matching pairs of each part, and about the logarithm of its p-value."""
        parts, (total, squares, fourths) = self.pairs.parts, self._powers
        heads = parts.sums((self.values * matches)[self.pairs.number])
        return heads, close_log_tails(heads, total, squares, fourths) - np.log(parts.share)

    def _weighed(self, part: int, heads: Int[np.ndarray, " parts"]) -> TokenSpan:
        """A part with its exact p-value, from the weight of the matching pairs of each part."""
        parts = self.pairs.parts
        first, last = int(parts.first[part]), int(parts.last[part])
        null = self._whole if part == 0 else MatchNull.of_weights(self.values[self.pairs.within(first, last)])
        return _span(first, last, null.log_tail(int(heads[part])), float(parts.share[part]))

    @cached_property
    def _powers(self) -> tuple[Int[np.ndarray, " parts"], ...]:
        """The sums of the weights of the pairs of each part, of their squares, and of their fourth powers."""
        return tuple(self.pairs.parts.sums((self.values**power)[self.pairs.number]) for power in (1, 2, 4))

    @cached_property
    def _whole(self) -> MatchNull:
        return MatchNull.of_weights(self.values)

    def z_score(self, matches: Matches) -> float:
        """The weight of the matching pairs, standardised under fair coins; 0 for no weight."""
        squares = int(self.values @ self.values)
        excess = 2 * int(self.values[matches].sum()) - int(self.values.sum())
        return excess / math.sqrt(squares) if squares else 0.0

    def equal_pairs(self) -> tuple[int, int]:
        """The effective numbers of the weights."""
        return int(effective_number(self.values)), int(effective_number(self.values[self.pairs.number]))

    def log_ratios(
        self, heads: Int[np.ndarray, " subkeys"], inside: Int[np.ndarray, " some"], strengths: Sequence[float]
    ) -> list[Float[np.ndarray, " subkeys"]]:
        """Those of coins of which the odds of heads grow with their weight."""
        weights = self.values[inside]
        mean = max(float(weights.mean()), 1e-9) if len(weights) else 1.0
        log_odds = [2 * math.atanh(s) / mean for s in strengths]  # of a weight of 1
        return [heads * log - float((np.logaddexp(0, log * weights) - math.log(2)).sum()) for log in log_odds]

    def figures(self, matches: Matches) -> WeightFigures:
        """The weights of all pairs and of those that match, and the model that they are from."""
        return WeightFigures(
            self._surprisal.model,
            self._surprisal.fingerprint,
            digest_of(self.pairs.words, self.values),
            int(self.values.sum()),
            int(self.values[matches].sum()),
            effective_number(self.values),
        )


def evidence_of(pairs: DistinctPairs) -> Evidence:
    """The evidence of a text: weighted if a language model has read its tokens, else counted."""
    surprisal = pairs.tokens.surprisal
    return Evidence(pairs) if surprisal is None else WeightedEvidence(pairs, surprisal)


def _log_of(level: float) -> float:
    return math.log(max(level, MIN_P))


def _close(estimates: Logs, wanted: float) -> Int[np.ndarray, " some"]:
    """The parts whose estimates are about as good as wanted, or better, the best first."""
    order = np.argsort(np.round(estimates, 9), kind="stable")
    return order[estimates[order] <= wanted + _SLACK_NATS + _SLACK_SHARE * abs(wanted)]


def _span(first: int, last: int, log: float, share: float) -> TokenSpan:
    return TokenSpan(first, last, adjusted_p(p_value_of(log), share), log - math.log(share))


def close_log_tails(
    heads: Int[np.ndarray, " sums"],
    total: Int[np.ndarray, " sums"],
    squares: Int[np.ndarray, " sums"],
    fourths: Int[np.ndarray, " sums"],
) -> Float[np.ndarray, " sums"]:
    """About the logarithm of each tail, by coins of one weight that have the same second and fourth cumulant.

    It says which tails are worth computing; no p-value rests on it. `heads` and `total` are the weights of the heads
    and of all coins, `squares` and `fourths` the sums of the squares and of the fourth powers of the weights. 0 where
    the heads have no more than half of the weight.
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
