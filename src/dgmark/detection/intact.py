"""The test for intact text: the matches at one shift, against their exact null. No edits but a crop.

The p-value is that of `match_null.MatchNull`: true for any text chosen without knowledge of the key.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from jaxtyping import Int

from dgmark.detection.match_null import MatchNull, residue_counts
from dgmark.detection.shares import UNCROPPED, paid
from dgmark.watermark.groups import GroupTables

# tokens at the front of a text that tell a rotating key's crop; more would not tell it better
_SEARCHED = 4096

Phase = Literal["any", "start"]


@dataclass(frozen=True)
class Hypothesis:
    """The mark is there, `shift` tokens into its text; `weight` is its share of the false-positive rate."""

    shift: int
    matched: int
    weight: float
    null: MatchNull

    @cached_property
    def p_value(self) -> float:
        """Chance that a random key matches as well at any shift tried."""
        return paid(self.null.tail(self.matched), self.weight)


@dataclass(frozen=True)
class IntactTest:
    """The test of one key.

    Attributes:
        tables: the key's groups and position code.
        phase: "any" allows for tokens missing at the front and pays for it; "start" takes the text as complete.
        max_crop: with a rotating key and phase "any", the most tokens that may be missing.
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
        """The hypotheses worth a p-value, the first one standing for an uncropped text."""
        spec = self.tables.spec
        if self.phase == "start" or (spec.rotation and not self.max_crop):
            return [self._hypothesis(ids, positions, 0, self._matched(ids, positions), 1.0)]
        # Any one shift may be looked at after the fact, however it is found, as each has its share of the rate.
        if not spec.rotation:
            counts = self._matched_by_phase(ids, positions)
            best = int(counts.argmax())
            return [self._hypothesis(ids, positions, best, int(counts[best]), 1 / spec.period)]
        found = self._likeliest_crop(ids[:_SEARCHED], positions[:_SEARCHED])
        return [
            self._hypothesis(ids, positions, shift, self._matched(ids, positions + shift), weight)
            for shift, weight in ((0, UNCROPPED), (found, (1 - UNCROPPED) / self.max_crop))
        ]

    def _hypothesis(
        self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], shift: int, matched: int, weight: float
    ) -> Hypothesis:
        spec = self.tables.spec
        items = spec.segment(positions + shift) * spec.table_size + ids
        counts = residue_counts(items, self.tables.residues(positions + shift), spec.modulus)
        return Hypothesis(shift, matched, weight, MatchNull.of(counts))

    def _matched(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> int:
        return int(np.count_nonzero(self.tables.matching(ids, positions)))

    def _matched_by_phase(
        self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]
    ) -> Int[np.ndarray, " period"]:
        """Matches if the first token stood at a position = 0, 1, ... modulo the code's period."""
        spec, tables = self.tables.spec, self.tables
        places = positions % spec.period * spec.modulus + tables.table()[ids]
        counts = np.bincount(places, minlength=spec.period * spec.modulus).reshape(spec.period, spec.modulus)
        matched: Int[np.ndarray, " period"] = counts[np.arange(spec.period), tables.shifted_codes].sum(axis=1)
        return matched

    def _likeliest_crop(self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> int:
        """The shift in 1..max_crop at which most tokens match a rotating key."""
        spec, tables = self.tables.spec, self.tables
        distinct, token = np.unique(ids, return_inverse=True)
        last = int(positions.max(initial=0)) + self.max_crop
        groups = np.stack([tables.table(segment)[distinct] for segment in range(last // spec.rotation + 1)])
        counts = [
            np.count_nonzero(groups[at // spec.rotation, token] == tables.residues(at))
            for at in (positions + shift for shift in range(1, self.max_crop + 1))
        ]
        return 1 + int(np.argmax(counts))
