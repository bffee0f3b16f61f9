"""How the tests of one text share the false-positive rate, and how each p-value pays for its share.

A test with share s reports p / s. If the shares add up to at most 1, the smallest of the reported p-values is itself
a valid p-value (the union bound; weighted Bonferroni). The shares, from the outside in:

    1 / keys              each key of a keyring
      UNCHANGED, the rest the unchanged and the normalised text (the whole rate if normalising changes nothing)
        INTACT            the exact test of the match count                                           `intact.py`
          1 / period      each phase; with rotation UNCROPPED for the whole text, the rest for its crops
        the rest          the alignment test, which allows for edits                                  `edited.py`
          RANK            rank of its statistic among re-drawn keys                                   `redraw.py`
          E_VALUE         1 / e-value                                                                 `evalue.py`

A stretch of a text (`spans.py`) is tested exactly (STRETCH_INTACT) and by its e-value, and pays for all stretches.
Knows p-values only. Ours; each of the paper's tests has a threshold of its own.
"""

from dgmark.detection.match_null import SMALLEST_P
from dgmark.detection.result import Mode

UNCHANGED = 0.5
# small, as alignment finds intact text nearly as well, and the exact test needs little share to find a mark
INTACT = 0.1
UNCROPPED = 0.5
RANK, E_VALUE = 0.9, 0.1
STRETCH_INTACT = 0.5


def adjusted_p(p_value: float, share: float) -> float:
    """The p-value that a test with this share of the rate reports; 1 if the share is 0."""
    return min(1.0, max(SMALLEST_P, p_value / share)) if share else 1.0


def bonferroni_p(p_value: float, tests: int) -> float:
    """The smallest p-value of several tests, adjusted for their number."""
    return min(1.0, tests * p_value)


def shares_of(mode: Mode, share: float = 1.0) -> tuple[float, float]:
    """The shares of the exact test and of the alignment test, out of the share of one text."""
    intact = share * {"auto": INTACT, "intact": 1.0, "edited": 0.0}[mode]
    return intact, share - intact
