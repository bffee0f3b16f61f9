"""The scan of a key's sub-keys: which of them a text is likeliest marked with, and how surely it is this one.

All sub-keys are looked at, by two quick statistics: the match count in units of its standard deviation, and the
alignment (`ranking.py`). The few that come first are tested as keys by themselves, and the p-value of each counts as
often as there are sub-keys. So the quick statistics decide what is found, and never whether a p-value is valid. Knows
tokens and their positions only. Ours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.detection.aligned import front_model
from dgmark.detection.alignment import Alignment
from dgmark.detection.candidates import parts_of
from dgmark.detection.intact import IntactTest, Phase
from dgmark.detection.ranking import Part, best_of, log_winnings, rank_aligned
from dgmark.detection.reader import ScoredIds
from dgmark.detection.result import Mode
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.key import WatermarkKey

# sub-keys of each spec on which the bettor plays; where each has a position code of its own, they play one by one
PLAYED, PLAYED_CODED = 64, 8
# rows whose groups are in memory as floats
_ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class SubkeyScan:
    """The sub-keys of some keys, and a text.

    Attributes:
        keys: keys of one spec, which has sub-keys.
        tokens: the scored tokens.
        mode: which tests are computed.
        phase: "any" allows for tokens missing at the front.
        max_crop: with rotating keys and phase "any", the largest number of tokens that may be missing.
    """

    keys: Sequence[WatermarkKey]
    tokens: ScoredIds
    mode: Mode
    phase: Phase
    max_crop: int

    def likeliest(self, *, by_count: bool) -> list[tuple[int, int]]:
        """The sub-keys to test: for each, the place of its key among `keys`, and its number.

        Args:
            by_count: also those with the best match counts, for what alignment does not see.
        """
        if not len(self.tokens.ids):
            return [(0, 0)]
        numbers = [] if self.mode == "intact" and not self._cropped else self._aligned.numbers[:1].tolist()
        if by_count:
            numbers.append(self._likeliest_by_count())
        return [divmod(number, self._spec.subkeys) for number in dict.fromkeys(numbers)]

    def confidence(self, subkey: int) -> float:
        """The probability that a text with the first key's mark has it from this sub-key and no other of the key.

        By Bayes, the sub-keys equally likely before. The bettor's winnings on each are its likelihood ratio. They are
        computed for the few that rank best. All others count 1 each, their mean over random groups, which the others
        do not reach as the best are taken out.
        """
        part = self._aligned if self.mode != "intact" else self._columns(self._counted)
        if subkey not in part.numbers:
            part = part.joined(self._columns(np.array([subkey])))
        logs = log_winnings(self._model, part, self.mode)
        total = np.logaddexp.reduce([*logs, _log(self._spec.subkeys - len(part.numbers))])
        return float(np.exp(logs[part.numbers == subkey][0] - total))

    # --- alignment -------------------------------------------------------------------------------

    @cached_property
    def _aligned(self) -> Part:
        """The few sub-keys with the best alignment."""
        return rank_aligned(
            self._model, parts_of(self.keys, self._model.distinct), self._few, intact=self.mode != "edited"
        )

    @cached_property
    def _model(self) -> Alignment:
        return front_model(self._subkey(0).tables, self.tokens.ids, self.tokens.positions, self.phase)

    # --- the match count -------------------------------------------------------------------------

    def _likeliest_by_count(self) -> int:
        """The sub-key with the smallest exact p-value, among the few with the best match counts."""
        if not self._spec.code_length:  # then all sub-keys have the same null
            return int(self._counted[0])
        p = [self._exact_p(number) for number in self._counted.tolist()]
        return int(self._counted[int(np.argmin(p))])

    def _exact_p(self, number: int) -> float:
        test = IntactTest(self._subkey(number).tables, self.phase, self.max_crop)
        return min(h.p_value for h in test.hypotheses(self.tokens.ids, self.tokens.positions))

    @cached_property
    def _counted(self) -> Int[np.ndarray, " few"]:
        """The few sub-keys with the best match counts. Crops of rotating keys are left out."""
        spec, ids, positions = self._spec, self.tokens.ids, self.tokens.positions
        items, row = np.unique(spec.segment(positions) * spec.table_size + ids, return_inverse=True)
        flat = np.bincount(positions % spec.period * len(items) + row, minlength=spec.period * len(items))
        counts = flat.reshape(spec.period, len(items)).astype(np.float32)
        shifts = 1 if self.phase == "start" or spec.rotation else spec.period
        distinct = np.stack([items % spec.table_size, items // spec.table_size], axis=1)
        return best_of(
            parts_of(self.keys, distinct), lambda part: _standardised(spec, counts, part, shifts), self._few
        ).numbers

    # --- the sub-keys ----------------------------------------------------------------------------

    @property
    def _spec(self) -> WatermarkSpec:
        return self.keys[0].spec

    @property
    def _cropped(self) -> bool:
        return bool(self._spec.rotation and self.phase == "any" and self.max_crop)

    @property
    def _few(self) -> int:
        return PLAYED_CODED if self._spec.code_length else PLAYED

    def _subkey(self, number: int) -> WatermarkKey:
        """A sub-key by its number among those of all keys."""
        place, subkey = divmod(int(number), self._spec.subkeys)
        return self.keys[place].subkey(subkey)

    def _columns(self, numbers: Int[np.ndarray, " some"]) -> Part:
        """Some sub-keys, with their groups of the alignment's rows."""
        chosen: Part | None = None
        for part in parts_of(self.keys, self._model.distinct):
            some = part[np.flatnonzero(np.isin(part.numbers, numbers))]
            chosen = some if chosen is None else chosen.joined(some)
        assert chosen is not None
        return chosen


