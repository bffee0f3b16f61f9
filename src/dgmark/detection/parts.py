"""The parts of a text whose pairs are tested by themselves, and sums over the distinct pairs of each.

A part begins and ends at multiples of 8, 16, 32, ... tokens; it is up to 8 such units long, and on all grids but the
first more than 4. The whole text has half of the false-positive rate, and the parts share the other half. A scan on
multi-scale grids as in Walther (2010). Knows the places of pairs only.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

WHOLE_SHARE = 0.5
FIRST_UNIT = 8
MAX_UNITS = 8
MIN_UNITS = 5


class _Grid(NamedTuple):
    """The parts of one grid.

    Attributes:
        unit: the tokens of a unit.
        beginnings: how many units the text has.
        beginning: the unit that each part begins with.
        length: its further units.
    """

    unit: int
    beginnings: int
    beginning: Int[np.ndarray, " parts"]
    length: Int[np.ndarray, " parts"]


class Parts:
    """The parts of a text: the whole text first, then those of each grid that hold a pair.

    Args:
        tokens: how many tokens are scored.
        left: index of the left token of each place of a pair.
        right: index of the right one.
        before: the last of the left tokens of equal pairs before each place; -1 for none.

    Attributes:
        first: the first token of each part.
        last: the token behind its last one.
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
        self._left, self._right, self._before = left, right, before
        one, units = np.ones(len(left), dtype=np.int64), [FIRST_UNIT << grid for grid in range(tokens.bit_length())]
        units = [unit for unit in units if unit < tokens]
        first, last, share = [np.array([0])], [np.array([tokens])], [np.array([WHOLE_SHARE])]
        pairs, self._grids = [np.array([np.count_nonzero(before < 0)])], list[_Grid]()
        for unit in units:
            shortest, beginnings = 1 if unit == FIRST_UNIT else MIN_UNITS, -(-tokens // unit)
            if shortest > beginnings:
                break  # shorter parts are on the grid before
            counts = self._sums(unit, beginnings, one)
            # parts that reach beyond the text are no longer than others
            lengths = np.arange(1, MAX_UNITS + 1)
            inside = np.arange(beginnings)[:, None] + lengths <= beginnings
            inside &= (lengths >= shortest) & (counts > 0)
            grid = _Grid(unit, beginnings, *np.nonzero(inside))
            begin = grid.beginning * unit
            self._grids.append(grid)
            first.append(begin)
            last.append(np.minimum(begin + (grid.length + 1) * unit, tokens))
            pairs.append(counts[grid.beginning, grid.length])
            share.append(np.full(len(begin), (1 - WHOLE_SHARE) / (len(units) * max(1, len(begin)))))
        self.first, self.last = np.concatenate(first), np.concatenate(last)
        self.pairs = np.concatenate(pairs)
        self.share: Float[np.ndarray, " parts"] = np.concatenate(share)

    def sums(self, values: Int[np.ndarray, " places"]) -> Int[np.ndarray, " parts"]:
        """For each part the sum of a value of its distinct pairs, each by the earliest of its places there.

        Args:
            values: the value at each place; equal pairs have equal ones.
        """
        found = [np.array([values[self._before < 0].sum()])]
        for unit, beginnings, beginning, length in self._grids:
            found.append(self._sums(unit, beginnings, values)[beginning, length])
        return np.concatenate(found)

    def _sums(
        self, unit: int, beginnings: int, values: Int[np.ndarray, " places"]
    ) -> Int[np.ndarray, "beginnings lengths"]:
        """The sums of the part of each beginning and length, both in units.

        The text 7 5 7 5 in units of one token, at distance 1: its pairs are a b a, at the places 0-1, 1-2 and 2-3. The
        part of four tokens from 0 holds a and b, the second a being an equal one: 2. The part of three from 1 holds b
        and a: 2. So the second a counts in parts that begin after token 0, where the first one begins.
        """
        some = np.flatnonzero(values)
        left, right, before = self._left[some] // unit, self._right[some] // unit, self._before[some] // unit
        # A place counts in the parts that begin after the equal pair before it and end with or after its own unit.
        # Its row is that unit, and its columns are the units from there back to the beginnings.
        begin = np.minimum(right - left, MAX_UNITS)
        end = np.maximum(np.minimum(right - before, MAX_UNITS), begin)
        rows, columns = beginnings + MAX_UNITS, MAX_UNITS + 1
        row, own = right * columns, values[some]
        weights = own if np.any(own > 1) else None  # counted without floats, which is faster
        starts, ends = (np.bincount(row + column, weights, minlength=rows * columns) for column in (begin, end))
        cells = (starts - ends).astype(np.int64).reshape(rows, columns).cumsum(axis=1).reshape(rows * columns)
        # unit after unit of a part: a row and a column further
        diagonal = np.arange(beginnings)[:, None] * columns + np.arange(MAX_UNITS) * (columns + 1)
        sums: Int[np.ndarray, "beginnings lengths"] = cells[diagonal].cumsum(axis=1)
        return sums
