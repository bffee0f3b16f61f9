"""Group tables and hash keys on the device, and the matching sets G_i of a decode step.

The loop and the engine adapters use the same tables. A row without a key is unmarked: every candidate matches.
"""

import copy
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from dgmark.decode.pair_bits import PairKeys, distances_of, hash_parts, is_bigram
from dgmark.decode.steering import MatchingRule, Rule, Steering
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import MAX_CODE_LENGTH, PositionSpec

SLOTS = 256
# the length of the only segment of a key that does not rotate; no position is as large
_ENDLESS = 2**32


@dataclass(frozen=True)
class Tables:
    """The group tables of many keys on the device, and which of them each row has: the matching of these rows.

    Attributes:
        tables: the group of each token id under the key of each slot.
        codes: the residues of one period of each slot's position code, then zeros.
        periods_of: the period of each slot's position code, at least 1.
        rows: the slot of each row, or of each of its places; -1 without a mark.
    """

    tables: UInt8[Tensor, "slots vocab"]
    codes: UInt8[Tensor, "slots code"]
    periods_of: Int[Tensor, " slots"]
    rows: Int[Tensor, " batch"] | Int[Tensor, "batch block"]

    def of_rows(self, rows: Int[Tensor, " n"]) -> "Tables":
        """The matching of rows that have these slots."""
        return replace(self, rows=rows)

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which rows that have these slots have a mark."""
        return rows >= 0

    def periods(self, rows: int) -> Int[Tensor, " rows"]:
        """The period of the position code of each row; 0 without a mark."""
        return (self.periods_of[self.rows.clamp(min=0)] * (self.rows >= 0)).expand(rows)

    def __call__(
        self, tokens: Int[Tensor, "batch block"], positions: Int[Tensor, " block"] | Int[Tensor, "batch block"]
    ) -> Bool[Tensor, "batch block"]:
        """Whether each candidate's group equals the residue of its position; in rows without a mark everything matches.

        This never waits for the device, so it may stand in a CUDA graph.

        Args:
            tokens: token ids of the keys' vocabulary.
            positions: 0-based, counted from the row's first generated token; one list for all rows, or one for each.
        """
        rows = self.rows[:, None] if self.rows.dim() == 1 else self.rows
        slots = rows.clamp(min=0)
        residues = self.codes[slots, positions % self.periods_of[slots]]
        return (self.tables[slots, tokens] == residues) | (rows < 0)


class Keys(NamedTuple):
    """The keys of a batch on the device; `KeyStore.of` makes it.

    Attributes:
        rule: the decode side of their rule, for all slots of the store.
        rows: the slot of each row of the batch; -1 without a mark.
    """

    rule: Rule
    rows: Int[Tensor, " batch"]


class KeyStore:
    """Holds the keys of one rule that were used last: group tables, one byte a token id, or hash keys.

    Its tensors do not move, so a captured CUDA graph may read them. The slots of the rows are a new tensor for each
    batch: a graph has a buffer of its own for them.

    Args:
        table_size: the model's padded vocabulary.
        device: the device of candidates and positions.
        slots: how many keys are held at once; more than there are rows in a batch.
        distances: the smallest and the largest distance of the pairs of keys of rule "bigram" (`distances_of`); None
            for keys of rule "position".
        grows: whether there may be more slots, in new tensors, where a batch needs more; without distances.
    """

    def __init__(
        self,
        table_size: int,
        device: torch.device | str,
        slots: int = SLOTS,
        *,
        distances: tuple[int, int] | None = None,
        grows: bool = False,
    ) -> None:
        self.table_size, self.distances, self._grows = table_size, distances, grows
        held = slots if distances is None else 0
        self._tables = torch.zeros(held, table_size, dtype=torch.uint8, device=device)
        self._codes = torch.zeros(held, MAX_CODE_LENGTH, dtype=torch.uint8, device=device)
        self._periods = torch.ones(held, dtype=torch.long, device=device)
        pairs = None if distances is None else PairKeys.of([None] * slots, device, distances, fixed_shapes=True)
        self._pairs, self._size = pairs, slots
        self._slots: OrderedDict[tuple[WatermarkKey, int], int] = OrderedDict()  # least recently used first
        self._last: tuple[tuple[WatermarkKey | None, ...], Tensor] | None = None

    def of(self, rows: Sequence[WatermarkKey | None]) -> Keys:
        """The keys of a batch; those that are not held yet are copied to the device, in the order of its stream.

        They hold until the next call, which may give the slot of a key to another one.
        All tensors but `rows` are always the same ones: copy it into the tensor that a graph was captured with.

        Args:
            rows: the key or sub-key of each row; None for a row without a mark.

        Raises:
            SettingsError: a key rotates, or has sub-keys and is not one of them, or has pairs at other distances than
                the store, or the batch has more keys than slots.
            VocabularyMismatch: a key is of another vocabulary.
        """
        batch = tuple(rows)
        if self._last is None or self._last[0] != batch:
            for key in batch:
                if key is not None and (key, 0) not in self._slots:
                    check_fits(key, self.table_size)
                    if (distances := distances_of([key])) != self.distances:
                        raise SettingsError(
                            f"key {key.fingerprint} is of rule {key.spec.rule}, with distances of pairs {distances}, "
                            f"and this store is for {self.distances}: make one with distances=distances_of(keys)"
                        )
            slots = self.slots([None if key is None else (key, 0) for key in batch])
            self._last = batch, torch.tensor(slots, dtype=torch.long).to(self._tables.device, non_blocking=True)
        slots_of_rows = self._last[1]
        return Keys(self._pairs or MatchingRule(self.tables(slots_of_rows)), slots_of_rows)

    def tables(self, rows: Tensor) -> Tables:
        """The tables with these slots for the rows, or for places."""
        return Tables(self._tables, self._codes, self._periods, rows)

    def slots(self, tables: Sequence[tuple[WatermarkKey, int] | None]) -> list[int]:
        """The slot of each table, given by key and segment; -1 for None. Tables that are not held yet are copied."""
        needed = set(tables)
        return [-1 if table is None else self._slot(table, needed) for table in tables]

    def _slot(self, table: tuple[WatermarkKey, int], needed: set[tuple[WatermarkKey, int] | None]) -> int:
        if table not in self._slots:
            key, segment = table
            pairs, parts = self._pairs, hash_parts(key)
            groups, code = (None, None) if pairs else (key.tables.table(segment), key.tables.code)
            slot = len(self._slots) if len(self._slots) < self._size else self._freed(needed)
            if pairs is not None:
                for column, part in zip((pairs.first, pairs.second, pairs.number), parts, strict=True):
                    column[slot] = part
            if groups is not None and code is not None:
                self._tables[slot].copy_(torch.from_numpy(groups.copy()), non_blocking=True)
                self._codes[slot, : len(code)].copy_(torch.from_numpy(code.copy()), non_blocking=True)
                self._periods[slot] = key.tables.spec.period
            self._slots[table] = slot
        self._slots.move_to_end(table)
        return self._slots[table]

    def _freed(self, needed: set[tuple[WatermarkKey, int] | None]) -> int:
        """The slot of the table that was not used for longest and is not needed now."""
        for table in self._slots:
            if table not in needed:
                return self._slots.pop(table)
        if not self._grows:
            raise SettingsError(
                f"this batch has more than {self._size} keys, which is all that the store holds: "
                "make it with more slots"
            )
        held = self._tables, self._codes, self._periods
        self._tables, self._codes, self._periods = (torch.cat([one, torch.zeros_like(one)]) for one in held)
        self._size *= 2
        return len(self._slots)


class KeyMatching:
    """The matching sets of one key, or of one key for each row.

    Candidates must be ids of the keys' vocabulary, which `WatermarkKey.check_model` compares with the model's.

    Args:
        keys: the key of every row, or a key for each row; None for a row without a mark. Keys may rotate.
        device: the device of candidates and positions.
    """

    def __init__(self, keys: WatermarkKey | Sequence[WatermarkKey | None], device: torch.device) -> None:
        rows = [keys] if isinstance(keys, WatermarkKey) else list(keys)
        self._keys = [key for key in dict.fromkeys(rows) if key is not None]
        self._shared = len(self._keys) == 1 and None not in rows  # then any number of rows has this key
        numbers = {key: number for number, key in enumerate(self._keys)}
        owners = [0] if self._shared else [-1 if key is None else numbers[key] for key in rows]
        self._rows = torch.tensor(owners, dtype=torch.long, device=device)
        table_size = self._keys[0].spec.table_size if self._keys else 1
        self._store = KeyStore(table_size, device, max(len(self._keys), 1), grows=True)
        self._periods = torch.tensor([key.tables.spec.period for key in self._keys] or [0], device=device)
        lengths = [key.tables.spec.rotation or _ENDLESS for key in self._keys]
        self._lengths = torch.tensor(lengths, dtype=torch.long, device=device)
        self._rotates = any(length != _ENDLESS for length in lengths)
        if not self._rotates:
            self._store.slots([(key, 0) for key in self._keys])  # the number of a key is its slot

    def of_rows(self, rows: Int[Tensor, " n"]) -> "KeyMatching":
        """The matching of these rows, in this order; a row may occur several times."""
        if self._shared:
            return self
        part = copy.copy(self)
        part._rows = self._rows[rows]
        return part

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows have a key."""
        return torch.ones_like(rows, dtype=torch.bool) if self._shared else self._rows[rows] >= 0

    def periods(self, rows: int) -> Int[Tensor, " rows"]:
        """The period, in positions, of each row's position code; 0 for a row without a mark."""
        return (self._periods[self._rows.clamp(min=0)] * (self._rows >= 0)).expand(rows)

    def __call__(
        self, tokens: Int[Tensor, "batch block"], positions: Int[Tensor, " block"] | Int[Tensor, "batch block"]
    ) -> Bool[Tensor, "batch block"]:
        """Whether each candidate's group equals the residue of its position under the row's key.

        Args:
            tokens: candidates.
            positions: 0-based, counted from the first generated token; one list for all rows, or one for each row.
        """
        if not self._keys:
            return torch.ones_like(tokens, dtype=torch.bool)
        slots = self._slots_at(positions) if self._rotates else self._rows
        return self._store.tables(slots)(tokens, positions)

    def _slots_at(self, positions: Tensor) -> Int[Tensor, "batch block"]:
        """The slot of the table at each position, after copying those that are missing."""
        owner = self._rows.clamp(min=0)[:, None]
        numbers = (owner * _ENDLESS + positions // self._lengths[owner]).numpy(force=True)
        distinct, index = np.unique(numbers, return_inverse=True)
        slots = self._store.slots([(self._keys[number // _ENDLESS], number % _ENDLESS) for number in distinct.tolist()])
        at = torch.from_numpy(np.array(slots)[index.reshape(numbers.shape)]).to(owner.device)
        return at.masked_fill(self._rows[:, None] < 0, -1)


def key_steering(keys: Sequence[WatermarkKey | None], device: torch.device) -> Steering:
    """How the loop is steered by the key of each row, all of one rule; None for a row without a mark.

    Raises:
        SettingsError: the keys are of both rules, or have different distances.
    """
    if not any(map(is_bigram, keys)):
        return Steering(MatchingRule(KeyMatching(keys, device))) if any(keys) else Steering()
    if not all(key is None or is_bigram(key) for key in keys):
        raise SettingsError("keys of both rules mark no batch together: give each rule a batch of its own")
    return Steering(PairKeys.of(keys, device))


def check_fits(key: WatermarkKey, table_size: int) -> None:
    """Refuse a key that an engine cannot mark with.

    Args:
        key: a key, or one of its sub-keys.
        table_size: the model's padded vocabulary.

    Raises:
        SettingsError: the key rotates.
        VocabularyMismatch: the key is of another vocabulary.
    """
    if isinstance(key.spec, PositionSpec) and key.spec.rotation:
        raise SettingsError(
            f"key {key.fingerprint} rotates every {key.spec.rotation} positions, so a text has many group tables; "
            "engines hold one for each request: make a key of rule bigram, or one without rotation"
        )
    if key.spec.table_size != table_size:
        raise VocabularyMismatch(
            f"key {key.fingerprint} has groups for {key.spec.table_size} token ids, the model predicts {table_size}: "
            "make a key for this model with `dgmark keygen --model`"
        )
