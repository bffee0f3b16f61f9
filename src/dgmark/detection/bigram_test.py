"""The test of the bigram rule: how many distinct pairs of a text match, in the whole text and in each of its parts.

Over random keys the bits of distinct pairs are independent fair coins, for any text, so each count has an exact
binomial tail. The whole text has half of the false-positive rate, and the parts share the other half. The parts that
pass are the spans: they and the verdict come from one test, and their p-values depend on no rate. Knows tokens and
positions only. Ours; a scan on multi-scale grids as in Walther (2010).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmark.detection.exact_test import MIN_P, adjusted_p, bonferroni_p
from dgmark.detection.reader import ScoredIds
from dgmark.detection.result import Limit
from dgmark.watermark.bigrams import count_by_subkey, matching_pairs, pair_words, pairs_of
from dgmark.watermark.groups import check_ids
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.strength import typical_match

WHOLE_SHARE = 0.5
# A part begins and ends at multiples of 8, 16, 32, ... tokens; it is up to 8 such units long, and on all grids but the
# first more than 4.
UNIT, UNITS, FEWEST = 8, 8, 5
# strengths of the mark that the confidence in a sub-key averages over: twice the share of matching pairs, less 1
STRENGTHS = (0.1, 0.3, 0.5)
# sub-keys are ranked by the counts of runs of blocks of this many tokens
_BLOCK = 32
# more than the rounding of the bounds of a tail
_SLACK = 1e-9
_BEYOND = np.array(
    [0.0, *(math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - math.log(2 * math.pi) / 2 for n in range(1, 40))]
)
# sub-keys whose spans are looked for
_MAX_SEARCHED = 16


@dataclass(frozen=True)
class TokenSpan:
    """Scored tokens [first, last) that carry the mark, and the p-value of this part, which pays for all parts.

    Attributes:
        first: the first token.
        last: the token behind the last one.
        p_value: the p-value, at least the smallest normal float.
        log_p: the logarithm of the tail over the part's share, without limits and before any factor for sub-keys; it
            ranks the parts, also those of a long text whose p-values are the smallest float.
    """

    first: int
    last: int
    p_value: float
    log_p: float


def binomial_tail(matched: int, pairs: int) -> float:
    """P(at least `matched` of `pairs` fair coins), at least the smallest normal float."""
    return _limited(_log_tail(matched, pairs))


def _limited(log: float) -> float:
    return max(MIN_P, min(1.0, math.exp(log)))


def _log_tail(matched: int, pairs: int) -> float:
    if matched <= 0:
        return 0.0
    if 2 * matched < pairs:  # sum the shorter tail
        return math.log1p(-math.exp(_log_tail(pairs - matched + 1, pairs)))
    rest = np.arange(matched, pairs)
    terms = 1.0 + float(np.cumprod((pairs - rest) / (rest + 1.0)).sum())
    (log,) = _log_chances(np.array([matched]), np.array([pairs])).tolist()
    return float(log + math.log(terms))


def _log_chances(matched: Int[np.ndarray, " parts"], pairs: Int[np.ndarray, " parts"]) -> Float[np.ndarray, " parts"]:
    """The logarithm of the chance of just `matched` of `pairs` fair coins.

    Logarithms of factorials would lose their digits at millions of pairs; the saddle-point form of Loader (2000) does
    not.
    """
    product, some = np.maximum(matched * (pairs - matched), 1), np.maximum(pairs, 1)
    lean = np.where(product > 1, (2 * matched - pairs) / some, 0)
    log = (np.log(some / (2 * np.pi * product)) - pairs * (np.log1p(-(lean**2)) + 2 * lean * np.arctanh(lean))) / 2
    log += _beyond_stirling(pairs) - _beyond_stirling(matched) - _beyond_stirling(pairs - matched)
    chances: Float[np.ndarray, " parts"] = np.where((matched == 0) | (matched == pairs), -pairs * math.log(2), log)
    return chances


def _beyond_stirling(n: Int[np.ndarray, " parts"]) -> Float[np.ndarray, " parts"]:
    """Log n! less its approximation by Stirling."""
    large = np.maximum(n, len(_BEYOND)).astype(float)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / large**2) / large**2) / large**2) / large
    beyond: Float[np.ndarray, " parts"] = np.where(n < len(_BEYOND), _BEYOND[np.minimum(n, len(_BEYOND) - 1)], series)
    return beyond


class _Parts(NamedTuple):
    """Parts of a text: the whole text first, then those of each grid.

    Attributes:
        first: the first token of each part.
        last: the token behind its last one.
        matched: its matching pairs.
        pairs: its distinct pairs.
        share: its share of the false-positive rate.
    """

    first: Int[np.ndarray, " parts"]
    last: Int[np.ndarray, " parts"]
    matched: Int[np.ndarray, " parts"]
    pairs: Int[np.ndarray, " parts"]
    share: Float[np.ndarray, " parts"]


class PairTest:
    """The test of one key on one text.

    Args:
        key: a key of rule "bigram".
        tokens: the scored tokens.

    Raises:
        VocabularyMismatch: an id lies outside the key's vocabulary.
    """

    def __init__(self, key: WatermarkKey, tokens: ScoredIds) -> None:
        check_ids(tokens.ids, key.spec.table_size)
        self.key, self.tokens = key, tokens
        self._left, self._right = pairs_of(tokens.positions, key.spec.nearest, key.spec.farthest)
        self._words = pair_words(tokens.ids[self._left], tokens.ids[self._right])
        # equal pairs side by side, each in the order of its places
        self._order = np.argsort(self._words, kind="stable")
        ordered = self._words[self._order]
        self._again = np.concatenate([[False], ordered[1:] == ordered[:-1]])[: len(ordered)]
        self.words, self._first = ordered[~self._again], self._order[~self._again]
        self._place = np.empty(len(ordered), dtype=np.int64)
        self._place[self._order] = np.cumsum(~self._again) - 1
        self._matches: dict[int | None, Bool[np.ndarray, " pairs"]] = {}

    @property
    def pairs(self) -> int:
        """How many distinct pairs the text has."""
        return len(self.words)

    def matches(self, subkey: int | None) -> Bool[np.ndarray, " pairs"]:
        """Whether each distinct pair matches under a sub-key; None for a key without sub-keys."""
        if subkey not in self._matches:
            self._matches[subkey] = matching_pairs(self.words, self.key.pair_key, subkey or 0)
        return self._matches[subkey]

    def levels(self, subkey: int | None) -> Int[np.ndarray, " n"]:
        """The level of each token: its pairs that match less those that do not, on both sides."""
        signs = np.where(self.matches(subkey)[self._place], 1, -1)
        n = len(self.tokens.ids)
        levels = np.bincount(self._left, signs, n) + np.bincount(self._right, signs, n)
        return levels.astype(np.int64)

    def completed(self, subkey: int | None) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """How many pairs each token completes, as the right one, and how many of them match."""
        right, n = self._right, len(self.tokens.ids)
        return np.bincount(right, minlength=n), np.bincount(right[self.matches(subkey)[self._place]], minlength=n)

    def best_part(self, subkey: int | None) -> TokenSpan:
        """The part of the text, or the whole of it, with the smallest p-value."""
        return min(self._candidates(self.matches(subkey)), key=lambda span: span.log_p)

    def limit(self, share: float, level: float) -> Limit | None:
        """Why this test would not find a typical mark in a text like this; None if it would."""
        if not len(self.tokens.ids):
            return "empty"
        match = typical_match(self.key.spec)
        typical, different = (
            adjusted_p(binomial_tail(math.ceil(match * pairs), pairs), WHOLE_SHARE * share)
            for pairs in (self.pairs, len(self._words))
        )
        return None if typical <= level else "repetitive" if different <= level else "short"

    # --- parts ---

    def spans(self, subkey: int | None, level: float) -> list[TokenSpan]:
        """The parts with a p-value of at most `level` that do not overlap, the best first."""
        n, kept = len(self.tokens.ids), list[TokenSpan]()
        free = np.ones(n, dtype=bool)
        for span in sorted(self._candidates(self.matches(subkey), level), key=lambda one: one.log_p):
            if free[span.first : span.last].all():
                free[span.first : span.last] = False
                kept.append(span)
        return kept

    def _candidates(self, matches: Bool[np.ndarray, " pairs"], level: float | None = None) -> Iterator[TokenSpan]:
        """The parts with a p-value of at most `level`; with None those that may have the smallest."""
        parts = self._parts(matches)
        lower, upper = (bound - np.log(parts.share) for bound in _log_bounds(parts.matched, parts.pairs))
        wanted = upper.min() if level is None else math.log(max(level, MIN_P))
        chosen = (lower <= wanted) & (2 * parts.matched > parts.pairs)
        chosen[0] = True
        for first, last, matched, pairs, share in zip(*(column[chosen].tolist() for column in parts), strict=True):
            log = _log_tail(matched, pairs)
            p = adjusted_p(_limited(log), share)
            if level is None or p <= level:
                yield TokenSpan(first, last, p, log - math.log(share))

    def _parts(self, matches: Bool[np.ndarray, " pairs"]) -> _Parts:
        """The counts of all parts. A pair counts once in a part, by the earliest of its places there."""
        n = len(self.tokens.ids)
        units = [UNIT << level for level in range(n.bit_length()) if UNIT << level < n]
        found = [_Parts(*(np.array([one]) for one in (0, n, int(matches.sum()), self.pairs, WHOLE_SHARE)))]
        matched = matches[self._place]
        for unit in units:
            shortest, beginnings = 1 if unit == UNIT else FEWEST, -(-n // unit)
            if shortest > beginnings:
                break  # shorter parts are on the grid before
            counts = self._counts(unit, beginnings, matched)
            # parts that reach beyond the text are no longer than others
            lengths = np.arange(1, UNITS + 1)
            inside = np.arange(beginnings)[:, None] + lengths <= beginnings
            inside &= (lengths >= shortest) & (counts[0] > 0)
            beginning, length = np.nonzero(inside)
            pairs, matching = counts[:, beginning, length]
            first = beginning * unit
            share = np.full(len(first), (1 - WHOLE_SHARE) / (len(units) * max(1, len(first))))
            found.append(_Parts(first, np.minimum(first + (length + 1) * unit, n), matching, pairs, share))
        return _Parts(*(np.concatenate(columns) for columns in zip(*found, strict=True)))

    def _counts(
        self, unit: int, beginnings: int, matched: Bool[np.ndarray, " places"]
    ) -> Int[np.ndarray, "2 beginnings lengths"]:
        """The distinct pairs of the part of each beginning and length, both in units, and those that match."""
        left, right, before = self._left // unit, self._right // unit, self._left_before // unit
        # A place counts in the parts that begin after the equal pair before it and end with or after its own unit.
        # Its row is that unit, and its columns are the units from there back to the beginnings.
        begin = np.minimum(right - left, UNITS)
        end = np.maximum(np.minimum(right - before, UNITS), begin)
        rows, columns = beginnings + UNITS, UNITS + 1
        row = (right + matched * rows) * columns
        starts, ends = (np.bincount(row + column, minlength=2 * rows * columns) for column in (begin, end))
        cells = (starts - ends).reshape(2 * rows, columns).cumsum(axis=1).reshape(2, rows * columns)
        # unit after unit of a part: a row and a column further
        diagonal = np.arange(beginnings)[:, None] * columns + np.arange(UNITS) * (columns + 1)
        counts = cells[:, diagonal].cumsum(axis=2)
        counts[0] += counts[1]
        return counts

    @cached_property
    def _left_before(self) -> Int[np.ndarray, " places"]:
        """For each place of a pair the last of the left tokens of equal pairs before it; -1 for none."""
        n, place = len(self.tokens.ids), self._place[self._order]
        so_far = np.maximum.accumulate(place * n + self._left[self._order]) - place * n
        before = np.full(len(place), -1)
        before[self._order[self._again]] = so_far[:-1][self._again[1:]]
        return before

    # --- sub-keys ---

    def likeliest(self) -> list[int]:
        """The sub-keys with the best counts over any run of 1, 2, 4, ... blocks or the whole text, the best first."""
        best = np.full(self.key.spec.subkeys, -np.inf)
        by_block = self._right[self._first] // _BLOCK
        blocks = max(1, -(-len(self.tokens.ids) // _BLOCK))
        pairs = np.concatenate([[0], np.bincount(by_block, minlength=blocks).cumsum()])
        counts = np.zeros((blocks + 1, len(best)), dtype=np.int32)
        for block in range(blocks):
            words = self.words[by_block == block]
            counts[block + 1] = counts[block] + count_by_subkey(words, self.key.pair_key, len(best))
        length = 1
        while length < 2 * blocks:
            run = min(length, blocks)
            of_run = np.maximum(pairs[run:] - pairs[:-run], 1)[:, None]
            scores = (2.0 * (counts[run:] - counts[:-run]) - of_run) / np.sqrt(of_run)
            best = np.maximum(best, scores.max(axis=0))
            length *= 2
        first: list[int] = np.argsort(-best, kind="stable")[:_MAX_SEARCHED].tolist()
        return first

    def confidence(self, subkey: int, span: TokenSpan) -> float:
        """The probability that a part with the key's mark has it from this sub-key and no other of the key.

        By Bayes, the sub-keys equally likely before.
        """
        inside = (self._left >= span.first) & (self._right < span.last)
        words = np.unique(self._words[inside])
        counts = count_by_subkey(words, self.key.pair_key, self.key.spec.subkeys)
        ratios = [counts * math.log1p(s) + (len(words) - counts) * math.log1p(-s) for s in STRENGTHS]
        logs = np.logaddexp.reduce(ratios, axis=0)
        return float(np.exp(logs[subkey] - np.logaddexp.reduce(logs)))


def _log_bounds(
    matched: Int[np.ndarray, " parts"], pairs: Int[np.ndarray, " parts"]
) -> tuple[Float[np.ndarray, " parts"], Float[np.ndarray, " parts"]]:
    """A lower and an upper bound of the logarithm of each tail; 0 where no more than half of the pairs match."""
    term = _log_chances(matched, pairs)
    # the terms of the tail fall at least as fast as a geometric series that begins with its first two
    ratio = np.minimum((pairs - matched) / (matched + 1.0), 1 - _SLACK)
    more = 2 * matched > pairs
    lower = np.where(more, np.maximum(term + np.log1p(ratio) - _SLACK, math.log(MIN_P)), 0.0)
    upper = np.where(more, np.clip(term - np.log1p(-ratio) + _SLACK, math.log(MIN_P), 0.0), 0.0)
    return lower, upper


def find_spans(key: WatermarkKey, tokens: ScoredIds, fpr: float) -> list[tuple[int | None, TokenSpan]]:
    """The spans that carry the mark of a key or of any of its sub-keys, each with its sub-key, in order.

    Spans do not overlap: of two that would, the one with the smaller p-value is kept. Those of one sub-key that touch
    are joined. Each of them passed by itself, so the smallest of their p-values is one of the whole stretch, too.

    Args:
        key: a key of rule "bigram".
        tokens: the scored tokens.
        fpr: the largest chance to report any span without marked text, over all sub-keys.
    """
    test, tried = PairTest(key, tokens), key.num_subkeys
    numbers = [key.number] if tried == 1 else test.likeliest()
    found = [(number, span) for number in numbers for span in test.spans(number, fpr / tried)]
    free = np.ones(len(tokens.ids), dtype=bool)
    kept = list[tuple[int | None, TokenSpan]]()
    for number, span in sorted(found, key=lambda one: one[1].log_p):
        if free[span.first : span.last].all():
            free[span.first : span.last] = False
            kept.append((number, replace(span, p_value=bonferroni_p(span.p_value, tried))))
    joined = list[tuple[int | None, TokenSpan]]()
    for number, span in sorted(kept, key=lambda one: one[1].first):
        if joined and (joined[-1][0], joined[-1][1].last) == (number, span.first):
            before = joined.pop()[1]
            span = replace(min(before, span, key=lambda one: one.log_p), first=before.first, last=span.last)
        joined.append((number, span))
    return joined
