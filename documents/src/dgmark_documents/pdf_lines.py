"""Lines of a page of a PDF, and lines to paragraphs.

A PDF knows where letters stand, and neither words nor paragraphs. PDFium finds words, lines and their order; what
ended a paragraph, and what stands at the head and foot of every page, is found here.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from statistics import median
from typing import Any, NamedTuple
from unicodedata import bidirectional

from dgmark_documents.account import letters_in
from dgmark_documents.text_builder import without_bullets

Box = tuple[float, float, float, float]  # left, bottom, right, top, in points

_HYPHEN = "\ufffe"  # PDFium's sign for a hyphen at the end of a line
_NUMBER = re.compile(r"\d+|\b[ivxlc]+\b")
_BULLET = re.compile("^[\uf000-\uf0ff•◦▪‣·] ?")
_MAX_HEADER = 4  # lines of a header or a footer; more that repeat are the text of pages that are alike
_NEAR = 2  # a header repeats within so many pages, also where left and right pages differ
_ROOM = 1.1  # a line ends a paragraph if the next word, and a tenth more, had fitted into it
_INDENT = 0.015  # a first line begins at least this share of the column's width further in
_FLUSH = 1.0  # points by which the ends of justified lines differ at most
_NEIGHBOURS = 4  # lines before and after that show where a column ends
# of columns that are drawn line by line: lines, and heights of a line to the gap between them and for their width
_COLUMN_LINES, _GAP, _COLUMN_WIDTH = 5, 1.5, 9
# runs of a page, and the share of them that is drawn before a run that stands above it or to its left, where they are
# drawn in any order
_MIXED_RUNS, _MIXED = 20, 0.25
_LOST = 0.01  # share of the letters that may be lost where runs are read at their places


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


class PageText(NamedTuple):
    """The text of a page.

    Attributes:
        lines: its lines.
        text: all of its text, in the order of the lines if it is complete there.
        outside: the number of letters outside of the page, which stand in neither.
    """

    lines: list[PdfLine]
    text: str
    outside: int


def runs_of(content: Any) -> list[Box]:
    """The boxes of the runs of PDFium's text, in its order."""
    return [content.get_rect(number) for number in range(content.count_rects())]


def page_text(content: Any, runs: list[Box], page: Box, raw: Any) -> PageText:
    """The text of a page, in the order of its text; of columns that are drawn line by line, column by column.

    Words that are drawn in an order of their own are put in order by their places.

    Args:
        content: PDFium's text of the page.
        runs: the boxes of its runs.
        page: the box of the page.
        raw: PDFium's functions.
    """
    whole = content.get_text_range(errors="replace")
    boxes = [box for box in (_within(one, page) for one in runs) if box]
    outside = 0
    if boxes != runs:
        seen = _without_outside(content, whole, page, raw)
        outside = letters_in(whole) - letters_in("".join(seen.values()))
    else:
        seen = dict(_text_lines(whole))
    text = "\n".join(seen.values())
    if _is_mixed(content, boxes, raw):
        lines = _by_place(content, boxes)
        by_place = "\n".join(line.text for line in lines)
        if not _lacks_letters(by_place, text):
            return PageText(lines, by_place, outside)
    if lines := _columns(content, boxes):
        by_column = "\n".join(line.text for line in lines)
        return PageText(lines, text if _lacks_letters(by_column, text) else by_column, outside)
    return PageText(_in_order(content, seen, raw), text, outside)


def _within(box: Box, page: Box) -> Box | None:
    """The part of a box that lies on the page, if any."""
    left, bottom, right, top = page
    if box[2] <= left or box[0] >= right or box[3] <= bottom or box[1] >= top:
        return None
    return max(box[0], left), max(box[1], bottom), min(box[2], right), min(box[3], top)


def _text_lines(whole: str) -> Iterator[tuple[int, str]]:
    """The lines of PDFium's text, each with the index of its start in UTF-16."""
    start = 0
    for line in whole.split("\r\n"):
        yield start, line
        start += len(line.encode("utf-16-le", "surrogatepass")) // 2 + 2


def _without_outside(content: Any, whole: str, page: Box, raw: Any) -> dict[int, str]:
    """The lines of a text without the letters whose middle lies outside of the page, by their starts in UTF-16."""
    left, bottom, right, top = page
    lines = {}
    for start, line in _text_lines(whole):
        seen, place = [], start
        for one in line:
            at = raw.FPDFText_GetCharIndexFromTextIndex(content, place)
            box = content.get_charbox(at) if at >= 0 else None
            place += 1 + (one > "\uffff")
            if not box or (left <= (box[0] + box[2]) / 2 <= right and bottom <= (box[1] + box[3]) / 2 <= top):
                seen.append(one)
        lines[start] = "".join(seen)
    return lines


