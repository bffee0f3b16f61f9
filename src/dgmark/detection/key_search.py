"""Which of many keys or sub-keys a text is likeliest marked with, and how surely it is this one.

All candidates are ranked by a quick statistic, the block statistic or the match count, and the few best by the
statistic of the alignment test. The first are tested as keys by themselves, and their p-values pay for all candidates.
So the ranking decides what is found, and never whether a p-value is valid. Knows tokens and their positions only. Ours.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.detection.edit_test import block_statistics, front_model, sees_all
from dgmark.detection.exact_test import ExactTest
from dgmark.detection.hidden_markov import HiddenMarkovModel
from dgmark.detection.importance_sampling import Proposal
from dgmark.detection.reader import ScoredIds
from dgmark.detection.result import Mode, Phase
from dgmark.watermark.groups import GroupTables, WatermarkSpec
from dgmark.watermark.key import WatermarkKey

# candidates of each spec that are ranked by the full statistic: sub-keys, fewer where each has a position code of its
# own, and keys without sub-keys
MAX_RANKED, MAX_RANKED_CODED, MAX_RANKED_KEYS = 64, 8, 4
# statistics that differ by less are equal: rounding, which differs between machines, decides no rank
_ROUNDED = 9
# rows whose groups are in memory as floats
_ROWS_AT_ONCE = 512
# residues in memory at once, which limits how many position codes are scored in one pass
_RESIDUES_AT_ONCE = 2**22


@dataclass(frozen=True)
class KeyCandidates:
    """Some of the candidates, all of one spec.

    Attributes:
        numbers: the candidates' numbers.
        groups: each candidate's group of each row of the model's `distinct`.
        codes: each candidate's position code; None if they all have the paper's.
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


def _by_code(
    model: HiddenMarkovModel, candidates: KeyCandidates
) -> Iterator[tuple[HiddenMarkovModel, UInt8[np.ndarray, "rows some"]]]:
    """The candidates that share a position code: the model with this code, and their groups."""
    if candidates.codes is None:
        yield model, candidates.groups
        return
    for place, code in enumerate(candidates.codes):
        yield replace(model, wanted=code[model.places]), candidates.groups[:, place : place + 1]


