"""`KeyStore`: the keys that an engine used last, in slots on the device, for steps of fixed shapes."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from dgmark.decode.marks.keyed_side import KeyedSide, decode_side
from dgmark.decode.marks.rules import DecodeSide, NoMark
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey

SLOTS = 256


class Keys(NamedTuple):
    """The keys of a batch on the device; `KeyStore.of` makes it.

    Attributes:
        side: the decode side of their rule, for all slots of the store.
        rows: the slot of each row of the batch; -1 without a mark.
    """

    side: DecodeSide
    rows: Int[Tensor, " batch"]


class KeyStore:
    """Holds the keys of one rule that were used last: group tables, one byte a token id, or hash keys.

    Its tensors do not move, so a captured CUDA graph may read them. The slots of the rows are a new tensor for each
    batch: a graph has a buffer of its own for them.

    Args:
        keys: the keys that the store may be asked for, or some with the same rule and distances of pairs.
        table_size: the model's padded vocabulary.
        device: the device of candidates and positions.
        slots: how many keys are stored at once; more than there are rows in a batch.

    Raises:
        SettingsError: the keys are of different rules, do not fit each other, or their rule has no steps of fixed
            shapes.
        VocabularyMismatch: a key is of another vocabulary.
    """

    def __init__(
        self,
        keys: Iterable[WatermarkKey | None],
        table_size: int,
        device: torch.device | str,
        slots: int = SLOTS,
    ) -> None:
        given = [key for key in keys if key is not None]
        for key in given:
            key.check_vocabulary(table_size)
        self._keyed: KeyedSide | None = None
        self._rule = given[0].spec.rule if given else None
        if given:
            self._keyed = decode_side(given).empty(given[0], slots, device, fixed_shapes=True)
            for key in given:
                self._keyed.check_compatible(key.for_text())
        self._table_size, self._device, self._size = table_size, device, slots
        self._slots: OrderedDict[WatermarkKey, int] = OrderedDict()  # least recently used first
        self._last: tuple[tuple[WatermarkKey | None, ...], Keys] | None = None

    @property
    def side(self) -> DecodeSide:
        """The decode side of the keys' rule, for all slots."""
        return NoMark() if self._keyed is None else self._keyed

    def of(self, rows: Sequence[WatermarkKey | None]) -> Keys:
        """The keys of a batch; those that are not stored yet are copied to the device, in the order of its stream.

        They are valid until the next call, which may give the slot of a key to another one.
        All tensors but `rows` are always the same ones: copy it into the tensor that a graph was captured with.

        Args:
            rows: the key or sub-key of each row; None for a row without a mark.

        Raises:
            SettingsError: a key rotates, has sub-keys and is not one of them, is not like the keys of the store, or the
                batch has more keys than slots.
            VocabularyMismatch: a key is of another vocabulary.
        """
        batch = tuple(rows)
        if self._last is None or self._last[0] != batch:
            self._last = None  # if a key is refused, slots may have been given to other keys
            needed = {key for key in batch if key is not None}
            slots = [-1 if key is None else self._slot(key, needed) for key in batch]
            at = torch.tensor(slots, dtype=torch.long).to(self._device, non_blocking=True)
            self._last = batch, Keys(self.side, at)
        return self._last[1]

    def _slot(self, key: WatermarkKey, needed: set[WatermarkKey]) -> int:
        if key not in self._slots:
            key.check_vocabulary(self._table_size)
            keyed = self._keyed
            if keyed is None or key.spec.rule != self._rule:
                raise SettingsError(
                    f"key {key.fingerprint} is of rule {key.spec.rule}, and this store is for keys of another rule: "
                    "make a store of keys like it"
                )
            keyed.check_compatible(key)  # before a slot is given to it
            slot = len(self._slots) if len(self._slots) < self._size else self._free_slot(needed)
            keyed.put(slot, key)
            self._slots[key] = slot
        self._slots.move_to_end(key)
        return self._slots[key]

    def _free_slot(self, needed: set[WatermarkKey]) -> int:
        """The slot of the key that was not used for longest and is not needed now."""
        for key in self._slots:
            if key not in needed:
                return self._slots.pop(key)
        raise SettingsError(
            f"this batch has more than {self._size} keys, more than the store has slots for: make it with more"
        )
