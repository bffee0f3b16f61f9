"""Numbers and places in words, for people who know no statistics."""

import math
from collections.abc import Iterable

RAREST = 1e-15  # a rarer chance is told as this one
_SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"))


def rarity(p_value: float) -> str:
    """How rarely something of this probability happens, rounded so as to claim less: "1 in 7 million", or "90%".

    It ends at "1 in 1,000 trillion".
    """
    times = math.floor(1 / max(p_value, RAREST) * (1 + 1e-9))
    digits = 10 ** (len(str(times)) - 1)
    times = times // digits * digits
    if times == 1:
        return f"{math.ceil(100 * p_value - 1e-9)}%"
    return f"1 in {_times(times)}"


def _times(times: int) -> str:
    for scale, name in _SCALES:
        if times >= scale:
            return f"{times // scale:,} {name}"
    return f"{times:,}"


def percent_of(share: float | None) -> str:
    """A share of the text, rounded so as to claim less."""
    percent = math.floor(100 * (share or 0) + 1e-9)
    return f"{percent}%" if percent else "under 1%"


def numbers_between(low: int, high: int) -> str:
    """Two numbers as a range, or one if they are equal: "278 to 311"."""
    return f"{low:,} to {high:,}" if low < high else f"{low:,}"


def place(start: int, end: int) -> str:
    """Where [start, end) is, counted from 1, with the last one in it: "2 to 907"."""
    return f"{start + 1:,} to {end:,}"


def options_of(steps: Iterable[str]) -> str:
    """What undoes disguises in the shell: "--normalise nfc --normalise whitespace"."""
    return " ".join(f"--normalise {step}" for step in steps)
