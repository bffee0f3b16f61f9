"""The distinct pairs of a text: which they are, at which places each stands, and where nothing new is scored.

Knows tokens and their positions, and neither keys nor weights.
"""

from functools import cached_property
from itertools import pairwise

import numpy as np
from jaxtyping import Bool, Int

from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.statistics.parts import Parts
from dgmark.watermark.bigram import BigramSpec, pair_words, pairs_of
from dgmark.watermark.spec import check_ids
from dgmark.watermark.word_classes import class_ids

# so many places in a row at which no new pair stands are a gap: a repetition, or tokens that are not scored
_GAP = 32


class DistinctPairs:
    """The pairs of the scored tokens of a text, each as often as it stands there and once.

    Args:
        spec: says which tokens make a pair.
        tokens: the scored tokens.

    Attributes:
        left: index of the left token of each place of a pair.
        right: index of the right one.
        words: the distinct pairs, ascending.
        first: the first place of each distinct pair.
        number: of each place, which of the distinct pairs stands there.

    Raises:
        VocabularyMismatch: an id lies outside the key's vocabulary.
    """

    def __init__(self, spec: BigramSpec, tokens: ScoredIds) -> None:
        check_ids(tokens.ids, spec.table_size)
        self.tokens = tokens
        self.left, self.right = pairs_of(tokens.positions, spec.nearest, spec.farthest)
        ids = class_ids(spec, tokens.ids)
        words = pair_words(ids[self.left], ids[self.right])
        # Equal pairs side by side, each in the order of its places. At distance 1 the text 7 5 7 5 has the words a b
        # a at its places: _order is 0 2 1, _repeated 0 1 0, words are a b, first is 0 1, and number is 0 1 0.
        self._order = np.argsort(words, kind="stable")
        ordered = words[self._order]
        self._repeated = np.concatenate([[False], ordered[1:] == ordered[:-1]])[: len(ordered)]
        self.words, self.first = ordered[~self._repeated], self._order[~self._repeated]
        self.number = np.empty(len(ordered), dtype=np.int64)
        self.number[self._order] = np.cumsum(~self._repeated) - 1

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def parts(self) -> Parts:
        """The parts of the text that are tested by themselves."""
        return Parts(len(self.tokens.ids), self.left, self.right, self.left_before)

    def within(self, first: int, last: int) -> Int[np.ndarray, " some"]:
        """The distinct pairs of the tokens [first, last), in the order of their words."""
        return np.unique(self.number[(self.left >= first) & (self.right < last)])

    @cached_property
    def left_before(self) -> Int[np.ndarray, " places"]:
        """For each place of a pair the last of the left tokens of equal pairs before it; -1 for none."""
        # of 7 5 7 5 at distance 1: -1 -1 0
        n, place = len(self.tokens.ids), self.number[self._order]
        so_far = np.maximum.accumulate(place * n + self.left[self._order]) - place * n
        before = np.full(len(place), -1)
        before[self._order[self._repeated]] = so_far[:-1][self._repeated[1:]]
        return before

    # --- where nothing new is scored ---

    def newly_scored(self, first: int, last: int) -> Int[np.ndarray, " some"]:
        """The tokens of [first, last) at which a pair stands for the first time there, in order."""
        # 7 5 7 5 7 5 at distance 1, in [0, 6): the pairs 7 5 and 5 7 are new at the tokens 0, 1 and 2
        places = slice(*np.searchsorted(self.right, [first, last]))
        left, right = self.left[places], self.right[places]
        new = (left >= first) & (self.left_before[places] < first)
        return np.unique(np.concatenate([left[new], right[new]]))

    @cached_property
    def any_gap(self) -> bool:
        """Whether there is a gap in the text."""
        return self._gap_in(0, len(self.tokens.ids))

    def has_gap(self, first: int, last: int) -> bool:
        """Whether there is a gap in the tokens [first, last)."""
        # a pair that is new in the text is new in each part, so that a part of a text without gaps has none
        return self.any_gap and self._gap_in(first, last)

    def _gap_in(self, first: int, last: int) -> bool:
        if first == last:
            return False
        scored = np.concatenate([[first], self.newly_scored(first, last), [last - 1]])
        return bool((np.diff(self.tokens.positions[scored]) > _GAP).any())

    def outside_gaps(self) -> Bool[np.ndarray, " n"]:
        """Which tokens stand in no gap, that is, in no long repetition."""
        shown, new = np.ones(len(self.tokens.ids), dtype=bool), self.newly_scored(0, len(self.tokens.ids))
        for before, after in pairwise([*new.tolist(), len(shown)]):
            if self.tokens.positions[min(after, len(shown) - 1)] - self.tokens.positions[before] > _GAP:
                shown[before + 1 : after] = False
        return shown
