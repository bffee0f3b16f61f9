"""Lines of a page of a PDF, and lines to paragraphs.

A PDF knows where letters stand, and neither words nor paragraphs. PDFium finds words, lines and their order; what
ended a paragraph, and what stands at the head and foot of every page, is found here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pypdfium2 import raw

from dgmark_documents.text_builder import without_bullets

_HYPHEN = "\ufffe"  # PDFium's sign for a hyphen at the end of a line
_NUMBER = re.compile(r"\d+|\b[ivxlc]+\b")
_BULLET = re.compile("^[\uf000-\uf0ff•◦▪‣·] ?")
_MAX_HEADER = 4  # lines of a header or a footer; more that repeat are the text of pages that are alike
_NEAR = 2  # a header repeats within so many pages, also where left and right pages differ
_ROOM = 1.1  # a line ends a paragraph if the next word, and a tenth more, had fitted into it
_INDENT = 0.015  # a first line begins at least this share of the column's width further in
_FLUSH = 1.0  # points by which the ends of justified lines differ at most
_NEIGHBOURS = 4  # lines before and after that show where a column ends


@dataclass(frozen=True)
class PdfLine:
    """A line of a page, and where it begins and ends in the direction of its text, in points."""

    text: str
    left: float
    right: float

    def beside(self, other: "PdfLine") -> bool:
        """Whether the lines may stand in one column: one lies over at least half of the other."""
        shared = min(self.right, other.right) - max(self.left, other.left)
        return shared > 0.5 * min(self.right - self.left, other.right - other.left)


def page_lines(content: Any) -> list[PdfLine]:
    """The lines of a page, by PDFium's text of it and in the order of that."""
    lines, start = [], 0
    for line in content.get_text_range(errors="replace").split("\r\n"):
        length = len(line.encode("utf-16-le", "surrogatepass")) // 2
        text = line.strip(" \t\0\n")
        if text:
            ends = [raw.FPDFText_GetCharIndexFromTextIndex(content, at) for at in (start, start + length - 1)]
            edges = [content.get_charbox(at, loose=True) if at >= 0 else (0.0,) * 4 for at in ends]
            begin, end = edges[0][0], edges[1][2]
            # mirrored where it runs to the left: upside down, or in a script from right to left
            lines.append(PdfLine(text, begin, end) if begin <= end else PdfLine(text, -begin, -end))
        start += length + 2
    return lines


def without_headers(pages: list[list[PdfLine]]) -> tuple[list[list[PdfLine]], int]:
    """The pages without the lines at their head and foot that near pages repeat, and the number of these lines."""
    masked = [[_NUMBER.sub("#", line.text) for line in page] for page in pages]
    kept = []
    for number, page in enumerate(pages):
        near = [masked[at] for at in _around(number, _NEAR, len(pages)) if at != number]
        head = _repeated(masked[number], near, 1)
        foot = _repeated(masked[number][head:], [one[head:] for one in near], -1)
        kept.append(page[head : len(page) - foot])
    return kept, sum(map(len, pages)) - sum(map(len, kept))


def _repeated(page: list[str], near: list[list[str]], step: int) -> int:
    """How many lines from the start (step 1) or the end (step -1) of a page stand at the same place of a near page."""
    for depth, line in enumerate(page[::step][: _MAX_HEADER + 1]):
        if not any(other[::step][depth : depth + 1] == [line] for other in near):
            return depth
    return 0


def _around(at: int, distance: int, count: int) -> range:
    return range(max(0, at - distance), min(count, at + distance + 1))


def join_lines(lines: Sequence[PdfLine]) -> str:
    """Lines to paragraphs, one a line; words that a hyphen cuts are joined."""
    text = "".join(_pieces(lines))
    return without_bullets(text.replace("\u00ad", ""))


def _pieces(lines: Sequence[PdfLine]) -> Iterator[str]:
    for at, line in enumerate(lines):
        # a hyphen within a line of PDFium: the halves are joined there already
        yield line.text.replace(_HYPHEN, "")
        if at + 1 < len(lines) and not line.text.endswith(_HYPHEN):
            yield "\n" if _ends_paragraph(lines, at) else " "


def _ends_paragraph(lines: Sequence[PdfLine], at: int) -> bool:
    """Whether a paragraph ends with a line: it has room for the next word, or the next line is a list's or is indented.

    Other lines of the column show how far it reaches.
    """
    line, after = lines[at], lines[at + 1]
    if _BULLET.match(after.text):
        return True
    near = [lines[place] for place in _around(at, _NEIGHBOURS, len(lines))]
    column = [line, *(one for one in near if line.beside(one))]
    left, right = min(one.left for one in column), max(one.right for one in column)
    if any(one is not line and abs(one.right - line.right) < _FLUSH for one in column):
        right = line.right  # both sides are straight, and the line reaches the right one
    word = after.text.split(" ", 1)[0]
    needed = (len(word) + 1) * (line.right - line.left) / len(line.text)
    if line.right + _ROOM * needed < right:
        return True
    return line.beside(after) and line.left < left + 1 and after.left > left + _INDENT * (right - left) + 1
