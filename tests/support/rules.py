"""Rules for tests, and what a rule says of a text."""

import torch
from torch import Tensor

from dgmark.decode.marks.keyed_side import side_of_rows
from dgmark.decode.marks.rules import DecodeSide, Places, Window
from dgmark.watermark.key import WatermarkKey

CPU = torch.device("cpu")


def rule_of_key(key: WatermarkKey | None, rows: int = 1) -> DecodeSide:
    """The rule of rows that all have this key, or none."""
    return side_of_rows([key] * rows, CPU)


def places_from(
    ids: Tensor, start: int, *, width: int | None = None, mask_id: int = -1, rows: Tensor | None = None
) -> Places:
    """The places from column `start` on of canvases that are all text, with positions that count its columns."""
    width = ids.shape[1] - start if width is None else width
    positions = torch.arange(start, start + width).expand(len(ids), -1)
    rows = torch.arange(len(ids)) if rows is None else rows
    return Places.all_of(Window(ids, start, positions, (0, ids.shape[1]), mask_id, rows))
