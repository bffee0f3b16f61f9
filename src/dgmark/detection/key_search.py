"""Which of many keys or sub-keys a text is likeliest marked with, and how surely it is this one.

Sub-keys are ranked by their match counts over all phases, and keys by their p-values. The first is tested as a key by
itself, and its p-value pays for all candidates. So the ranking decides what is found, and never whether a p-value is
valid. Knows tokens and their positions only. Ours.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.detection.exact_test import ExactTest
from dgmark.detection.reader import ScoredIds
from dgmark.detection.result import Phase
from dgmark.watermark.groups import GroupTables, WatermarkSpec
from dgmark.watermark.key import WatermarkKey

# sub-keys that are looked at closely: fewer where each has a position code, and so a null, of its own
MAX_RANKED, MAX_RANKED_CODED = 64, 8
# strengths of the mark that the confidence averages over: of the tokens that chance misses, the share that matches
STRENGTHS = (0.2, 0.45, 0.85)
# statistics that differ by less are equal: rounding, which differs between machines, decides no rank
_ROUNDED = 9
# rows whose groups are in memory as floats
_ROWS_AT_ONCE = 512


@dataclass(frozen=True)
class KeyCandidates:
    """Some of the sub-keys of keys of one spec.

    Attributes:
        numbers: the sub-keys' numbers.
        groups: each sub-key's group of each row: of a token, or with rotation of a token and its segment.
        codes: each sub-key's position code; None if they all have the paper's.
    """

    numbers: Int[np.ndarray, " count"]
    groups: UInt8[np.ndarray, "rows count"]
    codes: UInt8[np.ndarray, "count period"] | None = None

    def __getitem__(self, places: Int[np.ndarray, " some"]) -> "KeyCandidates":
        codes = None if self.codes is None else self.codes[places]
        return KeyCandidates(self.numbers[places], self.groups[:, places], codes)

    def joined(self, other: "KeyCandidates") -> "KeyCandidates":
        """These candidates and others."""
        codes = None
        if self.codes is not None and other.codes is not None:
            codes = np.concatenate([self.codes, other.codes])
        groups = np.concatenate([self.groups, other.groups], axis=1)
        return KeyCandidates(np.concatenate([self.numbers, other.numbers]), groups, codes)


def subkeys_of(keys: Sequence[WatermarkKey], distinct: Int[np.ndarray, "rows 2"]) -> Iterator[KeyCandidates]:
    """All sub-keys of keys of one spec, numbered through, with their groups of tokens.

    Args:
        keys: the keys.
        distinct: the tokens' ids and segments.
    """
    spec = keys[0].spec
    segments = np.unique(distinct[:, 1]).tolist()
    rows = [np.flatnonzero(distinct[:, 1] == segment) for segment in segments]
    for place, key in enumerate(keys):
        streams = (
            key.subkeys.chunks(distinct[of, 0], of_segment) for of, of_segment in zip(rows, segments, strict=True)
        )
        for pieces in zip(*streams, strict=True):
            first, groups = pieces[0]
            count = groups.shape[1]
            if len(segments) > 1:
                groups = np.empty((len(distinct), count), dtype=np.uint8)
                for of, (_, piece) in zip(rows, pieces, strict=True):
                    groups[of] = piece
            codes = key.subkeys.codes[first : first + count] if spec.code_length else None
            yield KeyCandidates(place * spec.subkeys + first + np.arange(count), groups, codes)


def best_of(
    parts: Iterable[KeyCandidates], statistics: Callable[[KeyCandidates], Float[np.ndarray, " count"]], few: int
) -> KeyCandidates:
    """The few candidates with the largest statistics, the best first; of equals the first."""
    best: KeyCandidates | None = None
    values: Float[np.ndarray, " few"] = np.empty(0)
    for part in parts:
        both = part if best is None else best.joined(part)
        values = np.concatenate([values, statistics(part)])
        order = _descending(values)[:few]
        best, values = both[order], values[order]
    if best is None:
        raise ValueError("there are no candidates")
    return best


def _descending(values: Float[np.ndarray, " count"]) -> Int[np.ndarray, " count"]:
    return np.argsort(-np.round(values, _ROUNDED), kind="stable")


@dataclass(frozen=True)
class KeySearch:
    """Some keys, with all their sub-keys if they have any, and a text. Keys and sub-keys are numbered through.

    Attributes:
        keys: keys of one spec, all of them or none with sub-keys to try.
        tokens: the scored tokens.
        phase: "any" allows for tokens missing at the front.
        max_crop: with rotating keys and phase "any", the largest number of tokens that may be missing.
    """

    keys: Sequence[WatermarkKey]
    tokens: ScoredIds
    phase: Phase
    max_crop: int

    def likeliest(self) -> tuple[int, int]:
        """What to test: the place of a key among `keys`, and the number of a sub-key (0 without sub-keys)."""
        if not len(self.tokens.ids):
            return 0, 0
        numbers = np.arange(len(self.keys)) if self._subkeys == 1 else self._best.numbers
        if self._subkeys > 1 and not self._spec.code_length:
            numbers = numbers[:1]  # all sub-keys have the same null, so the best count has the smallest p-value
        if len(numbers) > 1:
            numbers = numbers[_descending(np.array([-math.log(self._exact_p(number)) for number in numbers.tolist()]))]
        place, subkey = divmod(int(numbers[0]), self._subkeys)
        return place, subkey

    def confidence(self, subkey: int, shift: int) -> float:
        """The probability that a text with the first key's mark has it from this sub-key and no other of the key.

        By Bayes, the sub-keys equally likely before. The likelihood ratios are computed for the few with the best match
        counts. All others count 1 each, their mean over random groups, which the others do not reach as the best are
        taken out.

        Args:
            subkey: the number of the sub-key; the result is 0 if it is not among the few.
            shift: the shift at which it was found. With a rotating key, this is the one that is looked at.
        """
        if self._spec.rotation and shift:
            tokens = ScoredIds(self.tokens.ids, self.tokens.positions + shift)
            return replace(self, tokens=tokens).confidence(subkey, 0)
        some = self._best
        logs = _log_ratios(self._spec, self._counted[1], some, self._shifts)
        others = self._subkeys - len(some.numbers)
        total = np.logaddexp.reduce([*logs, math.log(others) if others else -math.inf])
        return float(np.exp(logs[some.numbers == subkey] - total).sum())

    def _exact_p(self, number: int) -> float:
        test = ExactTest(self._tables(number), self.phase, self.max_crop)
        return min(h.p_value for h in test.hypotheses(self.tokens.ids, self.tokens.positions))

    @cached_property
    def _best(self) -> KeyCandidates:
        """The few sub-keys with the best match counts. Crops of rotating keys are left out."""
        distinct, counts = self._counted
        few = MAX_RANKED_CODED if self._spec.code_length else MAX_RANKED
        subkeys = subkeys_of(self.keys, distinct)
        return best_of(subkeys, lambda part: _standardised(self._spec, counts, part, self._shifts), few)

    @property
    def _shifts(self) -> int:
        """How many shifts the match counts are taken at."""
        return 1 if self.phase == "start" or self._spec.rotation else self._spec.period

    @cached_property
    def _counted(self) -> tuple[Int[np.ndarray, "rows 2"], Float[np.ndarray, "period rows"]]:
        """The text's distinct tokens with their segments, and how often each is at each place of the code's period."""
        spec, ids, positions = self._spec, self.tokens.ids, self.tokens.positions
        items, row = np.unique(spec.segment(positions) * spec.table_size + ids, return_inverse=True)
        flat = np.bincount(positions % spec.period * len(items) + row, minlength=spec.period * len(items))
        distinct = np.stack([items % spec.table_size, items // spec.table_size], axis=1)
        return distinct, flat.reshape(spec.period, len(items)).astype(np.float32)

    @property
    def _spec(self) -> WatermarkSpec:
        return self.keys[0].spec

    @property
    def _subkeys(self) -> int:
        """Sub-keys of each key that are tried; 1 if it has none."""
        return self.keys[0].num_subkeys

    def _tables(self, number: int) -> GroupTables:
        """The groups of a candidate. They are not a key's own, which would keep whole tables in memory."""
        place, subkey = divmod(int(number), self._subkeys)
        key = self.keys[place]
        if key.spec.subkeys == 1:
            return GroupTables(key.spec, key.secret or b"")
        return (key if self._subkeys == 1 else key.subkey(subkey)).tables


