"""The group tables of many keys in one tensor on the device, so that rows name their keys by number.

The tables stay where they are for as long as the store lives, as a captured CUDA graph needs it; the numbers of the
rows are a new tensor for each batch, so a graph has a buffer of its own for them.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from torch import Tensor

from dgmark.engines.core import Keys
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.groups import MAX_CODE_LENGTH
from dgmark.watermark.key import WatermarkKey

SLOTS = 256


class KeyStore:
    """Holds the keys that were used last; a table costs one byte a token id.

    Args:
        table_size: the model's padded vocabulary.
        device: the device of candidates and positions.
        slots: how many keys are held at once; more than there are rows in a batch.

    Raises:
        SettingsError: `slots` is not a whole number of at least 1.
    """

    def __init__(self, table_size: int, device: torch.device | str, slots: int = SLOTS) -> None:
        check_slots(slots)
        self.table_size = table_size
        self._tables = torch.zeros(slots, table_size, dtype=torch.uint8, device=device)
        self._codes = torch.zeros(slots, MAX_CODE_LENGTH, dtype=torch.uint8, device=device)
        self._periods = torch.ones(slots, dtype=torch.long, device=device)
        self._slots: OrderedDict[WatermarkKey, int] = OrderedDict()  # least recently used first
        self._last: tuple[tuple[WatermarkKey | None, ...], Tensor] | None = None

    def of(self, rows: Sequence[WatermarkKey | None]) -> Keys:
        """The keys of a batch; those that are not held yet are copied to the device, in the order of its stream.

        They hold until the next call, which may give the slot of a key to another one.
        The first three tensors are always the same ones. `rows` is not: copy it into the tensor that a graph was
        captured with.

        Args:
            rows: the key or sub-key of each row; None for a row without a mark.

        Raises:
            SettingsError: a key rotates, or has sub-keys and is not one of them, or the batch has more keys than slots.
            VocabularyMismatch: a key is of another vocabulary.
        """
        batch = tuple(rows)
        if self._last is None or self._last[0] != batch:
            numbers = [-1 if key is None else self._slot(key, batch) for key in batch]
            self._last = batch, torch.tensor(numbers, dtype=torch.long).to(self._tables.device, non_blocking=True)
        return Keys(self._tables, self._codes, self._periods, self._last[1])

    def _slot(self, key: WatermarkKey, batch: tuple[WatermarkKey | None, ...]) -> int:
        if key not in self._slots:
            check_fits(key, self.table_size)
            table, code = key.tables.table(), key.tables.code
            slot = len(self._slots) if len(self._slots) < len(self._tables) else self._freed(batch)
            self._tables[slot].copy_(torch.from_numpy(table.copy()), non_blocking=True)
            self._codes[slot, : len(code)].copy_(torch.from_numpy(code.copy()), non_blocking=True)
            self._periods[slot] = key.spec.period
            self._slots[key] = slot
        self._slots.move_to_end(key)
        return self._slots[key]

    def _freed(self, batch: tuple[WatermarkKey | None, ...]) -> int:
        """The slot of the key that was not used for longest and is not in this batch."""
        for key in self._slots:
            if key not in batch:
                return self._slots.pop(key)
        raise SettingsError(
            f"this batch has more than {len(self._tables)} keys, which is all that the store holds: "
            "make it with more slots"
        )


def check_slots(slots: object) -> None:
    """Refuse a number of slots that holds no key.

    Raises:
        SettingsError: it is not a whole number of at least 1.
    """
    if type(slots) is not int or slots < 1:
        raise SettingsError(f"slots {slots!r} is not a whole number of at least 1: give more than a batch has requests")


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
            "engines hold one for each request: make a key with sub-keys instead of rotation"
        )
    if key.spec.table_size != table_size:
        raise VocabularyMismatch(
            f"key {key.fingerprint} has groups for {key.spec.table_size} token ids, the model predicts {table_size}: "
            "make a key for this model with `dgmark keygen --model`"
        )
