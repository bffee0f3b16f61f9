"""The diversity of texts: distinct and repeated n-grams, loops of a fixed period, log diversity, lengths.

Units are token ids if texts are given as ids, else words (split at white space), as in most papers. Loops of even
period matter to a watermark of alternating groups: each of their tokens always occurs at positions of one parity, so
one lucky token matches again and again.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, log, prod
from typing import Any

import numpy as np
from jaxtyping import Int, Integer

from dgmark.errors import InputError, SettingsError
from dgmark_lab.evaluate.intervals import Bootstrap, Interval

DISTINCT = (1, 2, 3, 4)
REPEATED = (2, 3, 4)
# for a text without any repetition, whose log diversity would be infinite (Kirchenbauer et al. 2024)
MAX_LOG_DIVERSITY = 20.0

TokenIds = Sequence[int] | Integer[np.ndarray, " tokens"]


# --- one text ---


def distinct_ngrams(ids: TokenIds, n: int = 4) -> float:
    """Return the number of different n-grams over that of all n-grams ("distinct-n"); 1.0 for fewer than n tokens.

    Raises:
        SettingsError: n is less than 1.
    """
    if n < 1:
        raise SettingsError(f"n {n} is invalid: n-grams have at least 1 token")
    return _distinct([_array(ids)], n)


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


@dataclass(frozen=True)
class Periodicity:
    """How much of a text repeats with one period.

    Attributes:
        echoes: share of its tokens that equal the one `period` positions before.
        in_runs: share of its tokens inside a run: a unit of `period` tokens repeated several times in a row.
    """

    echoes: float
    in_runs: float


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
    if period < 1 or times < 2:
        raise SettingsError(f"a run of {times} units of {period} tokens is none: give at least 2 units of 1 token")
    tokens = _array(ids)
    if not len(tokens):
        return Periodicity(0.0, 0.0)
    echo = np.zeros(len(tokens) + 2, np.int8)  # a zero at both ends closes every span of echoes
    echo[period + 1 : -1] = tokens[period:] == tokens[:-period]
    edges = np.diff(echo)
    starts, stops = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    inside = np.zeros(len(tokens), np.bool_)
    for start, stop in zip(starts, stops, strict=True):
        if stop - start >= (times - 1) * period:
            inside[start - period : stop] = True
    return Periodicity(int(echo.sum()) / len(tokens), float(inside.mean()))


# --- a set of texts ---


@dataclass(frozen=True)
class TextDiversity:
    """Figures of one text; `distinct` and `repeated` are by n."""

    length: int
    distinct: dict[int, float]
    repeated: dict[int, float]
    log_diversity: float


@dataclass(frozen=True)
class Diversity:
    """Figures of a set of texts.

    Attributes:
        unit: "word" or "token".
        distinct: distinct-n by n: different n-grams over all n-grams of one text; mean over texts.
        corpus_distinct: distinct-n of all texts together (Li et al. 2016); it falls with their number, so compare
            sets of equal size.
        repeated: 1 - distinct-n of one text ("seq-rep-n"); mean over texts.
        diversity: product over n = 2, 3, 4 of distinct-n of one text (Su et al. 2022); mean over texts.
        log_diversity: -ln(1 - diversity), at most 20 (Kirchenbauer et al. 2024); mean over texts.
        lengths: the texts' lengths, in units: their mean, min, lower_quartile, median, upper_quartile and max.
        texts: the single texts.
    """

    unit: str
    distinct: dict[int, Interval]
    corpus_distinct: dict[int, float]
    repeated: dict[int, Interval]
    diversity: Interval
    log_diversity: Interval
    lengths: dict[str, float]
    texts: tuple[TextDiversity, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, without the single texts."""
        content = asdict(self)
        return {**{name: value for name, value in content.items() if name != "texts"}, "num_texts": len(self.texts)}


def diversity(texts: Sequence[str | Sequence[int]]) -> Diversity:
    """Measure the diversity of a set of texts.

    Args:
        texts: all texts as strings, or all as token ids. A text shorter than n units has no repeated n-grams.

    Raises:
        InputError: there is no text, or texts and ids are mixed.
    """
    bootstrap = Bootstrap()
    kinds = {isinstance(text, str) for text in texts}
    if len(kinds) != 1:
        raise InputError(
            "no text to measure" if not kinds else "texts and token ids are mixed: give all texts in one form"
        )
    words: dict[str, int] = {}
    units = [
        _array([words.setdefault(word, len(words)) for word in text.split()] if isinstance(text, str) else text)
        for text in texts
    ]
    each = tuple(map(_text_diversity, units))
    return Diversity(
        unit="word" if kinds == {True} else "token",
        distinct={n: bootstrap.mean(np.array([one.distinct[n] for one in each])) for n in DISTINCT},
        corpus_distinct={n: _distinct(units, n) for n in DISTINCT},
        repeated={n: bootstrap.mean(np.array([one.repeated[n] for one in each])) for n in REPEATED},
        diversity=bootstrap.mean(np.array([_product(one.distinct) for one in each])),
        log_diversity=bootstrap.mean(np.array([one.log_diversity for one in each])),
        lengths=_lengths([one.length for one in each]),
        texts=each,
    )


def _text_diversity(ids: Int[np.ndarray, " n"]) -> TextDiversity:
    distinct = {n: distinct_ngrams(ids, n) for n in DISTINCT}
    return TextDiversity(
        length=len(ids),
        distinct=distinct,
        repeated={n: repeated_ngrams(ids, n) for n in REPEATED},
        log_diversity=-log(max(1 - _product(distinct), exp(-MAX_LOG_DIVERSITY))),
    )


def _product(distinct: dict[int, float]) -> float:
    return prod(distinct[n] for n in REPEATED)


def _lengths(lengths: Sequence[int]) -> dict[str, float]:
    names = ("min", "lower_quartile", "median", "upper_quartile", "max")
    quartiles = np.quantile(lengths, [0, 0.25, 0.5, 0.75, 1]).tolist()
    return {"mean": float(np.mean(lengths)), **dict(zip(names, quartiles, strict=True))}


def _distinct(texts: Sequence[Int[np.ndarray, " _"]], n: int) -> float:
    """Return the number of different n-grams over that of all; no n-gram crosses the end of a text."""
    windows = [np.lib.stride_tricks.sliding_window_view(ids, n) for ids in texts if len(ids) >= n]
    if not windows:
        return 1.0
    grams = np.concatenate(windows)
    return len(np.unique(grams, axis=0)) / len(grams)


def _array(ids: TokenIds) -> Int[np.ndarray, " tokens"]:
    return np.asarray(ids, np.int64)
