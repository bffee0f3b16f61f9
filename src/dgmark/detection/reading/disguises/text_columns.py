"""Two columns of a page whose lines stand side by side in a text, as `pdftotext -layout` writes them.

Knows nothing of tokens and keys. Ours.
"""

import re
import statistics
from collections import Counter
from collections.abc import Iterator
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np

from dgmark.detection.reading.disguises.mapped_text import LINE, MappedText

_LEAST, _SHARE = 8, 1 / 2  # lines with text on both sides of the gutter, and their share of all lines on a page
_FEWEST_WORDS = 3  # words of a line of a column, on the average: the cells of a table have fewer
_GUTTER = re.compile(r"(?<=\S) {3,}(?=\S)")


class _Line(NamedTuple):
    """A line, or its part in one column, and the place of its first character."""

    start: int
    text: str


def one_after_the_other(mapped: MappedText) -> MappedText:
    """Read the columns of each page that has two one after the other; their line ends that wrap words are spaces."""
    text = mapped.text
    if "   " not in text:
        return mapped
    start, read, found = 0, list[tuple[_Line, str]](), False
    for page in text.split("\f"):
        lines = [_Line(start + line.start(), line[0]) for line in LINE.finditer(page)]
        gutter = _gutter_of([line.text for line in lines])
        found |= gutter is not None
        read += ((line, "\n") for line in lines) if gutter is None else _columns(lines, gutter)
        start += len(page) + 1
    if not found:
        return mapped
    # what stands after a line has the place of its last character, or of where an empty line ends
    ends = [line.start + len(line.text) for line, _ in read]
    places = [
        np.minimum(np.arange(line.start, end + 1), max(line.start, end - 1))
        for (line, _), end in zip(read, ends, strict=True)
    ]
    joined = "".join(line.text + end for line, end in read)
    return mapped.then(MappedText(joined[:-1], np.minimum(np.concatenate(places), len(text) - 1)[:-1]))


def _gutter_of(lines: list[str]) -> int | None:
    """Where the right column begins on a page of two columns; None for any other page."""
    ends = Counter(gap.end() for line in lines for gap in _GUTTER.finditer(line))
    if not ends:
        return None
    gutter = ends.most_common(1)[0][0]
    both = [line for line in lines if line[:gutter].strip() and line[gutter:].strip() and _is_apart(line, gutter)]
    if len(both) < max(_LEAST, _SHARE * sum(1 for line in lines if line.strip())):
        return None
    sides = ([line[:gutter] for line in both], [line[gutter:] for line in both])
    prose = all(statistics.mean(len(part.split()) for part in side) >= _FEWEST_WORDS for side in sides)
    return gutter if prose else None


def _is_apart(line: str, gutter: int) -> bool:
    return not line[gutter - 2 : gutter].strip()


def _columns(lines: list[_Line], gutter: int) -> Iterator[tuple[_Line, str]]:
    """The lines of a page in the order in which they are read, each with what stands after it.

    Lines that run over the gutter, such as a title, end the columns above them.
    """
    # "a b     g h\nc d     i j" with its gutter at 8 is read as "a b c d\ng h i j"
    for apart, block in groupby(lines, lambda line: _is_apart(line.text, gutter)):
        some = list(block)
        if not apart:
            yield from ((line, "\n") for line in some)
            continue
        yield from _joined([_stripped(line.start, line.text[:gutter]) for line in some])
        yield from _joined([_stripped(line.start + min(gutter, len(line.text)), line.text[gutter:]) for line in some])


def _joined(column: list[_Line]) -> Iterator[tuple[_Line, str]]:
    width = max(len(line.text) for line in column)
    for line, after in pairwise([*column, _Line(0, "")]):
        word = after.text.split(" ", 1)[0]
        wrapped = line.text and word and len(line.text) + 1 + len(word) > width
        yield line, " " if wrapped else "\n"


def _stripped(start: int, text: str) -> _Line:
    return _Line(start + len(text) - len(text.lstrip()), text.strip())
