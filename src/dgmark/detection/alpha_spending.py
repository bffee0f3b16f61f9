"""Alpha spending: how the tests of one text share the false-positive rate, and what each p-value pays.

A test with share s reports p / s. If the shares add up to at most 1, the smallest of the reported p-values is itself
a valid p-value (the union bound; weighted Bonferroni). The shares, from the outside in:

    1 / keys              each key of a keyring
    1 / sub-keys          each sub-key of a key
      UNCHANGED, the rest the unchanged and the normalised text (the whole rate if normalising changes nothing)
        INTACT            the exact test of the match count; SETTLING where alignment sees all    `exact_test.py`
          1 / period      each phase; with rotation UNCROPPED for the whole text, the rest for its crops
        the rest          the alignment test, which allows for edits                              `edit_test.py`

All p-values also pay for the balance of the group tables (`balance_of`). Knows p-values only. Ours; each of the paper's
tests has a threshold of its own.
"""

import math
from collections.abc import Iterable

import numpy as np

from dgmark.detection.result import Mode
from dgmark.watermark.groups import WatermarkSpec

# no p-value is smaller: the smallest normal float
SMALLEST_P = float(np.finfo(np.float64).tiny)
UNCHANGED = 0.5
# Small, as alignment finds intact text as well: enough to settle a clear case without drawing keys, and more where the
# exact test tries shifts or reads tokens that alignment does not.
SETTLING, INTACT = 0.01, 0.1
UNCROPPED = 0.5


def adjusted_p(p_value: float, share: float) -> float:
    """The p-value that a test with this share of the rate reports; 1 if the share is 0."""
    return min(1.0, max(SMALLEST_P, p_value / share)) if share else 1.0


def bonferroni_p(p_value: float, tests: float) -> float:
    """The smallest p-value of several tests, adjusted for their number."""
    return min(1.0, tests * p_value)


def shares_of(mode: Mode, share: float = 1.0, *, sees_all: bool = False) -> tuple[float, float]:
    """The shares of the exact test and of the alignment test, out of the share of one text.

    Args:
        mode: the detector's mode.
        share: the share of the text.
        sees_all: whether alignment covers all that the exact test tries: the whole text, and every shift.
    """
    intact = share * {"auto": SETTLING if sees_all else INTACT, "intact": 1.0, "edited": 0.0}[mode]
    return intact, share - intact


def balance_of(spec: WatermarkSpec, distinct: Iterable[int]) -> float:
    """How much likelier balanced group tables can make any event than independent groups do; 1 with sub-keys.

    A table of N ids gives each group N / m of them (one more or less), so the groups of different tokens are not quite
    independent. U tokens have any particular groups with at most this factor times the chance m^-U; see
    docs/statistics.md. All p-values pay for it.

    Args:
        spec: the key's spec.
        distinct: how many distinct tokens each segment has. Segments have independent tables.
    """
    if spec.independent:
        return 1.0
    log, size, modulus = 0.0, spec.table_size, spec.modulus
    for tokens in distinct:
        # likeliest are the groups that leave equally many ids over in every group
        left = size - tokens
        for group in range(modulus):
            log += _log_factorial(len(range(group, size, modulus)))
            log -= _log_factorial(len(range(group, left, modulus)))
        log += tokens * math.log(modulus) - _log_factorial(size) + _log_factorial(left)
    return math.exp(min(700.0, max(0.0, log)))


def _log_factorial(number: int) -> float:
    return math.lgamma(number + 1)
