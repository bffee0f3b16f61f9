"""The decode side of rule "position", and the rules of keys: one table from the name of a rule to its decode side.

The loop gives each row of a batch its key; engines hold the keys that were used last in slots on the device.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Int, Int8, UInt8
from torch import Tensor

from dgmark.decode.bigram import BigramRule
from dgmark.decode.rules import Places, Rule
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import MAX_CODE_LENGTH, BigramSpec, PositionSpec

SLOTS = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class PositionRule(Rule):
    """The group tables and position codes of the rows of a batch, or of the slots of a store, on the device.

    A candidate has one bit: whether its group is the residue that its position wants (paper, the matching sets G_i).

    Attributes:
        tables: the group of each token id under each row's key.
        codes: the residues of one period of each row's position code, then zeros.
        lengths: the period of each row's position code; 0 in a row without a mark.
        rotating: the keys of rows whose groups change with the position: they are looked up on the CPU.
    """

    tables: UInt8[Tensor, "batch vocab"]
    codes: UInt8[Tensor, "batch code"]
    lengths: Int[Tensor, " batch"]
    rotating: dict[int, WatermarkKey] = field(default_factory=dict)

    has_bits: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    @classmethod
    def empty(
        cls, keys: Iterable[WatermarkKey], slots: int, device: torch.device | str, *, fixed_shapes: bool = False
    ) -> "PositionRule":
        """A rule with this many rows without a mark, which may be given keys like these.

        Raises:
            SettingsError: shapes are to be fixed, and a key rotates.
            VocabularyMismatch: the keys are of different vocabularies.
        """
        keys = list(keys)
        if fixed_shapes:
            for key in keys:
                check_no_rotation(key)
        sizes = {key.spec.table_size for key in keys}
        if len(sizes) > 1:
            raise VocabularyMismatch(f"keys of different vocabularies, {sorted(sizes)}, mark no batch together")
        return cls(
            tables=torch.zeros(slots, sizes.pop(), dtype=torch.uint8, device=device),
            codes=torch.zeros(slots, MAX_CODE_LENGTH, dtype=torch.uint8, device=device),
            lengths=torch.zeros(slots, dtype=torch.long, device=device),
        )

    def check_key(self, key: WatermarkKey) -> None:
        """Every key of the rule fits."""

    def put(self, slot: int, key: WatermarkKey) -> None:
        """Give a row a key."""
        code = key.tables.code
        if key.tables.spec.rotation:
            self.rotating[slot] = key
        else:
            self.tables[slot].copy_(torch.from_numpy(key.tables.table().copy()), non_blocking=True)
        self.codes[slot, : len(code)].copy_(torch.from_numpy(code.copy()), non_blocking=True)
        self.lengths[slot] = key.tables.spec.period

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows have a mark; row -1 has none."""
        return (rows >= 0) & (self.lengths[rows.clamp(min=0)] > 0)

    def signs(self, tokens: Int[Tensor, "places candidates"], places: Places) -> Int8[Tensor, "places candidates bits"]:
        """One bit for each candidate; see `Rule`."""
        rows, ids = places.rows, tokens.clamp(min=0)
        held = rows.clamp(min=0)
        wanted = self.codes[held, places.positions % self.lengths[held].clamp(min=1)]
        matched = self.tables[held[:, None], ids] == wanted[:, None]
        for row, key in self.rotating.items():
            at = (rows == row).nonzero()[:, 0]
            positions = places.positions[at].repeat_interleave(tokens.shape[1])
            found = key.tables.matching(ids[at].view(-1).numpy(force=True), positions.numpy(force=True))
            matched[at] = torch.from_numpy(found).to(matched.device).view(len(at), tokens.shape[1])
        exists = self.marked(rows)[:, None] & (tokens >= 0)
        return (torch.where(matched, 1, -1) * exists).to(torch.int8)[:, :, None]


KeyedRule = BigramRule | PositionRule
RULES: dict[str, type[KeyedRule]] = {"bigram": BigramRule, "position": PositionRule}


