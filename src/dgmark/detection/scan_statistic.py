"""The scan statistic: how well every span of a text follows a key, for many keys at once.

A span is a run of blocks of eight tokens. Its statistic is a likelihood ratio, in which the phase is constant over the
whole span or over each of its parts of 8, 16, 32, ... tokens, less the logarithm of the number of spans like it.
Knows the hidden Markov model only. Ours; after the scan statistics of Naus and the multi-scale grids of Walther (2010).
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.detection.edit_test import MIN_BLOCK, STRENGTHS, log_mean_over_states
from dgmark.detection.hidden_markov import HiddenMarkovModel

# A span begins and ends at multiples of a grid of 1, 2, 4, ... blocks and is this many grid units long.
FINEST, COARSER = range(1, 9), range(5, 9)


@dataclass(frozen=True)
class Grid:
    """The spans of one text on one grid.

    Attributes:
        level: the grid has 2^level blocks a unit.
        first: first unit of each span.
        last: unit after its last.
    """

    level: int
    first: Int[np.ndarray, " spans"]
    last: Int[np.ndarray, " spans"]

    @property
    def unit(self) -> int:
        """Tokens a unit."""
        return MIN_BLOCK << self.level


def grids_of(n: int) -> list[Grid]:
    """The grids of a text of n tokens."""
    grids = []
    level = 0
    while (units := n // (MIN_BLOCK << level)) >= (COARSER if level else FINEST).start:
        lengths = [length for length in (COARSER if level else FINEST) if length <= units]
        first = np.concatenate([np.arange(units - length + 1) for length in lengths])
        last = np.concatenate([np.arange(length, units + 1) for length in lengths])
        grids.append(Grid(level, first, last))
        level += 1
    return grids


def scan(
    model: HiddenMarkovModel, grids: list[Grid], groups: UInt8[np.ndarray, "rows keys"]
) -> Float[np.ndarray, "spans keys"]:
    """The statistic of every span under every key; the spans of all grids one after another."""
    matched = groups[model.items] == model.wanted[..., None]
    blocks = len(matched) // MIN_BLOCK
    shape = (blocks, MIN_BLOCK, *matched.shape[1:])
    counts = matched[: blocks * MIN_BLOCK].reshape(shape).sum(axis=1, dtype=np.int32)
    levels = [counts]
    for _ in grids[1:]:
        pairs = len(levels[-1]) // 2
        levels.append(levels[-1][: 2 * pairs].reshape(pairs, 2, *counts.shape[1:]).sum(axis=1))
    totals: list[list[np.ndarray]] = [[] for _ in grids]
    for strength in STRENGTHS:
        gain, missed = np.log1p((model.modulus - 1) * strength) - np.log1p(-strength), np.log1p(-strength)
        sums = [_cumulated(log_mean_over_states(level * gain)) for level in levels]
        for grid, parts in zip(grids, totals, strict=True):
            whole = _cumulated(levels[grid.level])
            length = (grid.last - grid.first)[:, None] * (grid.unit * missed)
            parts.append(log_mean_over_states((whole[grid.last] - whole[grid.first]) * gain) + length)
            for level in range(grid.level + 1):
                step = grid.level - level
                parts.append(sums[level][grid.last << step] - sums[level][grid.first << step] + length)
    return np.concatenate(
        [
            np.logaddexp.reduce(parts, axis=0) - np.log(len(parts) * len(grids) * len(grid.first))
            for grid, parts in zip(grids, totals, strict=True)
        ]
    )


def _cumulated(values: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros_like(values[:1]), np.cumsum(values, axis=0)])
