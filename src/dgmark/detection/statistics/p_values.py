"""P-values: how they pay for what is tried, and the tails of fair coins. Knows no text and no rule.

Alpha spending: how the tests of one text share the false-positive rate, and what each p-value pays.

A test with share s reports p / s. If the shares add up to at most 1, the smallest of the reported p-values is itself
a valid p-value (the union bound; weighted Bonferroni). The shares, from the outside in:

    1 / keys              each key of a keyring
      1 / 2               the text as it is, and with disguises and hard wrapping undone, if it has any
        bigram rule       1 / sub-keys, and of that half for the whole text and half for all of its parts
        position rule     1 / period for each phase; with rotation half for the whole text, the rest for its crops
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from jaxtyping import Float, Int

# no p-value is smaller: the smallest normal float
MIN_P = float(np.finfo(np.float64).tiny)
# more than the rounding of the bounds of a tail, of up to 2^28 pairs
_SLACK = 1e-5
# of numbers whose factorials are listed: 8 MB
_LISTED_BITS = 20
# log n! less its approximation by Stirling, for n = 0, 1, ...
_STIRLING_ERRORS = (
    0.0,
    *(math.lgamma(n + 1) - (n + 0.5) * math.log(n) + n - math.log(2 * math.pi) / 2 for n in range(1, 40)),
)


def adjusted_p(p_value: float, share: float) -> float:
    """The p-value that a test with this share of the rate reports."""
    return min(1.0, max(MIN_P, p_value / share))


def bonferroni_p(p_value: float, tests: float) -> float:
    """The smallest p-value of several tests, adjusted for their number."""
    return min(1.0, tests * p_value)


def q_values(p_values: Sequence[float]) -> list[float]:
    """For each of many texts the smallest false discovery rate at which it is among those found.

    This is the step-up procedure of Benjamini and Yekutieli (2001), whose rate holds whatever the dependence of the
    p-values, such as that of texts tested with one key.
    """
    p = np.array(p_values, dtype=float)
    order, ranks = np.argsort(p), np.arange(1, len(p) + 1)
    of_ranks = p[order] * len(p) * (1 / ranks).sum() / ranks
    found = np.empty(len(p))
    found[order] = np.minimum(1.0, np.minimum.accumulate(of_ranks[::-1])[::-1])
    return list(found.tolist())


def z_score(matched: int, scored: int, modulus: int) -> float:
    """Match count standardised under independent coins of chance 1/m (paper Eq. 1 at m = 2); 0 for 0 tokens."""
    if not scored:
        return 0.0
    chance = 1 / modulus
    return (matched - scored * chance) / math.sqrt(scored * chance * (1 - chance))


def binomial_tail(matched: int, pairs: int) -> float:
    """P(at least `matched` of `pairs` fair coins), at least the smallest normal float."""
    return p_value_of(log_tail(matched, pairs))


def p_value_of(log: float) -> float:
    """The p-value of this logarithm, at least the smallest normal float."""
    return max(MIN_P, min(1.0, math.exp(log)))


def log_tail(matched: int, pairs: int) -> float:
    """The logarithm of P(at least `matched` of `pairs` fair coins), without limits."""
    if matched <= 0:
        return 0.0
    if 2 * matched < pairs:  # sum the shorter tail
        return math.log1p(-math.exp(log_tail(pairs - matched + 1, pairs)))
    rest = np.arange(matched, pairs)
    terms = 1.0 + float(np.cumprod((pairs - rest) / (rest + 1.0)).sum())
    return _log_chance(matched, pairs) + math.log(terms)


def _log_chance(matched: int, pairs: int) -> float:
    """The logarithm of the chance of just `matched` of `pairs` fair coins.

    Logarithms of factorials would lose their digits at millions of pairs; the saddle-point form of Loader (2000) does
    not.
    """
    if matched in (0, pairs):
        return -pairs * math.log(2)
    product, lean = matched * (pairs - matched), (2 * matched - pairs) / pairs
    log = math.log(pairs / (2 * math.pi * product)) - pairs * (math.log1p(-(lean**2)) + 2 * lean * math.atanh(lean))
    return log / 2 + _stirling_error(pairs) - _stirling_error(matched) - _stirling_error(pairs - matched)


def _stirling_error(n: int) -> float:
    """Log n! less its approximation by Stirling."""
    return _STIRLING_ERRORS[n] if n < len(_STIRLING_ERRORS) else _stirling_series(n)


def _stirling_series(n: Any) -> Any:
    """The series of Stirling's error, of a number or an array of numbers that are large."""
    return (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / n**2) / n**2) / n**2) / n


def log_bounds(
    matched: Int[np.ndarray, " parts"], pairs: Int[np.ndarray, " parts"]
) -> tuple[Float[np.ndarray, " parts"], Float[np.ndarray, " parts"]]:
    """A lower and an upper bound of the logarithm of each tail; 0 where no more than half of the pairs match."""
    bits = int(pairs.max()).bit_length()
    log_factorials = _listed(bits).__getitem__ if bits <= _LISTED_BITS else _log_factorials
    term = log_factorials(pairs) - log_factorials(matched) - log_factorials(pairs - matched) - pairs * math.log(2)
    more = 2 * matched > pairs
    # the terms of the tail fall at least as fast as a geometric series that begins with its first two
    ratio = np.where(more, (pairs - matched) / (matched + 1.0), 0.0)
    lower = np.where(more, np.maximum(term + np.log1p(ratio) - _SLACK, math.log(MIN_P)), 0.0)
    upper = np.where(more, np.clip(term - np.log1p(-ratio) + _SLACK, math.log(MIN_P), 0.0), 0.0)
    return lower, upper


@lru_cache(maxsize=_LISTED_BITS)
def _listed(bits: int) -> Float[np.ndarray, " numbers"]:
    """Log n! of all numbers of so many bits, which takes a third of the time where there are many parts."""
    return _log_factorials(np.arange(2**bits))


def _log_factorials(numbers: Int[np.ndarray, " numbers"]) -> Float[np.ndarray, " numbers"]:
    """Log n! of each number, but for rounding."""
    few = np.array([math.lgamma(n + 1) for n in range(len(_STIRLING_ERRORS))])
    n = np.maximum(numbers, len(few)).astype(float)
    large = (n + 0.5) * np.log(n) - n + math.log(2 * math.pi) / 2 + _stirling_series(n)
    logs: Float[np.ndarray, " numbers"] = np.where(numbers < len(few), few[np.minimum(numbers, len(few) - 1)], large)
    return logs
