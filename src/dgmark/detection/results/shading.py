"""Which characters of a marked text to shade, and how darkly: its matching tokens, by how much they count.

For pictures of a weighted test; no verdict rests on it. Knows no key.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dgmark.detection.results.figures import ScoredToken

# of the levels from 1 on
LEVELS = 3


@dataclass(frozen=True)
class Shade:
    """Matching tokens that stand side by side and count about alike.

    Attributes:
        start: index of their first character.
        end: index after their last one.
        level: from 1 to `LEVELS`: how much they count.
    """

    start: int
    end: int
    level: int


def shades_of(text: str, tokens: Iterable[ScoredToken], start: int, end: int) -> list[Shade]:
    """The shades of the characters [start, end) of a text, without white space in front; they do not overlap."""
    runs = list[Shade]()
    place = start
    for token in tokens:
        first, last = max(token.start, place), min(token.end, end)
        level = math.ceil(LEVELS * token.weight) if token.matched else 0
        if first >= last:  # outside, or its characters are those of the token before, as bytes of one character are
            continue
        if level and runs and (runs[-1].end, runs[-1].level) == (first, level):
            runs[-1] = Shade(runs[-1].start, last, level)
        elif level:
            runs.append(Shade(first, last, level))
        place = last
    shown = (Shade(run.end - len(text[run.start : run.end].lstrip()), run.end, run.level) for run in runs)
    return [shade for shade in shown if shade.start < shade.end]


def cut(start: int, end: int, shades: Iterable[Shade]) -> list[tuple[int, int, int]]:
    """The characters [start, end) cut where the shade changes: start, end and level of each piece, 0 for none."""
    pieces, place = list[tuple[int, int, int]](), start
    for shade in shades:
        if start <= shade.start and shade.end <= end:
            pieces += [(place, shade.start, 0), (shade.start, shade.end, shade.level)]
            place = shade.end
    return [piece for piece in [*pieces, (place, end, 0)] if piece[0] < piece[1]]
