"""The detection side of the bigram rule: how many distinct pairs of a text match, in the whole text and in its parts.

Over random keys the bits of distinct pairs are independent fair coins, for any text, so each count has an exact
binomial tail. The whole text has half of the false-positive rate, and the parts share the other half. The parts that
pass are the spans: they and the verdict come from one test, and their p-values depend on no rate. Knows tokens and
positions only. Ours; a scan on multi-scale grids as in Walther (2010).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmark.detection.finding import Finding, PairFigures, TokenSpan, Uncertain
from dgmark.detection.p_values import (
    MIN_P,
    adjusted_p,
    binomial_tail,
    bonferroni_p,
    log_bounds,
    log_tail,
    p_value_of,
    z_score,
)
from dgmark.detection.reader import ScoredIds
from dgmark.detection.rules import DetectionSettings, Expectation, SubkeySpan, TextTest
from dgmark.watermark.bigram import BigramSpec, count_by_subkey, matching_pairs, pair_key, pair_words, pairs_of
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import check_ids, spec_as

WHOLE_SHARE = 0.5
# A part begins and ends at multiples of 8, 16, 32, ... tokens; it is up to 8 such units long, and on all grids but the
# first more than 4.
FIRST_UNIT = 8
MAX_UNITS = 8
MIN_UNITS = 5
# strengths of the mark that the confidence in a sub-key averages over: twice the share of matching pairs, less 1
STRENGTHS = (0.1, 0.3, 0.5)
# sub-keys are ranked by the counts of runs of blocks of this many tokens
_BLOCK_TOKENS = 32
# sub-keys whose spans are looked for
_SUBKEYS_WITH_SPANS = 16

# characters times sub-keys that are tried in a second: 300,000 under 65,536 take 52 seconds of one core
SUBKEY_CHARS_A_SECOND = 3.8e8
_CHARS_PER_ID = 4


def seconds_of_scan(content: str | Sequence[int], subkeys: int) -> float:
    """About how many seconds one core takes to try so many sub-keys on a text or its token ids."""
    chars = len(content) * (1 if isinstance(content, str) else _CHARS_PER_ID)
    return chars * subkeys / SUBKEY_CHARS_A_SECOND


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


class BigramTest(TextTest):
    """The test of one key on one text.

    Args:
        key: a key of rule "bigram".
        tokens: the scored tokens.
        settings: nothing of them is read.

    Raises:
        VocabularyMismatch: an id lies outside the key's vocabulary.
    """

    def __init__(
        self,
        key: WatermarkKey,
        tokens: ScoredIds,
        settings: DetectionSettings | None = None,  # noqa: ARG002 (the protocol's)
    ) -> None:
        self.key, self.spec, self.tokens = key, spec_as(BigramSpec, key), tokens
        self._hash = pair_key(key)
        check_ids(tokens.ids, self.spec.table_size)
        self._left, self._right = pairs_of(tokens.positions, self.spec.nearest, self.spec.farthest)
        self._words = pair_words(tokens.ids[self._left], tokens.ids[self._right])
        # Equal pairs side by side, each in the order of its places. At distance 1 the text 7 5 7 5 has the words a b
        # a at its places: _order is 0 2 1, _repeated 0 1 0, words are a b, _first_places 0 1, and _distinct is 0 1 0.
        self._order = np.argsort(self._words, kind="stable")
        ordered = self._words[self._order]
        self._repeated = np.concatenate([[False], ordered[1:] == ordered[:-1]])[: len(ordered)]
        self.words, self._first_places = ordered[~self._repeated], self._order[~self._repeated]
        self._distinct = np.empty(len(ordered), dtype=np.int64)
        self._distinct[self._order] = np.cumsum(~self._repeated) - 1
        self._matches: dict[int | None, Bool[np.ndarray, " pairs"]] = {}

    @property
    def pairs(self) -> int:
        """How many distinct pairs the text has."""
        return len(self.words)

    def matches(self, subkey: int | None) -> Bool[np.ndarray, " pairs"]:
        """Whether each distinct pair matches under a sub-key; None for a key without sub-keys."""
        if subkey not in self._matches:
            self._matches[subkey] = matching_pairs(self.words, self._hash, subkey or 0)
        return self._matches[subkey]

    @cached_property
    def subkey(self) -> int | None:
        """The likeliest sub-key; None for a key without sub-keys."""
        return self.key.number if self.key.num_subkeys == 1 else self.ranked_subkeys()[0]

    @cached_property
    def _best(self) -> TokenSpan:
        return self.best_part(self.subkey)

    @classmethod
    def no_spans(cls) -> None:
        """It finds spans."""

    @classmethod
    def shown_match(cls) -> str:
        """What `matched_tokens` shows."""
        return "token of which most pairs match"

    def p_value(self) -> float:
        """The p-value of the likeliest sub-key, or of the key, at its whole rate."""
        return self._best.p_value

    def figures(self, found: bool) -> dict[str, Any]:
        """The fields of a `Detection` that this rule computes; `found`: whether the text is marked."""
        subkey, matched = self.subkey, int(self.matches(self.subkey).sum())
        confidence = None
        if found and subkey is not None and self.key.num_subkeys > 1:
            confidence = self.confidence(subkey, self._best)
        return {
            "z_score": z_score(matched, self.pairs, 2),
            "green_fraction": matched / self.pairs if self.pairs else 0.0,
            "num_tokens_matched": int(np.count_nonzero(self.net_matches(subkey) > 0)),
            "pairs": PairFigures(self.pairs, matched),
            "subkey": subkey if found else None,
            "subkey_confidence": confidence,
        }

    @classmethod
    def expectation(cls, spec: BigramSpec, tokens: int, refilled: float) -> Expectation:
        """That of a n^b independent coins, one for each pair of a distance: a word that is repeated says less again.

        The numbers were fitted to texts of 32 to 256 tokens of the storyteller.
        """
        most = 2.57 * tokens**0.75
        coins = sum(min(max(0.0, tokens - distance), most) for distance in range(spec.nearest, spec.farthest + 1))
        marked = 1 - (1 - refilled) ** 2  # a pair is as before if both of its tokens are
        match = spec.chance + (spec.typical_match - spec.chance) * marked
        return Expectation(int(coins), match, WHOLE_SHARE / spec.subkeys)

    def matched_tokens(self, detection: Finding) -> Bool[np.ndarray, " n"]:  # noqa: ARG002 (the protocol's)
        """Of which tokens more pairs match than do not."""
        matched: Bool[np.ndarray, " n"] = self.net_matches(self.subkey) > 0
        return matched

    def net_matches(self, subkey: int | None) -> Int[np.ndarray, " n"]:
        """For each token its pairs that match less those that do not, on both sides."""
        signs = np.where(self.matches(subkey)[self._distinct], 1, -1)
        n = len(self.tokens.ids)
        net = np.bincount(self._left, signs, n) + np.bincount(self._right, signs, n)
        return net.astype(np.int64)

    def best_part(self, subkey: int | None) -> TokenSpan:
        """The part of the text, or the whole of it, with the smallest p-value."""
        return min(self._candidates(self.matches(subkey)), key=lambda span: span.log_p)

    def uncertain_because(self, share: float, level: float) -> Uncertain | None:
        """Why this test would not find a typical mark in a text like this; None if it would."""
        if not len(self.tokens.ids):
            return "empty"
        match = self.spec.typical_match
        typical, different = (
            adjusted_p(binomial_tail(math.ceil(match * pairs), pairs), WHOLE_SHARE * share)
            for pairs in (self.pairs, len(self._words))
        )
        return None if typical <= level else "repetitive" if different <= level else "short"

    # --- parts ---

    def passing_parts(self, subkey: int | None, level: float) -> list[TokenSpan]:
        """The parts with a p-value of at most `level` that do not overlap, the best first."""
        passing = self._candidates(self.matches(subkey), level)
        return [span for _, span in self._apart((subkey, span) for span in passing)]

    def _apart(self, spans: Iterable[SubkeySpan]) -> list[SubkeySpan]:
        """Those of some spans that do not overlap, the best first: of two that would, the better one is kept."""
        kept = list[SubkeySpan]()
        free = np.ones(len(self.tokens.ids), dtype=bool)
        for subkey, span in sorted(spans, key=lambda one: one[1].log_p):
            if free[span.first : span.last].all():
                free[span.first : span.last] = False
                kept.append((subkey, span))
        return kept

    def _candidates(self, matches: Bool[np.ndarray, " pairs"], level: float | None = None) -> Iterator[TokenSpan]:
        """The parts with a p-value of at most `level`; with None those that may have the smallest."""
        parts = self._parts(matches)
        lower, upper = (bound - np.log(parts.share) for bound in log_bounds(parts.matched, parts.pairs))
        wanted = upper.min() if level is None else math.log(max(level, MIN_P))
        chosen = (lower <= wanted) & (2 * parts.matched > parts.pairs)
        chosen[0] = True
        for first, last, matched, pairs, share in zip(*(column[chosen].tolist() for column in parts), strict=True):
            log = log_tail(matched, pairs)
            p = adjusted_p(p_value_of(log), share)
            if level is None or p <= level:
                yield TokenSpan(first, last, p, log - math.log(share))

    def _parts(self, matches: Bool[np.ndarray, " pairs"]) -> _Parts:
        """The counts of all parts. A pair counts once in a part, by the earliest of its places there."""
        n = len(self.tokens.ids)
        units = [FIRST_UNIT << grid for grid in range(n.bit_length()) if FIRST_UNIT << grid < n]
        found = [_Parts(*(np.array([one]) for one in (0, n, int(matches.sum()), self.pairs, WHOLE_SHARE)))]
        matched = matches[self._distinct]
        for unit in units:
            shortest, beginnings = 1 if unit == FIRST_UNIT else MIN_UNITS, -(-n // unit)
            if shortest > beginnings:
                break  # shorter parts are on the grid before
            counts = self._counts(unit, beginnings, matched)
            # parts that reach beyond the text are no longer than others
            lengths = np.arange(1, MAX_UNITS + 1)
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
        """The distinct pairs of the part of each beginning and length, both in units, and those that match.

        The text 7 5 7 5 in units of one token, at distance 1: its pairs are a b a, at the places 0-1, 1-2 and 2-3. The
        part of four tokens from 0 holds a and b, the second a being an equal one: 2. The part of three from 1 holds b
        and a: 2. So the second a counts in parts that begin after token 0, where the first one begins.
        """
        left, right, before = self._left // unit, self._right // unit, self._left_before // unit
        # A place counts in the parts that begin after the equal pair before it and end with or after its own unit.
        # Its row is that unit, and its columns are the units from there back to the beginnings.
        begin = np.minimum(right - left, MAX_UNITS)
        end = np.maximum(np.minimum(right - before, MAX_UNITS), begin)
        rows, columns = beginnings + MAX_UNITS, MAX_UNITS + 1
        row = (right + matched * rows) * columns
        starts, ends = (np.bincount(row + column, minlength=2 * rows * columns) for column in (begin, end))
        cells = (starts - ends).reshape(2 * rows, columns).cumsum(axis=1).reshape(2, rows * columns)
        # unit after unit of a part: a row and a column further
        diagonal = np.arange(beginnings)[:, None] * columns + np.arange(MAX_UNITS) * (columns + 1)
        counts = cells[:, diagonal].cumsum(axis=2)
        counts[0] += counts[1]
        return counts

    @cached_property
    def _left_before(self) -> Int[np.ndarray, " places"]:
        """For each place of a pair the last of the left tokens of equal pairs before it; -1 for none."""
        # of 7 5 7 5 at distance 1: -1 -1 0
        n, place = len(self.tokens.ids), self._distinct[self._order]
        so_far = np.maximum.accumulate(place * n + self._left[self._order]) - place * n
        before = np.full(len(place), -1)
        before[self._order[self._repeated]] = so_far[:-1][self._repeated[1:]]
        return before

    # --- sub-keys ---

    def ranked_subkeys(self) -> list[int]:
        """The sub-keys with the best counts over any run of 1, 2, 4, ... blocks or the whole text, the best first."""
        best = np.full(self.spec.subkeys, -np.inf)
        block_of = self._right[self._first_places] // _BLOCK_TOKENS
        blocks = max(1, -(-len(self.tokens.ids) // _BLOCK_TOKENS))
        sizes, words = np.bincount(block_of, minlength=blocks), self.words[block_of.argsort(kind="stable")]
        in_block = count_by_subkey(words, self._hash, len(best), sizes)
        # of all blocks before each
        pairs = np.concatenate([[0], sizes.cumsum()])
        counts = np.concatenate([np.zeros((1, len(best)), dtype=np.int64), in_block.cumsum(axis=0)])
        length = 1
        while length < 2 * blocks:
            run = min(length, blocks)
            of_run = np.maximum(pairs[run:] - pairs[:-run], 1)[:, None]
            scores = (2.0 * (counts[run:] - counts[:-run]) - of_run) / np.sqrt(of_run)
            best = np.maximum(best, scores.max(axis=0))
            length *= 2
        first: list[int] = np.argsort(-best, kind="stable")[:_SUBKEYS_WITH_SPANS].tolist()
        return first

    def confidence(self, subkey: int, span: TokenSpan) -> float:
        """The probability that a part with the key's mark has it from this sub-key and no other of the key.

        By Bayes, the sub-keys equally likely before.
        """
        inside = (self._left >= span.first) & (self._right < span.last)
        words = np.unique(self._words[inside])
        (counts,) = count_by_subkey(words, self._hash, self.spec.subkeys)
        ratios = [counts * math.log1p(s) + (len(words) - counts) * math.log1p(-s) for s in STRENGTHS]
        logs = np.logaddexp.reduce(ratios, axis=0)
        return float(np.exp(logs[subkey] - np.logaddexp.reduce(logs)))

    def spans(self, fpr: float) -> list[SubkeySpan]:
        """The spans that carry the mark of the key or of any of its sub-keys, each with its sub-key, in order.

        Spans do not overlap: of two that would, the one with the smaller p-value is kept. Those of one sub-key that
        touch are joined. Each of them passed by itself, so the smallest of their p-values is one of the whole stretch,
        too.

        Args:
            fpr: the largest chance to report any span without marked text, over all sub-keys.
        """
        tried = self.key.num_subkeys
        subkeys = [self.key.number] if tried == 1 else self.ranked_subkeys()
        found = [(subkey, span) for subkey in subkeys for span in self.passing_parts(subkey, fpr / tried)]
        joined = list[SubkeySpan]()
        for subkey, span in sorted(self._apart(found), key=lambda one: one[1].first):
            span = replace(span, p_value=bonferroni_p(span.p_value, tried))
            if joined and (joined[-1][0], joined[-1][1].last) == (subkey, span.first):
                before = joined.pop()[1]
                span = replace(min(before, span, key=lambda one: one.log_p), first=before.first, last=span.last)
            joined.append((subkey, span))
        return joined
