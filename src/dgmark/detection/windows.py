"""The paper's sliding-window statistic for edited text (paper section 3.5), for comparison.

Each window of w tokens has a z-score. The statistic is the mean of their squares, and its p-value is its rank among
re-drawn keys (`redraw.py`). Knows tokens and their positions only.
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
        z_scores: z-score of each of the n - w + 1 windows.
        statistic: mean of their squares, z_win.
        p_value: from the rank of the statistic among re-drawn keys; valid for any text, at least 1 / (draws + 1).
        draws: number of re-drawn keys.
    """

    z_scores: tuple[float, ...]
    statistic: float
    p_value: float
    draws: int


def window_z_scores(
    matched: Bool[np.ndarray, "n *keys"], modulus: int, window: int = DEFAULT_WINDOW
) -> Float[np.ndarray, "windows *keys"]:
    """z-score of each of the n - window + 1 windows; empty for a shorter text."""
    counts = np.cumsum(matched, axis=0, dtype=np.int64)
    sums = counts[window - 1 :].copy()
    sums[1:] -= counts[:-window]
    chance = 1 / modulus
    return np.asarray((sums - window * chance) / math.sqrt(window * chance * (1 - chance)))


def window_statistic(
    matched: Bool[np.ndarray, "n *keys"], modulus: int, window: int = DEFAULT_WINDOW
) -> Float[np.ndarray, " *keys"]:
    """The paper's z_win: mean squared z-score of the windows; 1 (its mean under fair coins) if there is no window."""
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
    """The window statistic with its p-value from re-drawn keys.

    Args:
        tables: the key's groups and position code.
        ids: scored token ids.
        positions: their positions, taken as given. With a plain key at m = 2, a common shift changes nothing.
        draws: the source of random keys.
        window: number of tokens in a window.
        most: number of draws after which to stop.
    """
    spec = tables.spec
    items = spec.segment(positions) * spec.table_size + ids
    _, first, rows = np.unique(items, return_index=True, return_inverse=True)
    groups, wanted = tables.groups(ids, positions), tables.residues(positions)[:, None]

    def statistic(groups: UInt8[np.ndarray, "rows keys"]) -> Float[np.ndarray, " keys"]:
        return window_statistic(groups[rows] == wanted, spec.modulus, window)

    rank = redrawn_p(statistic, groups[first], draws, spec.modulus, most=most)
    scores = window_z_scores(groups == wanted[:, 0], spec.modulus, window)
    return WindowTest(
        z_scores=tuple(scores.tolist()),
        statistic=float(statistic(groups[first][:, None])[0]),
        p_value=rank.p_value,
        draws=rank.draws,
    )
