"""Rules for tests, and what a rule says of a text."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from dgmark.decode.keyed_rules import keyed_rule
from dgmark.decode.rules import Places, Rule, Window
from dgmark.watermark.key import WatermarkKey

CPU = torch.device("cpu")


def rule_of_key(key: WatermarkKey | None, rows: int = 1) -> Rule:
    """The rule of rows that all have this key, or none."""
    return keyed_rule([key] * rows, CPU)


@dataclass(frozen=True)
class NothingMatches(Rule):
    """An order by matches under which every matching set is empty."""

    has_bits: ClassVar[bool] = True
    ordered: ClassVar[bool] = True

    def marked(self, rows: Tensor) -> Tensor:
        """Every row."""
        return torch.ones_like(rows, dtype=torch.bool)

    def signs(self, tokens: Tensor, places: Places) -> Tensor:  # noqa: ARG002 (no place is another)
        """One bit of 0 for each candidate."""
        return torch.full((*tokens.shape, 1), -1, dtype=torch.int8)


def places_from(
    ids: Tensor, start: int, *, width: int | None = None, mask_id: int = -1, rows: Tensor | None = None
) -> Places:
    """The places from column `start` on of canvases that are all text, with positions that count its columns."""
    width = ids.shape[1] - start if width is None else width
    positions = torch.arange(start, start + width).expand(len(ids), -1)
    rows = torch.arange(len(ids)) if rows is None else rows
    return Places.all_of(Window(ids, start, positions, (0, ids.shape[1]), mask_id, rows))
