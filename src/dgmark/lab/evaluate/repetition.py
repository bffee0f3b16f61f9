"""How much a text repeats itself: n-grams said before, and loops of a fixed period.

Works on token ids, knows nothing of keys. Loops of even period matter to a watermark of alternating groups: each of
their tokens stands for ever at positions of one parity, so one lucky token matches again and again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Integer

from dgmark.errors import SettingsError

TokenIds = Sequence[int] | Integer[np.ndarray, " tokens"]


@dataclass(frozen=True)
class Periodicity:
    """How much of a text has one period.

    Attributes:
        echoes: share of its tokens that equal the one `period` positions before.
        in_runs: share of its tokens that lie inside a run: a unit of `period` tokens said several times in a row.
    """

    echoes: float
    in_runs: float


def distinct_ngrams(ids: TokenIds, n: int = 4) -> float:
    """Different n-grams over all n-grams ("distinct-n"); 1.0 for a text of fewer than n tokens.

    Raises:
        SettingsError: n is less than 1.
    """
    if n < 1:
        raise SettingsError(f"n-grams of {n} tokens: n must be at least 1")
    tokens = _array(ids)
    if len(tokens) < n:
        return 1.0
    grams = np.lib.stride_tricks.sliding_window_view(tokens, n)
    return len(np.unique(grams, axis=0)) / len(grams)


def repeated_ngrams(ids: TokenIds, n: int = 4) -> float:
    """Share of n-grams that stood in the text before; 0.0 for a text of fewer than n tokens.

    Raises:
        SettingsError: n is less than 1.
    """
    return 1.0 - distinct_ngrams(ids, n)


def periodic(ids: TokenIds, period: int, *, times: int = 3) -> Periodicity:
    """Echoes and runs of one period.

    What has a period has its multiples too: "ha ha ha ha ha ha" is a run of periods 1 and 2 alike.

    Args:
        ids: token ids.
        period: tokens of the repeated unit.
        times: how often a unit must be said in a row to make a run; twice ("very, very,") is still prose.

    Raises:
        SettingsError: period is less than 1, or times less than 2.
    """
    tokens = _array(ids)
    inside = in_runs(tokens, period, times=times)
    if not len(tokens):
        return Periodicity(0.0, 0.0)
    echoes = int((tokens[period:] == tokens[:-period]).sum())
    return Periodicity(echoes / len(tokens), float(inside.mean()))


def in_runs(ids: TokenIds, period: int, *, times: int = 3) -> Bool[np.ndarray, " tokens"]:
    """Which tokens lie inside a run of the period (see `periodic`).

    Raises:
        SettingsError: period is less than 1, or times less than 2.
    """
    if period < 1:
        raise SettingsError(f"a period of {period} tokens: it must be at least 1")
    if times < 2:
        raise SettingsError(f"a unit said {times} times does not repeat: times must be at least 2")
    tokens = _array(ids)
    echo = np.zeros(len(tokens) + 2, np.int8)  # a zero before and behind closes every stretch of echoes
    echo[period + 1 : -1] = tokens[period:] == tokens[:-period]
    edges = np.diff(echo)
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    inside = np.zeros(len(tokens), np.bool_)
    for start, stop in zip(starts, stops, strict=True):
        if stop - start >= (times - 1) * period:
            inside[start - period : stop] = True
    return inside


def _array(ids: TokenIds) -> Int[np.ndarray, " tokens"]:
    return np.asarray(ids, np.int64)
