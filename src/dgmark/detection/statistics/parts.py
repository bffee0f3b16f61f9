"""The parts of a text whose pairs are tested by themselves, and sums over the distinct pairs of each.

A part begins and ends at multiples of 8, 16, 32, ... tokens; it is up to 8 such units long, and on all grids but the
first more than 4. The whole text has half of the false-positive rate, and the parts share the other half. A scan on
multi-scale grids as in Walther (2010). Knows the places of pairs only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Float, Int

WHOLE_SHARE = 0.5
FIRST_UNIT = 8
MAX_UNITS = 8
MIN_UNITS = 5
_COLUMNS = MAX_UNITS + 1
# grids are summed over together, up to this many places of pairs times grids, which then are in memory
_TOGETHER = 2**16
# tokens of texts whose layouts are kept; a longer text takes many times as long as its layout
_KEPT_TOKENS = 2048


@dataclass(frozen=True)
class _Layout:
    """The parts of some grids, which are the same for all texts of as many units.

    Sums are over a matrix with a row for each unit of each grid, the grids one below the other.

    Attributes:
        shifts: binary logarithm of each grid's unit.
        above: rows above those of each grid.
        rows: rows of the matrix.
        diagonal: the cells whose sum each part has, by beginning and length.
        allowed: whether a part of this beginning and length is tested, if it holds a pair.
        first: the first token of each part.
        last: the token after its last one, or one after the text.
        grid: the grid of each part, from 0.
    """

    shifts: Int[np.ndarray, "grids 1"]
    above: Int[np.ndarray, "grids 1"]
    rows: int
    diagonal: Int[np.ndarray, "beginnings lengths"]
    allowed: Bool[np.ndarray, "beginnings lengths"]
    first: Int[np.ndarray, "beginnings lengths"]
    last: Int[np.ndarray, "beginnings lengths"]
    grid: Int[np.ndarray, "beginnings lengths"]


# units of some grids, each with the units of the shortest part that is tested there
_Units = tuple[tuple[int, int], ...]


def _all_units(tokens: int) -> list[int]:
    """The units of a text's grids, among which the rate of the parts is divided."""
    return [unit for grid in range(tokens.bit_length()) if (unit := FIRST_UNIT << grid) < tokens]


