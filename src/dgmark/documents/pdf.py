"""PDF files to text, through PDFium: pages to lines, lines to paragraphs.

A PDF knows where letters stand, and neither words nor paragraphs. PDFium finds words, lines and their order; what
ended a paragraph, what stands at the head and foot of every page, and what is a picture of text is found here.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from dgmark.documents.charsets import check_legible
from dgmark.documents.reading import Limits, Reading, Refusal
from dgmark.documents.text_builder import without_bullets
from dgmark.documents.zip_archive import LOCKED

_HYPHEN = "\ufffe"  # PDFium's sign for a hyphen at the end of a line
_NUMBER = re.compile(r"\d+|\b[ivxlc]+\b")
_BULLET = re.compile("^[\uf000-\uf0ff•◦▪‣·] ?")
_MAX_HEADER = 4  # lines of a header or a footer; more that repeat are the text of pages that are alike
_NEAR = 2  # a header repeats within so many pages, also where left and right pages differ
_ROOM = 1.1  # a line ends a paragraph if the next word, and a tenth more, had fitted into it
_INDENT = 0.015  # a first line begins at least this share of the column's width further in
_FLUSH = 1.0  # points by which the ends of justified lines differ at most
_NEIGHBOURS = 4  # lines before and after that show where a column ends
_PICTURE_SHARE, _MIN_CHARS = 0.4, 100  # a page is a picture if one covers so much of it and it has fewer characters


def read_pdf(file: BinaryIO, limits: Limits) -> Reading:
    """Read a PDF. Lines are joined to paragraphs, and lines that repeat at the head and foot of pages are left out.

    Raises:
        Refusal: the file is damaged, encrypted, too long, or holds pictures of pages instead of text.
    """
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(file)
        count = len(document)
    except pypdfium2.PdfiumError as error:
        raise Refusal(LOCKED if "password" in str(error).lower() else f"is damaged: {error}") from error
    if count > limits.pages:
        raise Refusal(f"has {count} pages; the limit is {limits.pages}")
    index_of = pypdfium2.raw.FPDFText_GetCharIndexFromTextIndex
    try:
        pages = [_lines(document[number], index_of) for number in range(count)]
    except pypdfium2.PdfiumError as error:
        raise Refusal(f"is damaged: {error}") from error
    lines, left_out = without_headers(pages)
    pictures = [
        number
        for number, page in enumerate(lines)
        if sum(len(line.text) for line in page) < _MIN_CHARS
        and _is_picture(document[number], pypdfium2.raw.FPDF_PAGEOBJ_IMAGE)
    ]
    return _reading(lines, left_out, pictures)


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


def _lines(page: Any, index_of: Any) -> list[PdfLine]:
    """The lines of a page, in the order of its text.

    Args:
        page: a page of PDFium.
        index_of: its function from a place in the text to the place of a letter.
    """
    content = page.get_textpage()
    lines, start = [], 0
    for line in content.get_text_range(errors="replace").split("\r\n"):
        length = len(line.encode("utf-16-le", "surrogatepass")) // 2
        text = line.strip(" \t\0\n")
        if text:
            ends = [index_of(content, at) for at in (start, start + length - 1)]
            boxes = [content.get_charbox(at, loose=True) if at >= 0 else (0.0,) * 4 for at in ends]
            begin, end = boxes[0][0], boxes[1][2]
            # mirrored where it runs to the left: upside down, or in a script from right to left
            lines.append(PdfLine(text, begin, end) if begin <= end else PdfLine(text, -begin, -end))
        start += length + 2
    return lines


def _is_picture(page: Any, image: int) -> bool:
    """Whether pictures cover much of a page."""
    size = page.get_width() * page.get_height()
    covered = 0.0
    for shape in page.get_objects(filter=[image], max_depth=3):
        left, bottom, right, top = shape.get_bounds()
        covered += max(0.0, right - left) * max(0.0, top - bottom)
    return bool(covered > _PICTURE_SHARE * size)


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


def _reading(pages: list[list[PdfLine]], left_out: int, pictures: list[int]) -> Reading:
    text = join_lines([line for page in pages for line in page])
    if not text or 2 * len(pictures) > len(pages):
        raise Refusal(
            f"holds no text that can be read: {len(pictures) or 'none'} of its {len(pages)} pages are pictures, "
            "as a scanner makes them. Run a program for character recognition (OCR) on it first"
            if pictures
            else f"holds no text on its {len(pages)} pages"
        )
    check_legible(text)
    notes = []
    if left_out:
        notes.append(f"{left_out} lines that repeat at the head and foot of pages are left out")
    if pictures:
        numbers = ", ".join(str(number + 1) for number in pictures[:20])
        notes.append(f"{len(pictures)} pages are pictures without text and are not read (page {numbers})")
    return Reading(text, tuple(notes), len(pages))


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
    column = [lines[near] for near in _around(at, _NEIGHBOURS, len(lines)) if line.beside(lines[near])]
    left, right = min(one.left for one in column), max(one.right for one in column)
    if any(one is not line and abs(one.right - line.right) < _FLUSH for one in column):
        right = line.right  # both sides are straight, and the line reaches the right one
    word = after.text.split(" ", 1)[0]
    needed = (len(word) + 1) * (line.right - line.left) / len(line.text)
    if line.right + _ROOM * needed < right:
        return True
    return line.beside(after) and line.left < left + 1 and after.left > left + _INDENT * (right - left) + 1
