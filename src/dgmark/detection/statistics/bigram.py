"""The detection side of the bigram rule: how many distinct pairs of a text match, in the whole text and in its parts.

The parts that pass are the spans: they and the verdict come from one test, and their p-values depend on no rate.
`pairs.py` says which pairs there are, `evidence.py` what those that match say, `subkeys.py` of which sub-key they are.
Knows tokens and positions only. Ours.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmark.detection.reading.pair_weights import CAP, choice_of
from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.results.detection import Detection
from dgmark.detection.results.figures import PairFigures, TokenSpan, Uncertain
from dgmark.detection.statistics.evidence import evidence_of
from dgmark.detection.statistics.p_values import adjusted_p, binomial_tail, bonferroni_p
from dgmark.detection.statistics.pairs import DistinctPairs
from dgmark.detection.statistics.parts import FIRST_UNIT, WHOLE_SHARE
from dgmark.detection.statistics.rules import DetectionSettings, Expectation, TextTest
from dgmark.detection.statistics.subkeys import confidence_in, ranked_subkeys
from dgmark.errors import DgmarkError
from dgmark.watermark.bigram import BigramSpec, PairHashes, pair_key
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as

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

    figures_type = PairFigures
    weighs = True
    no_spans = None
    shown_match = "token of which most pairs match"

    def __init__(
        self,
        key: WatermarkKey,
        tokens: ScoredIds,
        settings: DetectionSettings | None = None,  # noqa: ARG002 (of every rule)
    ) -> None:
        self.key, self.spec, self.tokens = key, spec_as(BigramSpec, key), tokens
        self.distinct = DistinctPairs(self.spec, tokens)
        self.evidence = evidence_of(self.distinct)
        self._hashes = PairHashes(self.distinct.words, pair_key(key))
        self._matches: dict[int | None, Bool[np.ndarray, " pairs"]] = {}

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
    def seconds(cls, key: WatermarkKey, tokens: float) -> float:
        """That of a scan of all sub-keys."""
        return tokens * key.num_subkeys / _SUBKEY_TOKENS_A_SECOND

    @property
    def pairs(self) -> int:
        """How many distinct pairs the text has."""
        return len(self.distinct)

    def matches(self, subkey: int | None) -> Bool[np.ndarray, " pairs"]:
        """Whether each distinct pair matches under a sub-key; None for a key without sub-keys."""
        if subkey not in self._matches:
            self._matches[subkey] = self._hashes.matches(subkey or 0)
        return self._matches[subkey]

    @cached_property
    def subkey(self) -> int | None:
        """The likeliest sub-key; None for a key without sub-keys."""
        return self.key.number if self.key.num_subkeys == 1 else self.ranked[0]

    @cached_property
    def ranked(self) -> list[int]:
        """The likeliest sub-keys, the best first."""
        return ranked_subkeys(self.evidence, self._hashes, self.key.num_subkeys)

    def confidence(self, subkey: int, span: TokenSpan) -> float:
        """The probability that a part with the key's mark has it from this sub-key and no other of the key."""
        inside = self.distinct.within(span.first, span.last)
        return confidence_in(subkey, self.evidence, self._hashes, self.key.num_subkeys, inside)

    @cached_property
    def _best(self) -> TokenSpan:
        """The part of the text, or the whole of it, with the smallest p-value under the likeliest sub-key."""
        return self.evidence.best(self.matches(self.subkey))

    def p_value(self) -> float:
        """The p-value of the likeliest sub-key, or of the key, at its whole rate."""
        return self._best.p_value

    def fields(self, found: bool) -> dict[str, Any]:
        """The fields of a `Detection` that this rule computes; `found`: whether the text is marked."""
        subkey, matches = self.subkey, self.matches(self.subkey)
        matched, confidence = int(matches.sum()), None
        if found and subkey is not None and self.key.num_subkeys > 1:
            confidence = self.confidence(subkey, self._best)
        return {
            "test": self.evidence.kind,
            "z_score": self.evidence.z_score(matches),
            "green_fraction": matched / self.pairs if self.pairs else 0.0,
            "num_tokens_matched": int(np.count_nonzero(self.net_matches(subkey) > 0)),
            "figures": PairFigures(self.pairs, matched, self.evidence.figures(matches)),
            "subkey": subkey if found else None,
            "subkey_confidence": confidence,
        }

    @classmethod
    def expectation(cls, spec: BigramSpec, tokens: int, refilled: float) -> Expectation:
        """That of a n^b independent coins, one for each pair of a distance: a word that is repeated says less again.

        The numbers were fitted to texts of 32 to 256 tokens of the storyteller.
        """
        most, words = 2.57 * tokens**0.75, 3.3 * tokens**0.6
        distances = range(max(spec.nearest, 1), spec.farthest + 1)
        coins = sum(min(max(0.0, tokens - distance), most) for distance in distances)
        coins += 0.0 if spec.nearest else min(tokens, words)
        marked = 1 - (1 - refilled) ** 2  # a pair is as before if both of its tokens are
        match = spec.chance + (spec.typical_match - spec.chance) * marked
        return Expectation(int(coins), match, WHOLE_SHARE / spec.subkeys)

    def matched_tokens(self, detection: Detection) -> Bool[np.ndarray, " n"]:
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
        values, pairs, n = self.evidence.values, self.distinct, len(self.tokens.ids)
        signs = np.where(self.matches(subkey), values, -values)[pairs.number]
        net = np.bincount(pairs.left, signs, n) + np.bincount(pairs.right, signs, n)
        return net.astype(np.int64)

    def uncertain_because(self, share: float, level: float) -> Uncertain | None:
        """Why this test would not find a typical mark in a text like this; None if it would."""
        if not len(self.tokens.ids):
            return "empty"
        match = self.spec.typical_match
        typical, different = (
            adjusted_p(binomial_tail(math.ceil(match * pairs), pairs), WHOLE_SHARE * share)
            for pairs in self.evidence.equal_pairs()
        )
        return None if typical <= level else "repetitive" if different <= level else "short"

    # --- parts ---

    def passing_parts(self, subkey: int | None, level: float) -> list[TokenSpan]:
        """The parts with a p-value of at most `level` that do not overlap, the best first."""
        passing = self.evidence.passing(self.matches(subkey), level)
        return self._apart(replace(span, subkey=subkey) for span in passing)

    def _apart(self, spans: Iterable[TokenSpan]) -> list[TokenSpan]:
        """Those of some spans that do not overlap, the best first: of two that would, the better one is kept.

        One with a gap is worse than all without: what repeats itself between marked words does not carry the mark.
        """
        kept, ranked = list[TokenSpan](), sorted(spans, key=lambda span: span.log_p)
        free = np.ones(len(self.tokens.ids), dtype=bool)
        for with_gap in (False, True):
            for span in ranked:
                inside = slice(span.first, span.last)
                if free[inside].all() and (with_gap or not self.distinct.has_gap(span.first, span.last)):
                    free[inside] = False
                    kept.append(span)
        return kept

    def shown_tokens(self) -> Bool[np.ndarray, " n"]:
        """Which tokens stand in no gap, that is, in no long repetition."""
        return self.distinct.outside_gaps()

    def spans(self, fpr: float) -> list[TokenSpan]:
        """The spans that carry the mark of the key or of any of its sub-keys, in order.

        Spans do not overlap: of two that would, the one with the smaller p-value is kept. Each begins and ends with a
        pair that is new in it. Those of one sub-key that touch are joined: each of them passed by itself, so the
        smallest of their p-values is one of the whole stretch, too.

        Args:
            fpr: the largest chance to report any span without marked text, over all sub-keys.
        """
        tried = self.key.num_subkeys
        subkeys = [self.key.number] if tried == 1 else self.ranked
        found = [span for subkey in subkeys for span in self.passing_parts(subkey, fpr / tried)]
        joined, places = list[TokenSpan](), self.tokens.positions
        for part in sorted(self._apart(found), key=lambda part: part.first):
            scored = self.distinct.newly_scored(part.first, part.last)
            p_value = bonferroni_p(part.p_value, tried)
            span = replace(part, first=int(scored[0]), last=int(scored[-1]) + 1, p_value=p_value)
            touches = joined and places[span.first] - places[joined[-1].last - 1] <= FIRST_UNIT
            if touches and joined[-1].subkey == span.subkey:
                before = joined.pop()
                span = replace(min(before, span, key=lambda span: span.log_p), first=before.first, last=span.last)
            joined.append(span)
        return joined