def _by_blocks(model: HiddenMarkovModel, part: KeyCandidates) -> Float[np.ndarray, " count"]:
    if part.codes is None:
        return block_statistics(model, part.groups)
    at_once = max(1, _RESIDUES_AT_ONCE // model.wanted.size)
    return np.concatenate(
        [
            block_statistics(model, part.groups[:, some], np.moveaxis(part.codes[some][:, model.places], 0, 2))
            for some in (slice(begin, begin + at_once) for begin in range(0, len(part.numbers), at_once))
        ]
    )


def _descending(values: Float[np.ndarray, " count"]) -> Int[np.ndarray, " count"]:
    return np.argsort(-np.round(values, _ROUNDED), kind="stable")


@dataclass(frozen=True)
class KeySearch:
    """Some keys, with all their sub-keys if they have any, and a text. Keys and sub-keys are numbered through.

    Attributes:
        keys: keys of one spec, all of them or none with sub-keys to try.
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

    def likeliest(self) -> list[tuple[int, int]]:
        """What to test: places of keys among `keys`, each with the number of a sub-key (0 without sub-keys).

        Where alignment does not see all, or is not used, the one with the best match count is tested too.
        """
        if not len(self.tokens.ids):
            return [(0, 0)]
        cropped = self._spec.rotation and self.phase == "any" and self.max_crop
        numbers = [] if self.mode == "intact" and not cropped else self._aligned.numbers[:1].tolist()
        alignment_sees_all = sees_all(self._spec, self.phase, self.max_crop, len(self.tokens.ids))
        if self.mode == "intact" or (self.mode == "auto" and not alignment_sees_all):
            numbers.append(self._likeliest_by_count())
        return [divmod(number, self._subkeys) for number in dict.fromkeys(numbers)]

    def confidence(self, subkey: int) -> float:
        """The probability that a text with the first key's mark has it from this sub-key and no other of the key.

        By Bayes, the sub-keys equally likely before. The likelihood ratios are computed for the few that rank best.
        All others count 1 each, their mean over random groups, which the others do not reach as the best are taken out.
        """
        some = self._aligned if self.mode != "intact" else self._columns(self._counted)
        if subkey not in some.numbers:
            some = some.joined(self._columns(np.array([subkey])))
        logs = self._log_ratios(some)
        others = self._subkeys - len(some.numbers)
        total = np.logaddexp.reduce([*logs, math.log(others) if others else -math.inf])
        return float(np.exp(logs[some.numbers == subkey][0] - total))

    @cached_property
    def _aligned(self) -> KeyCandidates:
        """The few candidates with the best alignment: all ranked by blocks, the few by the full statistic."""
        best = best_of(self._candidates(), lambda part: _by_blocks(self._model, part), self._few)
        statistics = [one.sample(groups).statistics for one, groups in self._proposals(best)]
        return best[_descending(np.concatenate(statistics))]

    def _proposals(self, some: KeyCandidates) -> Iterator[tuple[Proposal, UInt8[np.ndarray, "rows some"]]]:
        """A proposal for the candidates that share a position code, with their groups."""
        for model, groups in _by_code(self._model, some):
            yield Proposal(model, self.mode != "edited"), groups

    def _log_ratios(self, some: KeyCandidates) -> Float[np.ndarray, " some"]:
        """Logarithm of the likelihood ratio of each candidate; the mean ratio over random groups is 1."""
        if self.mode == "intact":
            return np.concatenate([one.log_ratio_intact(groups) for one, groups in self._proposals(some)])
        ratios = [one.sample(groups).log_ratios - np.log(sum(one.shares)) for one, groups in self._proposals(some)]
        return np.concatenate(ratios)

    @cached_property
    def _model(self) -> HiddenMarkovModel:
        return front_model(self._tables(0), self.tokens.ids, self.tokens.positions, self.phase)

    def _candidates(self) -> Iterable[KeyCandidates]:
        """All candidates, with their groups of the model's rows."""
        if self._subkeys > 1:
            return subkeys_of(self.keys, self._model.distinct)
        groups, codes = [], []
        for number in range(len(self.keys)):
            tables = self._tables(number)
            groups.append(self._model.groups(tables))
            codes.append(tables.code)
        coded = np.stack(codes) if self._spec.code_length else None
        return [KeyCandidates(np.arange(len(self.keys)), np.stack(groups, axis=1), coded)]

    def _likeliest_by_count(self) -> int:
        """The candidate with the smallest exact p-value; of sub-keys, among the few with the best match counts."""
        if self._subkeys == 1:
            numbers = np.arange(len(self.keys))
        elif self._spec.code_length:
            numbers = self._counted
        else:  # all sub-keys have the same null
            return int(self._counted[0])
        p = [self._exact_p(number) for number in numbers.tolist()]
        return int(numbers[_descending(-np.log(p))[0]])

    def _exact_p(self, number: int) -> float:
        test = ExactTest(self._tables(number), self.phase, self.max_crop)
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
        subkeys = subkeys_of(self.keys, distinct)
        return best_of(subkeys, lambda part: _standardised(spec, counts, part, shifts), self._few).numbers

    @property
    def _spec(self) -> WatermarkSpec:
        return self.keys[0].spec

    @property
    def _subkeys(self) -> int:
        """Sub-keys of each key that are tried; 1 if it has none."""
        return self.keys[0].num_subkeys

    @property
    def _few(self) -> int:
        if self._subkeys == 1:
            return MAX_RANKED_KEYS
        return MAX_RANKED_CODED if self._spec.code_length else MAX_RANKED

    def _tables(self, number: int) -> GroupTables:
        """The groups of a candidate. They are not a key's own, which would keep whole tables in memory."""
        place, subkey = divmod(int(number), self._subkeys)
        key = self.keys[place]
        if key.spec.subkeys == 1:
            return GroupTables(key.spec, key.secret or b"")
        return (key if self._subkeys == 1 else key.subkey(subkey)).tables

    def _columns(self, numbers: Int[np.ndarray, " some"]) -> KeyCandidates:
        """Some candidates, with their groups of the model's rows."""
        return best_of(self._candidates(), lambda part: np.isin(part.numbers, numbers).astype(np.float64), len(numbers))


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
