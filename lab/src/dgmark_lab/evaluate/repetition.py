"""How much a text repeats itself: repeated n-grams, and loops of a fixed period.

Works on token ids and knows nothing about keys. Loops of even period matter to a watermark of alternating groups: each
of their tokens always occurs at positions of one parity, so one lucky token matches again and again.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int, Integer

from dgmark.errors import SettingsError

TokenIds = Sequence[int] | Integer[np.ndarray, " tokens"]


@dataclass(frozen=True)
class Periodicity:
    """How much of a text repeats with one period.

    Attributes:
        echoes: share of its tokens that equal the one `period` positions before.
        in_runs: share of its tokens inside a run: a unit of `period` tokens repeated several times in a row.
    """

    echoes: float
    in_runs: float


def distinct_ngrams(ids: TokenIds, n: int = 4) -> float:
    """Return the number of different n-grams over that of all n-grams ("distinct-n"); 1.0 for fewer than n tokens.

    Raises:
        SettingsError: n is less than 1.
    """
    if n < 1:
        raise SettingsError(f"n {n} is invalid: n-grams have at least 1 token")
    tokens = _array(ids)
    if len(tokens) < n:
        return 1.0
    grams = np.lib.stride_tricks.sliding_window_view(tokens, n)
    return len(np.unique(grams, axis=0)) / len(grams)


def repeated_ngrams(ids: TokenIds, n: int = 4) -> float:
    """Return the share of n-grams that occurred earlier in the text; 0.0 for a text of fewer than n tokens.

    Raises:
        SettingsError: n is less than 1.
    """
    return 1.0 - distinct_ngrams(ids, n)


def token_entropy(ids: TokenIds) -> float:
    """Return the entropy of a text's own tokens, in bits: 0 if all are the same, log2 n if all n differ."""
    _, counts = np.unique(_array(ids), return_counts=True)
    shares = counts / max(counts.sum(), 1)
    return float(-(shares * np.log2(shares)).sum())


def periodic(ids: TokenIds, period: int, *, times: int = 3) -> Periodicity:
    """Measure echoes and runs of one period.

    A text with one period also has its multiples: "ha ha ha ha ha ha" is a run of period 1 and of period 2.

    Args:
        ids: token ids.
        period: tokens of the repeated unit.
        times: how often a unit must occur in a row to make a run; twice ("very, very,") is still prose.

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
    """Return which tokens are inside a run of the period (see `periodic`).

    Raises:
        SettingsError: period is less than 1, or times less than 2.
    """
    if period < 1:
        raise SettingsError(f"period {period} is invalid: it must be at least 1 token")
    if times < 2:
        raise SettingsError(f"times {times} is invalid: a repetition needs at least 2")
    tokens = _array(ids)
    echo = np.zeros(len(tokens) + 2, np.int8)  # a zero at both ends closes every stretch of echoes
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
