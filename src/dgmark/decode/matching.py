"""The matching set G_i as a decode step asks for it: does this candidate match this position?"""

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.watermark.key import WatermarkKey


class KeyMatching:
    """The matching sets of a key, its group tables copied to the model's device segment by segment."""

    def __init__(self, key: WatermarkKey, device: torch.device) -> None:
        self._key = key
        self._device = device
        self._code = torch.from_numpy(key.tables.code.copy()).to(device)
        self._segments: tuple[int, ...] = ()
        self._tables = torch.empty(0)

    @property
    def period(self) -> int:
        """Positions after which the wanted residues repeat."""
        return self._key.spec.period

    def __call__(
        self, tokens: Int[Tensor, "batch block"], positions: Int[Tensor, " block"]
    ) -> Bool[Tensor, "batch block"]:
        """Whether each candidate's group is the residue that its position wants."""
        spec = self._key.spec
        segments = spec.segment(positions.cpu().numpy()) if spec.rotation else np.zeros(len(positions), dtype=np.int64)
        needed, row = np.unique(segments, return_inverse=True)
        if tuple(needed) != self._segments:
            self._segments = tuple(needed)
            tables = np.stack([self._key.tables.table(int(segment)) for segment in needed])
            self._tables = torch.from_numpy(tables).to(self._device)
        groups = self._tables[torch.from_numpy(row).to(self._device), tokens]
        return groups == self._code[positions % spec.period]
