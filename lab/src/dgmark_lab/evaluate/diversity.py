"""The diversity of texts: distinct and repeated n-grams, log diversity, lengths.

Units are token ids if texts are given as ids, else words (split at white space), as in most papers.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from dgmark.arguments.contents import TextOrIds, contents_of, ids_of
from dgmark.errors import InputError
from dgmark_lab.evaluate.estimates import Estimate, mean

DISTINCT = (1, 2, 3, 4)
# for a text without any repetition, whose log diversity would be infinite (Kirchenbauer et al. 2024)
MAX_LOG_DIVERSITY = 20.0

TokenIds = TextOrIds


# --- one text ---


def distinct_ngrams(ids: TokenIds, n: int = 4) -> float:
    """Return the number of different n-grams over that of all n-grams ("distinct-n"); 1.0 for fewer than n tokens."""
    return _distinct(ids_of(ids).tolist(), n)


def _distinct(units: Sequence[Hashable], n: int) -> float:
    grams = list(zip(*(units[first:] for first in range(n)), strict=False))
    return len(set(grams)) / len(grams) if grams else 1.0


def repeated_ngrams(ids: TokenIds, n: int = 4) -> float:
    """Return the share of n-grams that occurred earlier in the text; 0.0 for a text of fewer than n tokens."""
    return 1.0 - distinct_ngrams(ids, n)


# --- a set of texts ---


@dataclass(frozen=True)
class TextDiversity:
    """Figures of one text; `distinct` is by n, and 1 - distinct-n is the share of repeated n-grams ("seq-rep-n").

    `log_diversity` is -ln(1 - diversity), at most 20, with the product of distinct-2, -3 and -4 as the diversity.
    """

    length: int
    distinct: dict[int, float]
    log_diversity: float


@dataclass(frozen=True)
class Diversity:
    """Means over a set of texts of the figures of each.

    Attributes:
        unit: "word" or "token".
        distinct: distinct-n by n.
        log_diversity: Kirchenbauer et al. 2024.
        median_length: the texts' median length, in units.
        texts: the single texts.
    """

    unit: str
    distinct: dict[int, Estimate]
    log_diversity: Estimate
    median_length: float
    texts: tuple[TextDiversity, ...]


def diversity(texts: Iterable[TextOrIds]) -> Diversity:
    """Measure the diversity of a set of texts.

    Args:
        texts: all texts as strings, or all as token ids. A text shorter than n units has no repeated n-grams.

    Raises:
        InputError: there is no text, or texts and ids are mixed.
    """
    contents = contents_of(texts)
    kinds = {isinstance(text, str) for text in contents}
    if len(kinds) != 1:
        raise InputError(
            "no text to measure" if not kinds else "texts and token ids are mixed: give all texts in one form"
        )
    each = tuple(_text_diversity(text.split() if isinstance(text, str) else text.tolist()) for text in contents)
    return Diversity(
        unit="word" if kinds == {True} else "token",
        distinct={n: mean(np.array([one.distinct[n] for one in each])) for n in DISTINCT},
        log_diversity=mean(np.array([one.log_diversity for one in each])),
        median_length=float(np.median([one.length for one in each])),
        texts=each,
    )


def _text_diversity(units: Sequence[Hashable]) -> TextDiversity:
    distinct = {n: _distinct(units, n) for n in DISTINCT}
    product = distinct[2] * distinct[3] * distinct[4]
    return TextDiversity(
        length=len(units),
        distinct=distinct,
        log_diversity=-log(max(1 - product, exp(-MAX_LOG_DIVERSITY))),
    )
