"""The parts of a text whose pairs are tested by themselves, and sums over the distinct pairs of each.

A part begins and ends at multiples of 8, 16, 32, ... tokens; it is up to 8 such units long, and on all grids but the
first more than 4. The whole text has half of the false-positive rate, and the parts share the other half. A scan on
multi-scale grids as in Walther (2010). Knows the places of pairs only.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

WHOLE_SHARE = 0.5
FIRST_UNIT = 8
MAX_UNITS = 8
MIN_UNITS = 5


class _Grid:
    """Sums over the parts of one grid, of each beginning and length, both in units.

    The text 7 5 7 5 in units of one token, at distance 1: its pairs are a b a, at the places 0-1, 1-2 and 2-3. The part
    of four tokens from 0 holds a and b, the second a being an equal one: 2. The part of three from 1 holds b and a: 2.
    So the second a counts in parts that begin after token 0, where the first one begins.

    Args:
        tokens: the tokens of the text.
        unit: the tokens of a unit.
        left: index of the left token of each place of a pair.
        right: index of the right one.
        before: the last of the left tokens of equal pairs before each place; -1 for none.

    Attributes:
        beginnings: how many units the text has.
    """

    def __init__(
        self,
        tokens: int,
        unit: int,
        left: Int[np.ndarray, " places"],
        right: Int[np.ndarray, " places"],
        before: Int[np.ndarray, " places"],
    ) -> None:
        self.beginnings, columns, shift = -(-tokens // unit), MAX_UNITS + 1, unit.bit_length() - 1
        self._rows = self.beginnings + MAX_UNITS
        # A place counts in the parts that begin after the equal pair before it and end with or after its own unit.
        # Its row is that unit, and its columns are the units from there back to the beginnings.
        row = right >> shift  # units are powers of two: a shift is faster than a division
        begin = np.minimum(row - (left >> shift), MAX_UNITS)
        end = np.maximum(np.minimum(row - (before >> shift), MAX_UNITS), begin)
        self._begin, self._end = row * columns + begin, row * columns + end
        # unit after unit of a part: a row and a column further
        self._diagonal = np.arange(self.beginnings)[:, None] * columns + np.arange(MAX_UNITS) * (columns + 1)

    def counts(self, places: Int[np.ndarray, " some"] | slice) -> Int[np.ndarray, "beginnings lengths"]:
        """How many of some places, given by their numbers, count in each part."""
        return self._summed(*(np.bincount(cells[places], minlength=self._cells) for cells in (self._begin, self._end)))

    def sums(self, values: Int[np.ndarray, " places"]) -> Int[np.ndarray, "beginnings lengths"]:
        """The sum of a value of the places that count in each part."""
        starts, ends = (np.bincount(cells, values, minlength=self._cells) for cells in (self._begin, self._end))
        return self._summed(starts, ends)

    @property
    def _cells(self) -> int:
        return self._rows * (MAX_UNITS + 1)

    def _summed(self, starts: np.ndarray, ends: np.ndarray) -> Int[np.ndarray, "beginnings lengths"]:
        cells = (starts - ends).astype(np.int64).reshape(self._rows, -1).cumsum(axis=1).ravel()
        sums: Int[np.ndarray, "beginnings lengths"] = cells[self._diagonal].cumsum(axis=1)
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
        self._first_places = before < 0
        units = [unit for grid in range(tokens.bit_length()) if (unit := FIRST_UNIT << grid) < tokens]
        first, last, share = [np.array([0])], [np.array([tokens])], [np.array([WHOLE_SHARE])]
        pairs = [np.array([np.count_nonzero(self._first_places)])]
        self._grids = list[tuple[_Grid, tuple[Int[np.ndarray, " parts"], ...]]]()
        for unit in units:
            grid = _Grid(tokens, unit, left, right, before)
            shortest = 1 if unit == FIRST_UNIT else MIN_UNITS
            if shortest > grid.beginnings:
                break  # shorter parts are on the grid before
            counts = grid.counts(slice(None))
            # parts that reach beyond the text are no longer than others
            lengths = np.arange(1, MAX_UNITS + 1)
            inside = np.arange(grid.beginnings)[:, None] + lengths <= grid.beginnings
            inside &= (lengths >= shortest) & (counts > 0)
            parts = beginning, length = np.nonzero(inside)
            self._grids.append((grid, parts))
            first.append(beginning * unit)
            last.append(np.minimum((beginning + length + 1) * unit, tokens))
            pairs.append(counts[parts])
            share.append(np.full(len(beginning), (1 - WHOLE_SHARE) / (len(units) * max(1, len(beginning)))))
        self.first, self.last = np.concatenate(first), np.concatenate(last)
        self.pairs = np.concatenate(pairs)
        self.share: Float[np.ndarray, " parts"] = np.concatenate(share)

    def counts(self, places: Bool[np.ndarray, " places"]) -> Int[np.ndarray, " parts"]:
        """For each part how many of its distinct pairs are chosen, each by the earliest of its places there.

        Args:
            places: whether each place is chosen; equal pairs are chosen alike.
        """
        whole, chosen = np.array([np.count_nonzero(places & self._first_places)]), np.flatnonzero(places)
        return np.concatenate([whole, *(grid.counts(chosen)[parts] for grid, parts in self._grids)])

    def sums(self, values: Int[np.ndarray, " places"]) -> Int[np.ndarray, " parts"]:
        """For each part the sum of a value of its distinct pairs, each by the earliest of its places there.

        Args:
            values: the value at each place; equal pairs have equal ones.
        """
        whole = np.array([values[self._first_places].sum()])
        return np.concatenate([whole, *(grid.sums(values)[parts] for grid, parts in self._grids)])
