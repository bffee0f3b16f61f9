"""The scan of all parts of a text, slowly: what the fast one is held against."""

from collections.abc import Callable

from dgmark.detection.statistics.parts import FIRST_UNIT, MAX_UNITS, MIN_UNITS


def smallest_p(n: int, tail: Callable[[int, int], tuple[float, int]]) -> float:
    """The smallest p-value of the whole text and of each part of each grid, once it has paid for its share.

    Args:
        n: the number of tokens.
        tail: the tail and the number of distinct pairs of the part [first, last), which may reach beyond the text.
    """
    units = [FIRST_UNIT << grid for grid in range(20) if FIRST_UNIT << grid < n]
    found = [2 * tail(0, n)[0]]
    for unit in units:
        lengths = range(1 if unit == FIRST_UNIT else MIN_UNITS, MAX_UNITS + 1)
        spans = [(b * unit, (b + of) * unit) for b in range(-(-n // unit)) for of in lengths if (b + of - 1) * unit < n]
        parts = [tail(*span) for span in spans]
        number = sum(pairs > 0 for _, pairs in parts)
        found += [p * 2 * len(units) * number for p, _ in parts]
    return min(1.0, min(found))
