"""The paper's sliding-window statistic for edited text (paper section 3.5), for comparison.

Each window of w tokens has a z-score. The statistic is the mean of their squares. Its p-value comes from keys drawn
from the bets on this text (`bets.py`). Knows tokens and their positions only.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmark.detection.aligned import aligned_tokens, draws_of, weighted_rank
from dgmark.detection.alignment import Alignment
from dgmark.detection.bets import Bets
from dgmark.detection.public_numbers import PublicNumbers
from dgmark.detection.shares import balance_of, bonferroni_p
from dgmark.watermark.groups import GroupTables

DEFAULT_WINDOW = 8
# tokens times keys whose matches are in memory at once
_AT_ONCE = 2**24


@dataclass(frozen=True)
class WindowTest:
    """The paper's window statistic of one text.

    Attributes:
        z_scores: z-score of each of the n - w + 1 windows.
        statistic: mean of their squares, z_win.
        p_value: from the statistics of drawn keys; valid for any text.
        draws: number of drawn keys.
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
    *,
    window: int = DEFAULT_WINDOW,
) -> WindowTest:
    """The window statistic with its p-value from drawn keys.

    Args:
        tables: the key's groups and position code.
        ids: scored token ids.
        positions: their positions, taken as given. With a plain key at m = 2, a common shift changes nothing.
        window: number of tokens in a window.
    """
    spec = tables.spec
    matched = tables.groups(ids, positions) == tables.residues(positions)
    p_value, draws = _p_value(tables, ids, positions, window) if len(ids) >= window else (1.0, 0)
    return WindowTest(
        z_scores=tuple(window_z_scores(matched, spec.modulus, window).tolist()),
        statistic=float(window_statistic(matched, spec.modulus, window)),
        p_value=p_value,
        draws=draws,
    )


def _p_value(
    tables: GroupTables, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], window: int
) -> tuple[float, int]:
    """The p-value of the window statistic, and the number of drawn keys.

    A text longer than what alignment reads has its keys drawn at random, without bets.
    """
    spec = tables.spec
    numbers = PublicNumbers("windows/v3", ids, positions)
    model = Alignment.of(ids, positions, tables, "start")
    key, draws = model.groups(tables)[:, None], draws_of(model)
    if len(ids) <= aligned_tokens(spec):
        plays = Bets(model).play(key, draws, numbers)
        groups, weights = plays.groups, plays.weights
    else:
        groups = np.concatenate([key, numbers.groups(len(key), draws, spec.modulus)], axis=1)
        weights = np.ones(1 + draws)
    rows, wanted = model.items[:, model.unshifted], model.wanted[:, model.unshifted, None]
    at_once = max(1, _AT_ONCE // len(ids))
    statistics = [
        window_statistic(groups[:, begin : begin + at_once][rows] == wanted, spec.modulus, window)
        for begin in range(0, 1 + draws, at_once)
    ]
    segments = np.unique(model.distinct[:, 1], return_counts=True)[1].tolist()
    balance = balance_of(spec, segments)
    return bonferroni_p(weighted_rank(np.concatenate(statistics), weights), balance), draws
