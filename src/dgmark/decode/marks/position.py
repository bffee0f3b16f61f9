"""The decode side of rule "position": whether a candidate's group is the one that its position wants.

The loop and the engine adapters use the same code. Knows no model.
"""

from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from jaxtyping import Bool, Int, Int8, UInt8
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.keyed_side import KeyedSide
from dgmark.decode.marks.rules import Places, Window
from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import MAX_CODE_LENGTH, PositionSpec, tables_of
from dgmark.watermark.spec import spec_as


@dataclass(frozen=True, kw_only=True, eq=False)
class PositionSide(KeyedSide):
    """The group tables and position codes of the rows of a batch, or of the slots of a store, on the device.

    A candidate has one bit: whether its group is the residue that its position wants (paper, the matching sets G_i).

    Attributes:
        tables: the group of each token id under each row's key.
        codes: the residues of one period of each row's position code, then zeros.
        lengths: the period of each row's position code; 0 in a row without a mark.
        fixed_shapes: whether no key may rotate, so that a step can be captured in a CUDA graph.
        rotating: the keys of rows whose groups change with the position: they are looked up on the CPU.
    """

    marks_by_order = True
    unused = MappingProxyType({})
    tables: UInt8[Tensor, "batch vocab"]
    codes: UInt8[Tensor, "batch code"]
    lengths: Int[Tensor, " batch"]
    fixed_shapes: bool = False
    rotating: dict[int, WatermarkKey] = field(default_factory=dict)

    @classmethod
    def kind(cls, key: WatermarkKey) -> None:
        """All keys of the rule mark rows of one batch."""

    @classmethod
    def empty(
        cls, key: WatermarkKey, slots: int, device: torch.device | str, *, fixed_shapes: bool = False
    ) -> "PositionSide":
        """A side with this many rows without a mark; see `KeyedSide.empty`."""
        return cls(
            tables=torch.zeros(slots, key.spec.table_size, dtype=torch.uint8, device=device),
            codes=torch.zeros(slots, MAX_CODE_LENGTH, dtype=torch.uint8, device=device),
            lengths=torch.zeros(slots, dtype=torch.long, device=device),
            fixed_shapes=fixed_shapes,
        )

    def check_compatible(self, key: WatermarkKey) -> None:
        """Refuse a key of another vocabulary, and one that rotates where shapes are fixed."""
        size, rotation = self.tables.shape[1], spec_as(PositionSpec, key).rotation
        if key.spec.table_size != size:
            raise VocabularyMismatch(
                f"keys of different vocabularies, {size} and {key.spec.table_size}, mark no batch together"
            )
        if self.fixed_shapes and rotation:
            raise SettingsError(
                f"key {key.fingerprint} rotates every {rotation} positions, so a text has many group tables; "
                "engines hold one for each request: make a key of rule bigram, or one without rotation"
            )

    def put(self, slot: int, key: WatermarkKey) -> None:
        """Give a row a key."""
        groups = tables_of(key)
        if groups.spec.rotation:
            self.rotating[slot] = key
        else:
            self.tables[slot].copy_(torch.from_numpy(groups.table().copy()), non_blocking=True)
        self.codes[slot, : len(groups.code)].copy_(torch.from_numpy(groups.code.copy()), non_blocking=True)
        self.lengths[slot] = groups.spec.period

    def marked(self, rows: Int[Tensor, " n"]) -> Bool[Tensor, " n"]:
        """Which of these rows have a mark; row -1 has none."""
        return (rows >= 0) & (self.lengths[rows.clamp(min=0)] > 0)

    def signs(self, tokens: Int[Tensor, "places candidates"], places: Places) -> Int8[Tensor, "places candidates bits"]:
        """One bit for each candidate: whether its group is the wanted one."""
        rows, ids = places.rows, tokens.clamp(min=0)
        slots = rows.clamp(min=0)
        wanted = self.codes[slots, places.positions % self.lengths[slots].clamp(min=1)]
        matched = self.tables[slots[:, None], ids] == wanted[:, None]
        for row, key in self.rotating.items():
            at = (rows == row).nonzero()[:, 0]
            positions = places.positions[at].repeat_interleave(tokens.shape[1])
            found = tables_of(key).matching(ids[at].view(-1).numpy(force=True), positions.numpy(force=True))
            matched[at] = torch.from_numpy(found).to(matched.device).view(len(at), tokens.shape[1])
        exists = self.marked(rows)[:, None] & (tokens >= 0)
        return (torch.where(matched, 1, -1) * exists).to(torch.int8)[:, :, None]

    @classmethod
    def alpha(cls, config: DecodeConfig) -> float:
        """0 by default: the order alone marks, as in the paper."""
        return 0.0 if config.greedy or config.alpha is None else config.alpha

    def had_choice(
        self, drawn: Bool[Tensor, "rows window"], left: Int[Tensor, " rows"], config: DecodeConfig
    ) -> Bool[Tensor, "rows window"]:
        """Those of a step that could have filled other places, and those that a keyed draw could have changed."""
        return (left > 0)[:, None] | drawn & self.steers(config)

    def preferred(self, matched: Bool[Tensor, "canvases window"]) -> Bool[Tensor, "canvases window"]:
        """The candidates that match (paper, Algorithm 2)."""
        return matched

    def matched(
        self,
        tokens: Int[Tensor, "canvases window"],
        window: Window,
        net_bits: Int[Tensor, "canvases window"] | None,  # noqa: ARG002
    ) -> Bool[Tensor, "canvases window"]:
        """Whether each candidate's group is the one that its position wants."""
        signs = self.signs(tokens.reshape(-1, 1), Places.all_of(window))
        return signs.sum((-2, -1)).view_as(tokens) >= 0