def kind_of(key: WatermarkKey) -> tuple[str | int, ...]:
    """What keys share that mark rows of one batch: their rule, and the distances of pairs."""
    if isinstance(key.spec, BigramSpec):
        return key.spec.rule, key.spec.nearest, key.spec.farthest
    return (key.spec.rule,)


def rule_class(keys: Iterable[WatermarkKey]) -> type[KeyedRule]:
    """The decode side of the rule that keys share.

    Raises:
        SettingsError: the keys are of both rules.
    """
    names = {key.spec.rule for key in keys}
    if len(names) > 1:
        raise SettingsError("keys of both rules mark no batch together: give each rule a batch of its own")
    return RULES[names.pop()]


def keyed_rule(keys: Sequence[WatermarkKey | None], device: torch.device | str) -> Rule:
    """What the loop does under the key of each row, all of one rule; None for a row without a mark.

    Raises:
        SettingsError: the keys are of both rules, or have different distances, or one has sub-keys and is not one of
            them.
    """
    given = [key for key in keys if key is not None]
    if not given:
        return Rule()
    rule = rule_class(given).empty(given, len(keys), device)
    for row, key in enumerate(keys):
        if key is not None:
            rule.put(row, key)
    return rule


def check_no_rotation(key: WatermarkKey) -> None:
    """Refuse a key whose groups change with the position, of which an engine cannot hold one table.

    Raises:
        SettingsError: the key rotates.
    """
    if isinstance(key.spec, PositionSpec) and key.spec.rotation:
        raise SettingsError(
            f"key {key.fingerprint} rotates every {key.spec.rotation} positions, so a text has many group tables; "
            "engines hold one for each request: make a key of rule bigram, or one without rotation"
        )


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
        keys: the keys that the store may be asked for, or some with the same rule and distances of pairs.
        table_size: the model's padded vocabulary.
        device: the device of candidates and positions.
        slots: how many keys are held at once; more than there are rows in a batch.

    Raises:
        SettingsError: the keys are of both rules, have different distances, or rotate.
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
        self.rule: Rule = Rule()
        if given:
            self.rule = rule_class(given).empty(given, slots, device, fixed_shapes=True)
        self._table_size, self._device, self._size = table_size, device, slots
        self._slots: OrderedDict[WatermarkKey, int] = OrderedDict()  # least recently used first
        self._last: tuple[tuple[WatermarkKey | None, ...], Keys] | None = None

    def of(self, rows: Sequence[WatermarkKey | None]) -> Keys:
        """The keys of a batch; those that are not held yet are copied to the device, in the order of its stream.

        They hold until the next call, which may give the slot of a key to another one.
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
            self._last = None  # should a key be refused, slots may have changed hands
            needed = {key for key in batch if key is not None}
            slots = [-1 if key is None else self._slot(key, needed) for key in batch]
            at = torch.tensor(slots, dtype=torch.long).to(self._device, non_blocking=True)
            self._last = batch, Keys(self.rule, at)
        return self._last[1]

    def _slot(self, key: WatermarkKey, needed: set[WatermarkKey]) -> int:
        if key not in self._slots:
            key.check_vocabulary(self._table_size)
            check_no_rotation(key)
            if not isinstance(self.rule, RULES[key.spec.rule]):
                raise SettingsError(
                    f"key {key.fingerprint} is of rule {key.spec.rule}, and this store is for keys of another rule: "
                    "make a store of keys like it"
                )
            self.rule.check_key(key)  # before a slot changes hands
            slot = len(self._slots) if len(self._slots) < self._size else self._free_slot(needed)
            self.rule.put(slot, key)
            self._slots[key] = slot
        self._slots.move_to_end(key)
        return self._slots[key]

    def _free_slot(self, needed: set[WatermarkKey]) -> int:
        """The slot of the key that was not used for longest and is not needed now."""
        for key in self._slots:
            if key not in needed:
                return self._slots.pop(key)
        raise SettingsError(
            f"this batch has more than {self._size} keys, which is all that the store holds: make it with more slots"
        )
