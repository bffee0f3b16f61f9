"""Group tables and hash keys on the device, and the matching sets G_i of a decode step.

The loop and the engine adapters use the same tables. A row without a key is unmarked: every candidate matches.
"""

import copy
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from dgmark.decode.pair_levels import KeyPairs, PairKeys, distances_of, hash_parts, is_bigram
from dgmark.decode.steering import Steering
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.groups import MAX_CODE_LENGTH
from dgmark.watermark.key import WatermarkKey

SLOTS = 256
# the length of the only segment of a key that does not rotate; no position is as large
_ENDLESS = 2**32


class Keys(NamedTuple):
    """The group tables of many keys on the device, and the key of each row; `KeyStore.of` makes it.

    Attributes:
        tables: the group of each token id under the key of each slot.
        codes: the residues of one period of each slot's position code, then zeros.
        periods: the period of each slot's position code, at least 1.
        rows: the slot of each row of the batch, or of each of its places; -1 without a mark.
        pairs: the hash key of each slot; None if the store takes no keys of rule "bigram".
    """

    tables: UInt8[Tensor, "slots vocab"]
    codes: UInt8[Tensor, "slots code"]
    periods: Int[Tensor, " slots"]
    rows: Int[Tensor, " batch"] | Int[Tensor, "batch block"]
    pairs: PairKeys | None = None


def matching(
    candidates: Int[Tensor, "batch block"],
    positions: Int[Tensor, " block"] | Int[Tensor, "batch block"],
    keys: Keys,
) -> Bool[Tensor, "batch block"]:
    """Whether each candidate's group equals the residue of its position; in rows without a mark everything matches.

    It says nothing of rows of rule "bigram". This never waits for the device, so it may stand in a CUDA graph.

    Args:
        candidates: token ids of the keys' vocabulary.
        positions: 0-based, counted from the row's first generated token; one list for all rows, or one for each row.
        keys: the keys of the rows.
    """
    rows = keys.rows[:, None] if keys.rows.dim() == 1 else keys.rows
    slots = rows.clamp(min=0)
    residues = keys.codes[slots, positions % keys.periods[slots]]
    return (keys.tables[slots, candidates] == residues) | (rows < 0)


class KeyStore:
    """Holds the keys that were used last: group tables, one byte a token id, and hash keys. Its tensors do not move.

    So a captured CUDA graph may read them. The slots of the rows are a new tensor for each batch: a graph has a buffer
    of its own for them.

    Args:
        table_size: the model's padded vocabulary.
        device: the device of candidates and positions.
        slots: how many tables are held at once; more than there are rows in a batch.
        distances: the smallest and the largest distance of the pairs of all keys of rule "bigram" (`distances_of`);
            None takes no such keys.
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
        self._tables = torch.zeros(slots, table_size, dtype=torch.uint8, device=device)
        self._codes = torch.zeros(slots, MAX_CODE_LENGTH, dtype=torch.uint8, device=device)
        self._periods = torch.ones(slots, dtype=torch.long, device=device)
        self._pairs = None if distances is None else PairKeys.of([None] * slots, torch.device(device), distances)
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
                    if is_bigram(key) and (distances := distances_of([key])) != self.distances:
                        raise SettingsError(
                            f"key {key.fingerprint} is of rule bigram, with pairs at distances {distances}, and this "
                            f"store takes {self.distances or 'no such keys'}: make it with distances={distances}, and "
                            "give `mark` the committed tokens"
                        )
            slots = self.slots([None if key is None else (key, 0) for key in batch])
            self._last = batch, torch.tensor(slots, dtype=torch.long).to(self._tables.device, non_blocking=True)
        return self.keys(self._last[1])

    def keys(self, rows: Tensor) -> Keys:
        """The tables with these slots for the rows."""
        return Keys(self._tables, self._codes, self._periods, rows, self._pairs)

    def slots(self, tables: Sequence[tuple[WatermarkKey, int] | None]) -> list[int]:
        """The slot of each table, given by key and segment; -1 for None. Tables that are not held yet are copied."""
        needed = set(tables)
        return [-1 if table is None else self._slot(table, needed) for table in tables]

    def _slot(self, table: tuple[WatermarkKey, int], needed: set[tuple[WatermarkKey, int] | None]) -> int:
        if table not in self._slots:
            key, segment = table
            parts = hash_parts(key)
            # a key of rule bigram leaves the tables of its slot as they are
            tables = None if self._pairs is not None and is_bigram(key) else key.tables
            groups = None if tables is None else tables.table(segment)
            slot = len(self._slots) if len(self._slots) < len(self._tables) else self._freed(needed)
            if self._pairs is not None:
                for column, part in zip(self._pairs[:3], parts, strict=True):
                    column[slot] = part
            if tables is not None and groups is not None:
                self._tables[slot].copy_(torch.from_numpy(groups.copy()), non_blocking=True)
                self._codes[slot, : len(tables.code)].copy_(torch.from_numpy(tables.code.copy()), non_blocking=True)
                self._periods[slot] = key.spec.period
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
                f"this batch has more than {len(self._tables)} keys, which is all that the store holds: "
                "make it with more slots"
            )
        held = self._tables, self._codes, self._periods
        self._tables, self._codes, self._periods = (torch.cat([one, torch.zeros_like(one)]) for one in held)
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
        self._periods = torch.tensor([key.spec.period for key in self._keys] or [0], device=device)
        lengths = [key.spec.rotation or _ENDLESS for key in self._keys]
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
        return matching(tokens, positions, self._store.keys(slots))

    def _slots_at(self, positions: Tensor) -> Int[Tensor, "batch block"]:
        """The slot of the table at each position, after copying those that are missing."""
        owner = self._rows.clamp(min=0)[:, None]
        numbers = (owner * _ENDLESS + positions // self._lengths[owner]).numpy(force=True)
        distinct, index = np.unique(numbers, return_inverse=True)
        slots = self._store.slots([(self._keys[number // _ENDLESS], number % _ENDLESS) for number in distinct.tolist()])
        at = torch.from_numpy(np.array(slots)[index.reshape(numbers.shape)]).to(owner.device)
        return at.masked_fill(self._rows[:, None] < 0, -1)


def key_steering(keys: Sequence[WatermarkKey | None], device: torch.device) -> Steering:
    """How the loop is steered by the key of each row, of either rule; None for a row without a mark."""
    matching = KeyMatching([None if is_bigram(key) else key for key in keys], device)
    return Steering(matching, KeyPairs(keys, device) if any(map(is_bigram, keys)) else None)


def check_fits(key: WatermarkKey, table_size: int) -> None:
    """Refuse a key that an engine cannot mark with.

    Args:
        key: a key, or one of its sub-keys.
        table_size: the model's padded vocabulary.

    Raises:
        SettingsError: the key rotates.
        VocabularyMismatch: the key is of another vocabulary.
    """
    if key.spec.rotation:
        raise SettingsError(
            f"key {key.fingerprint} rotates every {key.spec.rotation} positions, so a text has many group tables; "
            "engines hold one for each request: make a key of rule bigram, or one without rotation"
        )
    if key.spec.table_size != table_size:
        raise VocabularyMismatch(
            f"key {key.fingerprint} has groups for {key.spec.table_size} token ids, the model predicts {table_size}: "
            "make a key for this model with `dgmark keygen --model`"
        )
