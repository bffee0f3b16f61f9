"""The matching sets G_i as a decode step asks for them: does this candidate match this position?

One key for all rows, or a key a row. A row without a key is unmarked: everything matches in it.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.errors import SettingsError, VocabularyMismatch
from dgmark.watermark.key import WatermarkKey

# key number * _KEY + segment names a group table; no segment is as large
_KEY = 2**32


class KeyMatching:
    """The matching sets of one key, or of a key a row, with the group tables copied to the model's device.

    Candidates must be ids of the keys' vocabulary. On a CPU each call checks them. On an accelerator only the first
    call does, since a check there waits for the device: hold the key against the model once instead
    (`WatermarkKey.check_model`, as `dgmark.generate` does).

    Args:
        keys: the key of every row, or a key for each row; None for a row without a mark.
        device: where candidates and positions lie.

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
        self._owner: Tensor | None = None  # of each row the number of its key, -1 for none
        if None in rows or len(numbers) != 1:
            self._owner = torch.tensor([numbers.get(key, -1) for key in rows], dtype=torch.long, device=device)

    def of_rows(self, rows: Int[Tensor, " n"]) -> "KeyMatching":
        """The matching of these rows, in this order; a row may stand there several times."""
        if self._owner is None:
            return self
        some = object.__new__(KeyMatching)
        some._groups, some._owner = self._groups, self._owner[rows]
        return some

    def periods(self, rows: int) -> Int[Tensor, " rows"]:
        """Positions after which the wanted residues of each row repeat; 0 for a row without a mark."""
        if self._owner is None:
            return self._groups.periods.expand(rows)
        self._check_rows(rows)
        if not self._groups.keys:
            return torch.zeros_like(self._owner)
        return self._groups.periods[self._owner.clamp(min=0)] * (self._owner >= 0)

    def __call__(
        self, tokens: Int[Tensor, "batch block"], positions: Int[Tensor, " block"] | Int[Tensor, "batch block"]
    ) -> Bool[Tensor, "batch block"]:
        """Whether each candidate's group is the residue that its position wants under the row's key.

        Args:
            tokens: candidates.
            positions: 0-based, counted from the first generated token; the same in each row, or a row of them for each.

        Raises:
            VocabularyMismatch: an id outside the keys' vocabulary.
            SettingsError: another number of rows than of keys.
        """
        if self._owner is None:
            return self._groups.match(tokens, positions)
        self._check_rows(len(tokens))
        unmarked = (self._owner < 0)[:, None]
        if not self._groups.keys:
            return unmarked.expand_as(tokens)
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
                f"the keys have groups for {' and '.join(map(str, sizes))} token ids: they are not of one model, so "
                "their rows cannot be decoded together"
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
        """Whether candidates match; `owner` is the number of each row's key, None where there is one key."""
        self._check(tokens)
        if owner is None:
            wanted = self._codes[0][positions % self.keys[0].spec.period]
        else:
            wanted = self._codes[owner, positions % self.periods[owner]]
        if self._rotates:
            table = self._segments(positions, owner)
            groups = self._tables[table, tokens]
        else:
            groups = self._tables[0][tokens] if owner is None else self._tables[owner, tokens]
        return groups == wanted

    def _segments(self, positions: Tensor, owner: Tensor | None) -> Tensor:
        """The row of the loaded tables that each position needs; what is missing is loaded."""
        if owner is None:
            names = positions.numpy(force=True) // self.keys[0].spec.rotation
        else:
            names = (owner * _KEY + positions // self._lengths[owner]).numpy(force=True)
        distinct, row = np.unique(names, return_inverse=True)
        needed = tuple(distinct.tolist())
        if needed != self._loaded:
            self._load(needed)
        return torch.from_numpy(row.reshape(names.shape)).to(self._device)

    def _load(self, names: tuple[int, ...]) -> None:
        """Copy these tables to the device; the keys themselves keep those that they computed."""
        tables = np.stack([self.keys[name // _KEY].tables.table(name % _KEY) for name in names])
        self._loaded, self._tables = names, torch.from_numpy(tables).to(self._device)

    def _check(self, tokens: Tensor) -> None:
        """Refuse ids without a group; each time on a CPU, once on an accelerator."""
        if self._checked or not tokens.numel():
            return
        self._checked = tokens.device.type != "cpu"
        low, high = (int(end) for end in tokens.aminmax())
        if low < 0 or high >= self._size:
            raise VocabularyMismatch(
                f"id {low if low < 0 else high} has no group: the key has groups for the {self._size} ids of its "
                "vocabulary, so these candidates are of another model"
            )