def _standardised(
    spec: WatermarkSpec, counts: Float[np.ndarray, "period rows"], part: KeyCandidates, shifts: int
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


def _log_ratios(
    spec: WatermarkSpec, counts: Float[np.ndarray, "period rows"], some: KeyCandidates, shifts: int
) -> Float[np.ndarray, " some"]:
    """Logarithm of each sub-key's likelihood ratio if nobody edited the text; the mean over random groups is 1.

    Args:
        spec: the sub-keys' spec.
        counts: how often each row stands at each place of the code's period.
        some: the sub-keys, with their groups of the rows.
        shifts: how many shifts are equally likely.
    """
    at = (np.arange(spec.period) + np.arange(shifts)[:, None]) % spec.period
    codes = np.arange(spec.modulus, dtype=np.uint8)[None] if some.codes is None else some.codes
    rows = np.arange(len(some.groups))
    logs = np.empty((len(STRENGTHS), shifts, len(some.numbers)))
    for of_code, code in enumerate(codes):
        ours = slice(None) if some.codes is None else slice(of_code, of_code + 1)
        # how many tokens of each row want each residue, at each shift
        wanted = np.tensordot(counts.T.astype(np.float64), np.eye(spec.modulus)[code[at]], axes=(1, 1))
        for part, strength in enumerate(STRENGTHS):
            odds = wanted * (np.log1p((spec.modulus - 1) * strength) - np.log1p(-strength))
            odds -= odds.max(axis=2, keepdims=True)
            odds -= np.log(np.exp(odds).mean(axis=2, keepdims=True))
            logs[part, :, ours] = odds[rows[:, None], :, some.groups[:, ours]].sum(axis=0).T
    total: Float[np.ndarray, " some"] = np.logaddexp.reduce(logs, axis=(0, 1)) - np.log(len(STRENGTHS) * shifts)
    return total


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