def _in_order(content: Any, seen: dict[int, str], raw: Any) -> list[PdfLine]:
    """The lines of a text in its order."""
    lines = []
    for start, line in seen.items():
        text = line.strip(" \t\0\n")
        if text:
            length = len(line.encode("utf-16-le", "surrogatepass")) // 2
            ends = [raw.FPDFText_GetCharIndexFromTextIndex(content, at) for at in (start, start + length - 1)]
            edges = [content.get_charbox(at, loose=True) if at >= 0 else (0.0,) * 4 for at in ends]
            begin, end = edges[0][0], edges[1][2]
            # mirrored where it runs to the left: upside down, or in a script from right to left
            lines.append(PdfLine(text, begin, end) if begin <= end else PdfLine(text, -begin, -end))
    return lines


def _lacks_letters(text: str, whole: str) -> bool:
    """Whether a text in another order lacks letters, or holds some twice."""
    one, two = (Counter(filter(str.isalpha, each)) for each in (text, whole))
    return ((one - two) + (two - one)).total() > _LOST * two.total()


def _is_mixed(content: Any, boxes: list[Box], raw: Any) -> bool:
    """Whether the runs of a page are drawn in an order that is not that of its lines."""
    if len(boxes) < _MIXED_RUNS:
        return False
    back = sum(two[1] > one[3] or (_level(one, two) and two[2] <= one[0]) for one, two in pairwise(boxes))
    if back < _MIXED * len(boxes):
        return False
    count = content.count_chars()
    sample = range(0, count, max(1, count // 50))
    text = "".join(chr(raw.FPDFText_GetUnicode(content, at)) for at in sample)
    turned = sum(abs(raw.FPDFText_GetCharAngle(content, at)) > 0.01 for at in sample)
    to_left = sum(bidirectional(one) in ("R", "AL") for one in text)
    return bool(10 * (turned + to_left) < len(sample))


def _by_place(content: Any, boxes: list[Box]) -> list[PdfLine]:
    """The lines of a page, from its runs at their places: from the top, each from the left."""
    height = median(box[3] - box[1] for box in boxes)
    rows: list[list[Box]] = []
    for box in sorted(boxes, key=lambda one: -(one[1] + one[3])):
        row = rows[-1][0] if rows else None
        if row and abs(row[1] + row[3] - box[1] - box[3]) < height:
            rows[-1].append(box)
        else:
            rows.append([box])
    lines = []
    for row_boxes in rows:
        row_boxes.sort()
        pieces = [content.get_text_bounded(*box).strip() for box in row_boxes]
        spaces = [" " if two[0] - one[2] > 0.15 * height else "" for one, two in pairwise(row_boxes)]
        text = "".join(f"{piece}{space}" for piece, space in zip(pieces, [*spaces, ""], strict=True))
        lines.append(PdfLine(text.replace("\r\n", " "), row_boxes[0][0], max(box[2] for box in row_boxes)))
    return [line for line in lines if line.text]


def _columns(content: Any, boxes: list[Box]) -> list[PdfLine]:
    """The lines of a page whose two columns are drawn line by line across both; none of any other page."""
    pairs = [
        (one, two) for one, two in pairwise(boxes) if two[0] - one[2] > _GAP * (two[3] - two[1]) and _level(one, two)
    ]
    if len(pairs) < _COLUMN_LINES:
        return []
    middle = median(two[0] for _, two in pairs) - 1
    beside = [(one, two) for one, two in pairs if one[2] < middle < two[0]]
    left, right = min(one[0] for one, _ in pairs), max(two[2] for _, two in pairs)
    width = _COLUMN_WIDTH * median(two[3] - two[1] for _, two in pairs)
    if len(beside) < max(_COLUMN_LINES, 0.8 * len(pairs)) or min(middle - left, right - middle) < width:
        return []
    bands = list(accumulate(box[0] < middle < box[2] for box in boxes))  # a heading over both columns begins a band
    ordered = sorted(zip(bands, boxes, strict=True), key=lambda found: (found[0], found[1][0] > middle))
    lines: list[Box] = []
    for _, box in ordered:
        if lines and _level(lines[-1], box) and (lines[-1][0] > middle) == (box[0] > middle):
            lines[-1] = (lines[-1][0], min(lines[-1][1], box[1]), box[2], max(lines[-1][3], box[3]))
        else:
            lines.append(box)
    return [PdfLine(content.get_text_bounded(*box).strip(), box[0], box[2]) for box in lines]


def _level(one: Box, two: Box) -> bool:
    """Whether boxes stand on one line."""
    return min(one[3], two[3]) - max(one[1], two[1]) > 0.5 * (two[3] - two[1])


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
