"""The paper's sliding-window statistic for edited text (paper section 3.4), for comparison.

Each window of w tokens has its z-score; the statistic is the mean of their squares, and its p-value is its rank among
re-drawn keys (`redraw.py`).
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from dgmark.detection.redraw import GroupDraws, redrawn_p
from dgmark.watermark.groups import GroupTables

DEFAULT_WINDOW = 8


@dataclass(frozen=True)
class WindowTest:
    """The paper's window statistic of one text.

    Attributes:
        z_scores: of each window, n - w + 1 of them.
        statistic: mean of their squares, z_win.
        p_value: rank of the statistic among re-drawn keys; true for any text, at least 1 / (draws + 1).
        draws: keys re-drawn.
    """

    z_scores: tuple[float, ...]
    statistic: float
    p_value: float
    draws: int


def window_z_scores(
    matched: Bool[np.ndarray, "n *keys"], modulus: int, window: int = DEFAULT_WINDOW
) -> Float[np.ndarray, "windows *keys"]:
    """z-score of each run of `window` tokens, n - window + 1 of them; none for a shorter text."""
    counts = np.cumsum(matched, axis=0, dtype=np.int64)
    sums = counts[window - 1 :].copy()
    sums[1:] -= counts[:-window]
    chance = 1 / modulus
    return np.asarray((sums - window * chance) / math.sqrt(window * chance * (1 - chance)))


def window_statistic(
    matched: Bool[np.ndarray, "n *keys"], modulus: int, window: int = DEFAULT_WINDOW
) -> Float[np.ndarray, " *keys"]:
    """The paper's z_win: mean squared z-score of the windows; 1 (its mean under fair coins) for no window."""
    scores = window_z_scores(matched, modulus, window)
    if not len(scores):
        return np.ones(matched.shape[1:])
    return np.asarray(np.square(scores).sum(axis=0) / len(scores))


def window_test(
    tables: GroupTables,
    ids: Int[np.ndarray, " n"],
    positions: Int[np.ndarray, " n"],
    draws: GroupDraws,
    *,
    window: int = DEFAULT_WINDOW,
    most: int = 9999,
) -> WindowTest:
    """The window statistic with its p-value by re-drawn keys.

    Args:
        tables: the key's groups and position code.
        ids: scored token ids.
        positions: where they stand. With a plain key at m = 2 a shift of all changes nothing; else they are as given.
        draws: where random keys come from.
        window: tokens in a window.
        most: draws after which to stop.
    """
    spec = tables.spec
    items = spec.segment(positions) * spec.table_size + ids
    _, first, rows = np.unique(items, return_index=True, return_inverse=True)
    groups, wanted = tables.groups(ids, positions), tables.residues(positions)[:, None]

    def statistic(groups: UInt8[np.ndarray, "rows keys"]) -> Float[np.ndarray, " keys"]:
        return window_statistic(groups[rows] == wanted, spec.modulus, window)

    found = redrawn_p(statistic, groups[first], draws, spec.modulus, most=most)
    scores = window_z_scores(groups == wanted[:, 0], spec.modulus, window)
    return WindowTest(
        z_scores=tuple(scores.tolist()),
        statistic=float(statistic(groups[first][:, None])[0]),
        p_value=found.p_value,
        draws=found.draws,
    )
