"""The matching sets G_i for a decode step: whether each candidate matches its position.

There is one key for all rows, or one for each row. A row without a key is unmarked: every candidate matches.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.key import WatermarkKey

# a group table has the number: key number * _KEY + segment; no segment is as large as _KEY
_KEY = 2**32


class KeyMatching:
    """The matching sets of one key, or of one key for each row; the group tables are copied to the model's device.

    Candidates must be ids of the keys' vocabulary. On a CPU each call checks this. On an accelerator only the first
    call does, because the check waits for the device: check the key against the model once instead
    (`WatermarkKey.check_model`, as `dgmark.generate` does).

    Args:
        keys: the key of every row, or a key for each row; None for a row without a mark.
        device: the device of candidates and positions.

    Raises:
        VocabularyMismatch: the keys have groups for different numbers of ids.
    """

    def __init__(self, keys: WatermarkKey | Sequence[WatermarkKey | None], device: torch.device) -> None:
        rows = [keys] if isinstance(keys, WatermarkKey) else list(keys)
        numbers: dict[WatermarkKey | None, int] = {}
        for key in rows:
            if key is not None:
                numbers.setdefault(key, len(numbers))
        self._groups = _Groups(tuple(key for key in numbers if key is not None), device)
        self._owner: Tensor | None = None  # the number of each row's key, -1 for no key
        if None in rows or len(numbers) != 1:
            self._owner = torch.tensor([numbers.get(key, -1) for key in rows], dtype=torch.long, device=device)

    def of_rows(self, rows: Int[Tensor, " n"]) -> "KeyMatching":
        """The matching of these rows, in this order; a row may occur several times."""
        if self._owner is None:
            return self
        part = object.__new__(KeyMatching)
        part._groups, part._owner = self._groups, self._owner[rows]
        return part

    def periods(self, rows: int) -> Int[Tensor, " rows"]:
        """The period, in positions, of each row's position code; 0 for a row without a mark."""
        if self._owner is None:
            return self._groups.periods.expand(rows)
        self._check_rows(rows)
        if not self._groups.keys:
            return torch.zeros_like(self._owner)
        return self._groups.periods[self._owner.clamp(min=0)] * (self._owner >= 0)

    def __call__(
        self, tokens: Int[Tensor, "batch block"], positions: Int[Tensor, " block"] | Int[Tensor, "batch block"]
    ) -> Bool[Tensor, "batch block"]:
        """Whether each candidate's group equals the residue of its position under the row's key.

        Args:
            tokens: candidates.
            positions: 0-based, counted from the first generated token; one list for all rows, or one for each row.

        Raises:
            VocabularyMismatch: an id is outside the keys' vocabulary.
            SettingsError: the number of rows differs from the number of keys.
        """
        if self._owner is None:
            return self._groups.match(tokens, positions)
        self._check_rows(len(tokens))
        if not self._groups.keys:
            return torch.ones_like(tokens, dtype=torch.bool)  # the loop writes to it, so no expanded tensor
        unmarked = (self._owner < 0)[:, None]
        return self._groups.match(tokens, positions, self._owner.clamp(min=0)[:, None]) | unmarked

    def _check_rows(self, rows: int) -> None:
        if self._owner is not None and len(self._owner) != rows:
            raise SettingsError(f"there are keys for {len(self._owner)} rows, but {rows} rows of candidates")


class _Groups:
    """Group tables and position codes of several keys on a device; a segment's table is copied when it is needed."""

    def __init__(self, keys: tuple[WatermarkKey, ...], device: torch.device) -> None:
        specs = [key.spec for key in keys]
        sizes = sorted({spec.table_size for spec in specs})
        if len(sizes) > 1:
            raise VocabularyMismatch(
                f"the keys have groups for {' and '.join(map(str, sizes))} token ids: they belong to different models, "
                "so their rows cannot be decoded together"
            )
        self.keys = keys
        self._device = device
        self._size = sizes[0] if sizes else 0
        self.periods = torch.tensor([spec.period for spec in specs], dtype=torch.long, device=device)
        self._codes = torch.zeros(len(keys), max([spec.period for spec in specs], default=0), dtype=torch.uint8)
        for code, key in zip(self._codes, keys, strict=True):
            code[: key.spec.period] = torch.from_numpy(key.tables.code.copy())
        self._codes = self._codes.to(device)
        self._rotates = any(spec.rotation for spec in specs)
        # a key that does not rotate has one segment
        self._lengths = torch.tensor([spec.rotation or _KEY for spec in specs], dtype=torch.long, device=device)
        self._loaded: tuple[int, ...] = ()
        self._tables = torch.empty(0)
        self._checked = False
        if keys and not self._rotates:
            self._load(tuple(range(0, len(keys) * _KEY, _KEY)))

    def match(self, tokens: Tensor, positions: Tensor, owner: Int[Tensor, "batch 1"] | None = None) -> Tensor:
        """Whether each candidate matches; `owner` is the number of each row's key, None if there is only one key."""
        self._check(tokens)
        if owner is None:
            residues = self._codes[0][positions % self.keys[0].spec.period]
        else:
            residues = self._codes[owner, positions % self.periods[owner]]
        if self._rotates:
            table = self._segments(positions, owner)
            groups = self._tables[table, tokens]
        else:
            groups = self._tables[0][tokens] if owner is None else self._tables[owner, tokens]
        return groups == residues

    def _segments(self, positions: Tensor, owner: Tensor | None) -> Tensor:
        """The index of each position's table among the loaded ones, after loading those that are missing."""
        if owner is None:
            numbers = positions.numpy(force=True) // self.keys[0].spec.rotation
        else:
            numbers = (owner * _KEY + positions // self._lengths[owner]).numpy(force=True)
        distinct, row = np.unique(numbers, return_inverse=True)
        needed = tuple(distinct.tolist())
        if needed != self._loaded:
            self._load(needed)
        return torch.from_numpy(row.reshape(numbers.shape)).to(self._device)

    def _load(self, numbers: tuple[int, ...]) -> None:
        """Copy the tables with these numbers to the device; the keys cache the tables that they computed."""
        tables = np.stack([self.keys[number // _KEY].tables.table(number % _KEY) for number in numbers])
        self._loaded, self._tables = numbers, torch.from_numpy(tables).to(self._device)

    def _check(self, tokens: Tensor) -> None:
        """Refuse ids without a group: each time on a CPU, once on an accelerator."""
        if self._checked or not tokens.numel():
            return
        self._checked = tokens.device.type != "cpu"
        low, high = (int(end) for end in tokens.aminmax())
        if low < 0 or high >= self._size:
            raise VocabularyMismatch(
                f"id {low if low < 0 else high} has no group: the key has groups for the {self._size} ids of its "
                "vocabulary, so these candidates belong to another model"
            )