def _log(count: int) -> float:
    return math.log(count) if count else -math.inf


def _standardised(
    spec: WatermarkSpec, counts: Float[np.ndarray, "period rows"], part: Part, shifts: int
) -> Float[np.ndarray, " count"]:
    """Each sub-key's match count at its best shift, in units of its own standard deviation if these differ.

    Args:
        spec: the sub-keys' spec.
        counts: how often each row stands at each place of the code's period.
        part: the sub-keys, with their groups of the rows.
        shifts: how many shifts are tried.
    """
    places = np.arange(spec.period)
    codes = np.arange(spec.modulus, dtype=np.uint8)[None] if part.codes is None else part.codes
    in_group = _counts_by_group(spec.modulus, counts, part.groups)
    columns = np.arange(part.groups.shape[1])
    matched = np.stack(
        [in_group[np.roll(codes, -s, axis=1).T, places[:, None], columns].sum(axis=0) for s in range(shifts)]
    )
    if part.codes is None:
        return np.asarray(matched.max(axis=0), dtype=np.float64)
    best = matched.argmax(axis=0)
    wanted = part.codes[columns[:, None], (places + best[:, None]) % spec.period]
    squares = sum(np.square(counts.T @ (residue == wanted.T)).sum(axis=0) for residue in range(spec.modulus))
    variance = squares / spec.modulus - np.square(counts.sum(axis=0) / spec.modulus).sum()
    deviation = np.sqrt(np.maximum(variance, 1e-3))
    standardised: Float[np.ndarray, " count"] = (matched.max(axis=0) - counts.sum() / spec.modulus) / deviation
    return standardised


def _counts_by_group(
    modulus: int, counts: Float[np.ndarray, "period rows"], groups: UInt8[np.ndarray, "rows count"]
) -> Float[np.ndarray, "modulus period count"]:
    """How many tokens of each group stand at each place of the code's period, under each sub-key."""
    in_group = np.zeros((modulus, len(counts), groups.shape[1]), dtype=np.float32)
    for begin in range(0, len(groups), _ROWS_AT_ONCE):
        some = slice(begin, begin + _ROWS_AT_ONCE)
        for group in range(1, modulus):
            in_group[group] += counts[:, some] @ (groups[some] == group).astype(np.float32)
    in_group[0] = counts.sum(axis=1)[:, None] - in_group[1:].sum(axis=0)
    return in_group
