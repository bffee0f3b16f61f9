"""The test for intact text: the match count at one shift against its exact null. Allows for a crop, but for no edits.

The p-value comes from `match_null.MatchNull` and is valid for any text chosen without knowledge of the key. Knows
tokens and their positions only. Takes the place of the paper's global z-test (section 3.5, Eq. 1).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Int

from dgmark.detection.match_null import MatchNull, residue_counts
from dgmark.detection.shares import UNCROPPED, adjusted_p, balance_of
from dgmark.watermark.groups import GroupTables

# the first tokens of a text, from which a rotating key's crop is found; more would not find it better
_SEARCHED = 4096

Phase = Literal["any", "start"]


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


@dataclass(frozen=True)
class IntactTest:
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
            return [self._hypothesis(ids, positions, 0, self._matched(ids, positions), 1.0)]
        # Any one shift may be picked after looking at the text, as each has its own share of the rate.
        if not spec.rotation:
            counts = self._matched_by_phase(ids, positions)
            best = int(counts.argmax())
            return [self._hypothesis(ids, positions, best, int(counts[best]), 1 / spec.period)]
        crop = self._likeliest_crop(ids[:_SEARCHED], positions[:_SEARCHED])
        return [
            self._hypothesis(ids, positions, shift, self._matched(ids, positions + shift), weight)
            for shift, weight in ((0, UNCROPPED), (crop, (1 - UNCROPPED) / self.max_crop))
        ]

    def _hypothesis(
        self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], shift: int, matched: int, weight: float
    ) -> Hypothesis:
        spec = self.tables.spec
        items = spec.segment(positions + shift) * spec.table_size + ids
        counts = residue_counts(items, self.tables.residues(positions + shift), spec.modulus)
        distinct = [len(counts)]
        if spec.rotation:
            distinct = np.unique(np.unique(items) // spec.table_size, return_counts=True)[1].tolist()
        balance = balance_of(spec, distinct)
        return Hypothesis(shift, matched, weight, MatchNull.of(counts), balance)

    def _matched(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> int:
        return int(np.count_nonzero(self.tables.matching(ids, positions)))

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
