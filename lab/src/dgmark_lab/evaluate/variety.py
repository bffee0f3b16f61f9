"""The variety of texts: distinct n-grams, repeated n-grams, log diversity, lengths.

Units are token ids if texts are given as ids, else words (split at white space), as in most papers.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import exp, log, prod
from typing import Any

import numpy as np
from jaxtyping import Int

from dgmark.errors import InputError
from dgmark_lab.evaluate.intervals import Bootstrap, Interval
from dgmark_lab.evaluate.repetition import distinct_ngrams, repeated_ngrams

DISTINCT = (1, 2, 3, 4)
REPEATED = (2, 3, 4)
# for a text without any repetition, whose log diversity would be infinite (Kirchenbauer et al. 2024)
MOST_LOG_DIVERSITY = 20.0

Text = str | Sequence[int]


@dataclass(frozen=True)
class Lengths:
    """The distribution of the texts' lengths, in units."""

    mean: float
    min: int
    lower_quartile: float
    median: float
    upper_quartile: float
    max: int


@dataclass(frozen=True)
class TextVariety:
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
        lengths: the texts' lengths, in units.
        texts: the single texts.
    """

    unit: str
    distinct: dict[int, Interval]
    corpus_distinct: dict[int, float]
    repeated: dict[int, Interval]
    diversity: Interval
    log_diversity: Interval
    lengths: Lengths
    texts: tuple[TextVariety, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, without the single texts."""
        content = asdict(self)
        return {**{name: value for name, value in content.items() if name != "texts"}, "num_texts": len(self.texts)}


def diversity(texts: Sequence[Text], bootstrap: Bootstrap | None = None) -> Diversity:
    """Measure the variety of a set of texts.

    Args:
        texts: all texts as strings, or all as token ids. A text shorter than n units has no repeated n-grams.
        bootstrap: how to compute intervals.

    Raises:
        InputError: there is no text, or texts and ids are mixed.
    """
    bootstrap = bootstrap or Bootstrap()
    kinds = {isinstance(text, str) for text in texts}
    if len(kinds) != 1:
        raise InputError(
            "no text to measure" if not kinds else "texts and token ids are mixed: give all texts in one form"
        )
    units = _as_ids(texts)
    each = tuple(text_variety(one) for one in units)
    log_diversities = np.array([one.log_diversity for one in each])
    return Diversity(
        unit="word" if kinds == {True} else "token",
        distinct={n: bootstrap.mean(np.array([one.distinct[n] for one in each])) for n in DISTINCT},
        corpus_distinct={n: _corpus_distinct(units, n) for n in DISTINCT},
        repeated={n: bootstrap.mean(np.array([one.repeated[n] for one in each])) for n in REPEATED},
        diversity=bootstrap.mean(np.array([_product(one.distinct) for one in each])),
        log_diversity=bootstrap.mean(log_diversities),
        lengths=_lengths([one.length for one in each]),
        texts=each,
    )


def text_variety(ids: Int[np.ndarray, " n"]) -> TextVariety:
    """Measure one text."""
    distinct = {n: distinct_ngrams(ids, n) for n in DISTINCT}
    return TextVariety(
        length=len(ids),
        distinct=distinct,
        repeated={n: repeated_ngrams(ids, n) for n in REPEATED},
        log_diversity=-log(max(1 - _product(distinct), exp(-MOST_LOG_DIVERSITY))),
    )


def _product(distinct: dict[int, float]) -> float:
    return prod(distinct[n] for n in REPEATED)


def _as_ids(texts: Sequence[Text]) -> list[Int[np.ndarray, " _"]]:
    words: dict[str, int] = {}
    return [
        np.array([words.setdefault(word, len(words)) for word in text.split()], np.int64)
        if isinstance(text, str)
        else np.asarray(text, np.int64)
        for text in texts
    ]


def _corpus_distinct(texts: Sequence[Int[np.ndarray, " _"]], n: int) -> float:
    """Return the number of different n-grams over that of all; no n-gram crosses the end of a text."""
    windows = [np.lib.stride_tricks.sliding_window_view(ids, n) for ids in texts if len(ids) >= n]
    if not windows:
        return 1.0
    grams = np.concatenate(windows)
    return len(np.unique(grams, axis=0)) / len(grams)


def _lengths(lengths: Sequence[int]) -> Lengths:
    quartiles = np.quantile(lengths, [0.25, 0.5, 0.75])
    return Lengths(
        mean=float(np.mean(lengths)),
        min=min(lengths),
        lower_quartile=float(quartiles[0]),
        median=float(quartiles[1]),
        upper_quartile=float(quartiles[2]),
        max=max(lengths),
    )
