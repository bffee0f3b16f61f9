"""How the tests of one text share the false-positive rate, and what each p-value pays for its share.

A test with share s reports p / s. If the shares add up to at most 1, the smallest of the reported p-values is itself
a p-value (the union bound). The shares, from the outside in:

    1 / keys              each key of a keyring
      AS_IT_IS, the rest  the text as it is, and normalised (the whole rate, if normalising changes nothing)
        INTACT            the exact test of the match count                                           `intact.py`
          1 / period      each phase; with rotation UNCROPPED for the whole text, the rest for its crops
        the rest          the alignment test, which allows for edits                                  `edited.py`
          RANK            rank of its statistic among re-drawn keys                                   `redraw.py`
          E_VALUE         1 / e-value                                                                 `evalue.py`

A stretch of a text (`spans.py`) is tested exactly (STRETCH_INTACT) and by its e-value, and pays for all stretches.
"""

from dgmark.detection.match_null import SMALLEST_P
from dgmark.detection.result import Mode

AS_IT_IS = 0.5
# small, as alignment finds intact text nearly as well, and the exact test needs little where there is a mark
INTACT = 0.1
UNCROPPED = 0.5
RANK, E_VALUE = 0.9, 0.1
STRETCH_INTACT = 0.5


def paid(p_value: float, share: float) -> float:
    """The p-value that a test with this share of the rate reports; 1 if it has none."""
    return min(1.0, max(SMALLEST_P, p_value / share)) if share else 1.0


def paid_for_all(p_value: float, tests: int) -> float:
    """The smallest p-value of so many tests with equal shares."""
    return min(1.0, tests * p_value)


def shares_of(mode: Mode, share: float = 1.0) -> tuple[float, float]:
    """What the exact test and the alignment test have of the share of one text."""
    intact = share * {"auto": INTACT, "intact": 1.0, "edited": 0.0}[mode]
    return intact, share - intact