def _layouts(tokens: int, places: int) -> Iterator[_Layout]:
    """The layouts of all grids of a text: one, or several if it is long."""
    shortest = [(unit, 1 if unit == FIRST_UNIT else MIN_UNITS) for unit in _all_units(tokens)]
    units = [(unit, least) for unit, least in shortest if least <= -(-tokens // unit)]  # of others no part fits
    together = max(1, _TOGETHER // max(1, places))
    layout = _kept_layout if tokens <= _KEPT_TOKENS else _layout
    for begin in range(0, len(units), together):
        yield layout(-(-tokens // FIRST_UNIT), tuple(units[begin : begin + together]))


def _layout(length: int, units: _Units) -> _Layout:
    """The parts of these grids in texts of so many of the first grid's units, the last of which may be shorter."""
    lengths, above = np.arange(1, MAX_UNITS + 1), list[int]()
    rows, columns = 0, list[tuple[np.ndarray, ...]]()
    for grid, (unit, shortest) in enumerate(units):
        beginnings = -(-length * FIRST_UNIT // unit)
        beginning = np.arange(beginnings)[:, None]
        # unit after unit of a part: a row and a column further
        diagonal = (rows + beginning) * _COLUMNS + (lengths - 1) * (_COLUMNS + 1)
        # parts that reach beyond the text are no longer than others
        allowed = (beginning + lengths <= beginnings) & (lengths >= shortest)
        first, last = (beginning + 0 * lengths) * unit, (beginning + lengths) * unit
        columns.append((diagonal, allowed, first, last, np.full_like(first, grid)))
        above.append(rows)
        rows += beginnings + MAX_UNITS
    shifts = np.array([unit.bit_length() - 1 for unit, _ in units])
    return _Layout(shifts[:, None], np.array(above)[:, None], rows, *map(np.concatenate, zip(*columns, strict=True)))


_kept_layout = lru_cache(maxsize=_KEPT_TOKENS // FIRST_UNIT)(_layout)


class _Grids:
    """Sums over the parts of some grids, of each beginning and length, both in units; see `Parts`.

    The text 7 5 7 5 in units of one token, at distance 1: its pairs are a b a, at the places 0-1, 1-2 and 2-3. The part
    of four tokens from 0 holds a and b, the second a being an equal one: 2. The part of three from 1 holds b and a: 2.
    So the second a counts in parts that begin after token 0, where the first one begins.

    Attributes:
        parts: which parts hold a pair and are tested.
        pairs: the distinct pairs of each.
    """

    def __init__(
        self,
        layout: _Layout,
        left: Int[np.ndarray, " places"],
        right: Int[np.ndarray, " places"],
        before: Int[np.ndarray, " places"],
    ) -> None:
        self.layout = layout
        # A place counts in the parts that begin after the equal pair before it and end with or after its own unit.
        # Its row is that unit, and its columns are the units from there back to the beginnings.
        shifts = layout.shifts  # units are powers of two: a shift is faster than a division
        row = right >> shifts
        begin = np.minimum(row - (left >> shifts), MAX_UNITS)
        end = np.maximum(np.minimum(row - (before >> shifts), MAX_UNITS), begin)
        row = (row + layout.above) * _COLUMNS
        self._begin, self._end = row + begin, row + end
        counts = self._counts(slice(None))
        self.parts = np.flatnonzero(layout.allowed & (counts > 0))
        self.pairs: Int[np.ndarray, " parts"] = counts.ravel()[self.parts]

    def counts(self, places: Int[np.ndarray, " some"]) -> Int[np.ndarray, " parts"]:
        """How many of some places, given by their numbers, count in each part."""
        return self._counts(places).ravel()[self.parts]

    def sums(self, values: Int[np.ndarray, " places"]) -> Int[np.ndarray, " parts"]:
        """The sum of a value of the places that count in each part."""
        repeated = np.tile(values, len(self._begin))
        starts, ends = (np.bincount(cells.ravel(), repeated, self._cells) for cells in (self._begin, self._end))
        return self._summed(starts, ends).ravel()[self.parts]

    def _counts(self, places: Int[np.ndarray, " some"] | slice) -> Int[np.ndarray, "beginnings lengths"]:
        starts, ends = (
            np.bincount(cells[:, places].ravel(), minlength=self._cells) for cells in (self._begin, self._end)
        )
        return self._summed(starts, ends)

    @property
    def _cells(self) -> int:
        return self.layout.rows * _COLUMNS

    def _summed(self, starts: np.ndarray, ends: np.ndarray) -> Int[np.ndarray, "beginnings lengths"]:
        cells = (starts - ends).astype(np.int64, copy=False).reshape(-1, _COLUMNS).cumsum(axis=1).ravel()
        sums: Int[np.ndarray, "beginnings lengths"] = cells[self.layout.diagonal].cumsum(axis=1)
        return sums


class Parts:
    """The parts of a text: the whole text first, then those of each grid that hold a pair.

    Args:
        tokens: how many tokens are scored.
        left: index of the left token of each place of a pair.
        right: index of the right one.
        before: the last of the left tokens of equal pairs before each place; -1 for none.

    Attributes:
        first: the first token of each part.
        last: the token after its last one.
        pairs: its distinct pairs.
        share: its share of the false-positive rate.
    """

    def __init__(
        self,
        tokens: int,
        left: Int[np.ndarray, " places"],
        right: Int[np.ndarray, " places"],
        before: Int[np.ndarray, " places"],
    ) -> None:
        self._first_places = before < 0
        first, last, share = [np.array([0])], [np.array([tokens])], [np.array([WHOLE_SHARE])]
        pairs = [np.array([np.count_nonzero(self._first_places)])]
        self._grids = [_Grids(layout, left, right, before) for layout in _layouts(tokens, len(left))]
        for grids in self._grids:
            layout = grids.layout
            first.append(layout.first.ravel()[grids.parts])
            last.append(np.minimum(layout.last.ravel()[grids.parts], tokens))
            pairs.append(grids.pairs)
            grid = layout.grid.ravel()[grids.parts]
            parts_of_grid = np.maximum(1, np.bincount(grid, minlength=len(layout.shifts)))
            share.append(((1 - WHOLE_SHARE) / (len(_all_units(tokens)) * parts_of_grid))[grid])
        self.first, self.last = np.concatenate(first), np.concatenate(last)
        self.pairs = np.concatenate(pairs)
        self.share: Float[np.ndarray, " parts"] = np.concatenate(share)

    def counts(self, places: Bool[np.ndarray, " places"]) -> Int[np.ndarray, " parts"]:
        """For each part how many of its distinct pairs are chosen, each by the earliest of its places there.

        Equal pairs are chosen alike.
        """
        whole, chosen = np.array([np.count_nonzero(places & self._first_places)]), np.flatnonzero(places)
        return np.concatenate([whole, *(grids.counts(chosen) for grids in self._grids)])

    def sums(self, values: Int[np.ndarray, " places"]) -> Int[np.ndarray, " parts"]:
        """For each part the sum of a value of its distinct pairs, each by the earliest of its places there.

        Equal pairs have equal values.
        """
        whole = np.array([values[self._first_places].sum()])
        return np.concatenate([whole, *(grids.sums(values) for grids in self._grids)])
