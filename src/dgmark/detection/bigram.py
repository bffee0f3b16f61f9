"""The detection side of the bigram rule: how many distinct pairs of a text match, in the whole text and in its parts.

Over random keys the bits of distinct pairs are independent fair coins, for any text, so each count has an exact
binomial tail. If a language model has read the text, each pair has a weight instead, and the weights of the matching
pairs have an exact tail as well. The parts that pass are the spans: they and the verdict come from one test, and their
p-values depend on no rate. Knows tokens and positions only. Ours.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmark.detection.finding import Finding, PairFigures, TokenSpan, Uncertain, WeightFigures
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
from dgmark.detection.pair_weights import CAP, choice_of, digest_of, weights_of
from dgmark.detection.parts import FIRST_UNIT, WHOLE_SHARE, Parts
from dgmark.detection.reader import ScoredIds
from dgmark.detection.rules import DetectionSettings, Expectation, SubkeySpan, TextTest
from dgmark.detection.weighted_coins import WeightedCoins, close_log_tails, effective_number
from dgmark.errors import DgmarkError
from dgmark.watermark.bigram import BigramSpec, PairHashes, pair_key, pair_words, pairs_of, sums_by_subkey
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import check_ids, spec_as
from dgmark.watermark.word_classes import told_apart

# strengths of the mark that the confidence in a sub-key averages over: twice the share of matching pairs, less 1
STRENGTHS = (0.1, 0.3, 0.5)
# sub-keys are ranked by the counts of runs of blocks of this many tokens
_BLOCK_TOKENS = 32
# so many places in a row at which no new pair stands are a gap: a repetition, or tokens that are not scored
_GAP = 32
# sub-keys whose spans are looked for
_SUBKEYS_WITH_SPANS = 16
# A weighted tail is computed for parts whose estimate is as good as the best one, or the level, but for so many nats
# and this share; the estimates are off by less. Of more than so many parts the best by estimate.
_SLACK_NATS, _SLACK_SHARE = 1.0, 0.08
_MOST_TAILS = 32

# tokens times sub-keys that are tried in a second: 75,000 under 65,536 take 52 seconds of one core
_SUBKEY_TOKENS_A_SECOND = 9.5e7


class BigramTest(TextTest):
    """The test of one key on one text.

    Args:
        key: a key of rule "bigram".
        tokens: the scored tokens; with their surprisal each pair has a weight.
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
        check_ids(tokens.ids, self.spec.table_size)
        self._left, self._right = pairs_of(tokens.positions, self.spec.nearest, self.spec.farthest)
        ids = told_apart(self.spec, tokens.ids)
        self._words = pair_words(ids[self._left], ids[self._right])
        # Equal pairs side by side, each in the order of its places. At distance 1 the text 7 5 7 5 has the words a b
        # a at its places: _order is 0 2 1, _repeated 0 1 0, words are a b, _first_places 0 1, and _distinct is 0 1 0.
        self._order = np.argsort(self._words, kind="stable")
        ordered = self._words[self._order]
        self._repeated = np.concatenate([[False], ordered[1:] == ordered[:-1]])[: len(ordered)]
        self.words, self._first_places = ordered[~self._repeated], self._order[~self._repeated]
        self._distinct = np.empty(len(ordered), dtype=np.int64)
        self._distinct[self._order] = np.cumsum(~self._repeated) - 1
        self._hashes = PairHashes(self.words, pair_key(key))
        self._matches: dict[int | None, Bool[np.ndarray, " pairs"]] = {}
        # of each distinct pair, by the first of its places; None if all count alike
        self.weights: Int[np.ndarray, " pairs"] | None = None
        if tokens.surprisal is not None:
            first = self._first_places
            self.weights = weights_of(tokens.surprisal.nats, self._left[first], self._right[first])

    @classmethod
    def of_texts(
        cls, key: WatermarkKey, texts: Sequence[ScoredIds], settings: DetectionSettings
    ) -> list[TextTest | DgmarkError]:
        """The tests of several texts, whose pairs are hashed together."""
        tests = super().of_texts(key, texts, settings)
        hashes = [test._hashes for test in tests if isinstance(test, BigramTest)]
        number = key.number or 0
        PairHashes.compute_together(hashes, range(number, number + key.num_subkeys))
        return tests

    @classmethod
    def weighs(cls) -> bool:
        """It takes weights."""
        return True

    @classmethod
    def seconds(cls, key: WatermarkKey, tokens: float) -> float:
        """That of a scan of all sub-keys."""
        return tokens * key.num_subkeys / _SUBKEY_TOKENS_A_SECOND

    @property
    def pairs(self) -> int:
        """How many distinct pairs the text has."""
        return len(self.words)

    def matches(self, subkey: int | None) -> Bool[np.ndarray, " pairs"]:
        """Whether each distinct pair matches under a sub-key; None for a key without sub-keys."""
        if subkey not in self._matches:
            self._matches[subkey] = self._hashes.matches(subkey or 0)
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
        subkey, matched, weights = self.subkey, int(self.matches(self.subkey).sum()), self._weight_figures()
        confidence = None
        if found and subkey is not None and self.key.num_subkeys > 1:
            confidence = self.confidence(subkey, self._best)
        return {
            "test": "count" if weights is None else "weighted",
            "z_score": z_score(matched, self.pairs, 2) if weights is None else self._weighted_z(weights),
            "green_fraction": matched / self.pairs if self.pairs else 0.0,
            "num_tokens_matched": int(np.count_nonzero(self.net_matches(subkey) > 0)),
            "pairs": PairFigures(self.pairs, matched),
            "weights": weights,
            "subkey": subkey if found else None,
            "subkey_confidence": confidence,
        }

    def _weight_figures(self) -> WeightFigures | None:
        surprisal = self.tokens.surprisal
        if self.weights is None or surprisal is None:
            return None
        return WeightFigures(
            surprisal.model,
            surprisal.fingerprint,
            digest_of(self.words, self.weights),
            int(self.weights.sum()),
            int(self.weights[self.matches(self.subkey)].sum()),
            effective_number(self.weights),
        )

    def _weighted_z(self, figures: WeightFigures) -> float:
        """The weight of the matching pairs, standardised under fair coins; 0 for no weight."""
        assert self.weights is not None
        squares = int(self.weights @ self.weights)
        return (2 * figures.matched - figures.scored) / math.sqrt(squares) if squares else 0.0

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

    def matched_tokens(self, detection: Finding) -> Bool[np.ndarray, " n"]:
        """Of which tokens more pairs match than do not, under the sub-key that was found or the likeliest one."""
        subkey = self.subkey if detection.subkey is None else detection.subkey
        matched: Bool[np.ndarray, " n"] = self.net_matches(subkey) > 0
        return matched

    def token_weights(self) -> Float[np.ndarray, " n"] | None:
        """The choice that each token had, as a share of the most that counts; None without a language model."""
        surprisal = self.tokens.surprisal
        return None if surprisal is None else choice_of(surprisal.nats) / CAP

    def net_matches(self, subkey: int | None) -> Int[np.ndarray, " n"]:
        """For each token its pairs that match less those that do not, on both sides; of pairs with weights, these."""
        values = 1 if self.weights is None else self.weights
        signs = np.where(self.matches(subkey), values, -values)[self._distinct]
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
        if self.weights is None:
            numbers = [self.pairs, len(self._words)]
        else:  # as many as say as much
            numbers = [int(effective_number(each)) for each in (self.weights, self.weights[self._distinct])]
        typical, different = (
            adjusted_p(binomial_tail(math.ceil(match * pairs), pairs), WHOLE_SHARE * share) for pairs in numbers
        )
        return None if typical <= level else "repetitive" if different <= level else "short"

    # --- parts ---

    def passing_parts(self, subkey: int | None, level: float) -> list[TokenSpan]:
        """The parts with a p-value of at most `level` that do not overlap, the best first."""
        passing = self._candidates(self.matches(subkey), level)
        return [span for _, span in self._apart((subkey, span) for span in passing)]

    def _apart(self, spans: Iterable[SubkeySpan]) -> list[SubkeySpan]:
        """Those of some spans that do not overlap, the best first: of two that would, the better one is kept.

        One with a gap is worse than all without: what repeats itself between marked words does not carry the mark.
        """
        kept, ranked = list[SubkeySpan](), sorted(spans, key=lambda one: one[1].log_p)
        free = np.ones(len(self.tokens.ids), dtype=bool)
        for with_gap in (False, True):
            for subkey, span in ranked:
                inside = slice(span.first, span.last)
                if free[inside].all() and (with_gap or not self._has_gap(span.first, span.last)):
                    free[inside] = False
                    kept.append((subkey, span))
        return kept

    def _newly_scored(self, first: int, last: int) -> Int[np.ndarray, " some"]:
        """The tokens of [first, last) at which a pair stands for the first time there, in order."""
        # 7 5 7 5 7 5 at distance 1, in [0, 6): the pairs 7 5 and 5 7 are new at the tokens 0, 1 and 2
        places = slice(*np.searchsorted(self._right, [first, last]))
        left, right = self._left[places], self._right[places]
        new = (left >= first) & (self._left_before[places] < first)
        return np.unique(np.concatenate([left[new], right[new]]))

    def _has_gap(self, first: int, last: int) -> bool:
        """Whether there is a gap in the tokens [first, last)."""
        # a pair that is new in the text is new in each part, so that a part of a text without gaps has none
        return self._any_gap and self._gap_in(first, last)

    @cached_property
    def _any_gap(self) -> bool:
        return self._gap_in(0, len(self.tokens.ids))

    def _gap_in(self, first: int, last: int) -> bool:
        if first == last:
            return False
        scored = np.concatenate([[first], self._newly_scored(first, last), [last - 1]])
        return bool((np.diff(self.tokens.positions[scored]) > _GAP).any())

    def shown_tokens(self) -> Bool[np.ndarray, " n"]:
        """Which tokens stand in no gap, that is, in no long repetition."""
        shown, new = np.ones(len(self.tokens.ids), dtype=bool), self._newly_scored(0, len(self.tokens.ids))
        for before, after in pairwise([*new.tolist(), len(shown)]):
            if self.tokens.positions[min(after, len(shown) - 1)] - self.tokens.positions[before] > _GAP:
                shown[before + 1 : after] = False
        return shown

    @cached_property
    def _parts(self) -> Parts:
        return Parts(len(self.tokens.ids), self._left, self._right, self._left_before)

    def _candidates(self, matches: Bool[np.ndarray, " pairs"], level: float | None = None) -> Iterator[TokenSpan]:
        """The parts with a p-value of at most `level`; with None those that may have the smallest."""
        if self.weights is not None:
            yield from self._weighted_candidates(matches, self.weights, level)
            return
        parts = self._parts
        matching = parts.counts(matches[self._distinct])
        lower, upper = (bound - np.log(parts.share) for bound in log_bounds(matching, parts.pairs))
        wanted = upper.min() if level is None else math.log(max(level, MIN_P))
        chosen = (lower <= wanted) & (2 * matching > parts.pairs)
        chosen[0] = True
        columns = (parts.first, parts.last, matching, parts.pairs, parts.share)
        for first, last, matched, pairs, share in zip(*(column[chosen].tolist() for column in columns), strict=True):
            span = _span(first, last, log_tail(matched, pairs), share)
            if level is None or span.p_value <= level:
                yield span

    # --- parts with weights ---

    def _weighted_candidates(
        self, matches: Bool[np.ndarray, " pairs"], weights: Int[np.ndarray, " pairs"], level: float | None
    ) -> Iterator[TokenSpan]:
        """What `_candidates` yields; of parts that overlap and reach the level, only the best by estimate."""
        parts, (total, squares, fourths) = self._parts, self._powers
        heads = parts.sums((weights * matches)[self._distinct])
        estimates = close_log_tails(heads, total, squares, fourths) - np.log(parts.share)
        wanted = float(estimates.min()) if level is None else math.log(max(level, MIN_P))
        order = np.argsort(np.round(estimates, 9), kind="stable")
        order = order[estimates[order] <= wanted + _SLACK_NATS + _SLACK_SHARE * abs(wanted)]
        if level is None:
            order = np.union1d(order[:_MOST_TAILS], [0])
        elif self._any_gap:
            gaps = [self._has_gap(int(parts.first[part]), int(parts.last[part])) for part in order]
            order = order[np.argsort(gaps, kind="stable")]
        free = np.ones(len(self.tokens.ids), dtype=bool)
        for part in order.tolist():
            first, last = int(parts.first[part]), int(parts.last[part])
            if not free[first:last].all():
                continue
            coins = self._whole if part == 0 else WeightedCoins(weights[self._pairs_within(first, last)])
            span = _span(first, last, coins.log_tail(int(heads[part])), float(parts.share[part]))
            if level is None:
                yield span
            elif span.p_value <= level:
                free[first:last] = False
                yield span

    @cached_property
    def _powers(self) -> tuple[Int[np.ndarray, " parts"], ...]:
        """The sums of the weights of the pairs of each part, of their squares, and of their fourth powers."""
        assert self.weights is not None
        return tuple(self._parts.sums((self.weights**power)[self._distinct]) for power in (1, 2, 4))

    @cached_property
    def _whole(self) -> WeightedCoins:
        assert self.weights is not None
        return WeightedCoins(self.weights)

    def _pairs_within(self, first: int, last: int) -> Int[np.ndarray, " some"]:
        """The distinct pairs of the tokens [first, last), in the order of their words."""
        return np.unique(self._distinct[(self._left >= first) & (self._right < last)])

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
        blocks, order = max(1, -(-len(self.tokens.ids) // _BLOCK_TOKENS)), block_of.argsort(kind="stable")
        sizes, weights = np.bincount(block_of, minlength=blocks), self.weights
        in_block = sums_by_subkey(self._hashes, len(best), order, sizes, None if weights is None else weights[order])
        # of all blocks before each
        heads = np.concatenate([np.zeros((1, len(best)), dtype=np.int64), in_block.cumsum(axis=0)])
        total, squares = (
            np.concatenate([[0], np.bincount(block_of, values, minlength=blocks).cumsum()])
            for values in ((None, None) if weights is None else (weights, weights**2))
        )
        length = 1
        while length < 2 * blocks:
            run = min(length, blocks)
            of_run, spread = (np.maximum(sums[run:] - sums[:-run], 1)[:, None] for sums in (total, squares))
            scores = (2.0 * (heads[run:] - heads[:-run]) - of_run) / np.sqrt(spread)
            best = np.maximum(best, scores.max(axis=0))
            length *= 2
        first: list[int] = np.argsort(-best, kind="stable")[:_SUBKEYS_WITH_SPANS].tolist()
        return first

    def confidence(self, subkey: int, span: TokenSpan) -> float:
        """The probability that a part with the key's mark has it from this sub-key and no other of the key.

        By Bayes, the sub-keys equally likely before. With weights, the odds of a match grow with the weight of a pair,
        and the strength is that of a pair of mean weight.
        """
        inside = self._pairs_within(span.first, span.last)
        weights = None if self.weights is None else self.weights[inside]
        (heads,) = sums_by_subkey(self._hashes, self.spec.subkeys, inside, weights=weights)
        if weights is None:
            ratios = [heads * math.log1p(s) + (len(inside) - heads) * math.log1p(-s) for s in STRENGTHS]
        else:
            mean = max(float(weights.mean()), 1e-9) if len(weights) else 1.0
            odds = [2 * math.atanh(s) / mean for s in STRENGTHS]
            ratios = [heads * one - float((np.logaddexp(0, one * weights) - math.log(2)).sum()) for one in odds]
        logs = np.logaddexp.reduce(ratios, axis=0)
        return float(np.exp(logs[subkey] - np.logaddexp.reduce(logs)))

    def spans(self, fpr: float) -> list[SubkeySpan]:
        """The spans that carry the mark of the key or of any of its sub-keys, each with its sub-key, in order.

        Spans do not overlap: of two that would, the one with the smaller p-value is kept. Each begins and ends with a
        pair that is new in it. Those of one sub-key that touch are joined: each of them passed by itself, so the
        smallest of their p-values is one of the whole stretch, too.

        Args:
            fpr: the largest chance to report any span without marked text, over all sub-keys.
        """
        tried = self.key.num_subkeys
        subkeys = [self.key.number] if tried == 1 else self.ranked_subkeys()
        found = [(subkey, span) for subkey in subkeys for span in self.passing_parts(subkey, fpr / tried)]
        joined, places = list[SubkeySpan](), self.tokens.positions
        for subkey, span in sorted(self._apart(found), key=lambda one: one[1].first):
            scored = self._newly_scored(span.first, span.last)
            span = replace(
                span, first=int(scored[0]), last=int(scored[-1]) + 1, p_value=bonferroni_p(span.p_value, tried)
            )
            touches = joined and places[span.first] - places[joined[-1][1].last - 1] <= FIRST_UNIT
            if touches and joined[-1][0] == subkey:
                before = joined.pop()[1]
                span = replace(min(before, span, key=lambda one: one.log_p), first=before.first, last=span.last)
            joined.append((subkey, span))
        return joined


def _span(first: int, last: int, log: float, share: float) -> TokenSpan:
    return TokenSpan(first, last, adjusted_p(p_value_of(log), share), log - math.log(share))
