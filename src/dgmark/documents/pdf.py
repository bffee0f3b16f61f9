"""PDF files to text, through PDFium: pages to lines, lines to paragraphs.

A PDF knows where letters stand, and neither words nor paragraphs. PDFium finds words, lines and their order; what
ended a paragraph, what stands at the head and foot of every page, and what is a picture of text is found here.
"""

import ctypes
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, pairwise
from statistics import median
from typing import Any, BinaryIO

from dgmark.documents.account import Account, Piece
from dgmark.documents.charsets import check_legible
from dgmark.documents.reading import PAGE_CHARS, Limits, Reading, Refusal
from dgmark.documents.text_builder import without_bullets
from dgmark.documents.zip_archive import LOCKED

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
# a page with fewer characters than its pictures could hold is a picture; one that covers nearly all of it may be a scan
# with its text layer, and then so many characters are enough
_NEARLY_ALL, _MIN_CHARS = 0.9, 100
# where most pages are pictures with fewer characters than this, these are captions and foot lines on every page
_SPARSE = 400
# shapes of so many segments draw letters (others draw lines and boxes); a page with so many of them is drawn text
_SHAPE_SEGMENTS, _PAGE_SEGMENTS, _MAX_SHAPES = 10, 1000, 50_000
# of columns that are drawn line by line: lines, and heights of a line to the gap between them and for their width
_COLUMN_LINES, _GAP, _COLUMN_WIDTH = 5, 1.5, 9
# streams that are packed by zlib alone; PDFium shows what it can unpack of a damaged one
_STREAM = re.compile(rb"(?<!end)stream\r?\n")
_PACKED = re.compile(rb"/Filter\s*(/FlateDecode\b|\[\s*/FlateDecode\s*\])")
# pictures, fonts, and what describes a document or its colours
_NO_TEXT = re.compile(rb"/(Image|Length1|Type1C|CIDFontType0C|OpenType|Metadata|Alternate)\b")
_ENCRYPTED = re.compile(rb"/Encrypt\s*(\d+\s+\d+\s+R|<<)")
_DICTIONARY, _AT_ONCE = 2000, 2**16  # bytes
_FREE_TEXT, _WIDGET, _STAMP, _FILE = 3, 20, 13, 17  # PDFium's kinds of annotations


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
    account = Account()
    file.seek(0)
    damaged = _damaged_streams(file.read())
    account.add_unknown("ends of damaged streams", damaged)
    account.add("attachments", document.count_attachments(), weight=Account.UNKNOWN * document.count_attachments())
    pages: list[list[PdfLine]] = []
    shapes, texts = [], []
    try:
        for page in (document[number] for number in range(count)):
            number = len(pages) + 1
            account.held.append(Piece(f"page {number}", page.get_textpage().get_text_range(errors="replace")))
            pages.append(_lines(page, pypdfium2.raw))
            shapes.append(_shapes(page, pypdfium2.raw))
            texts += _annotations(page, number, pypdfium2.raw, account)
    except pypdfium2.PdfiumError as error:
        raise Refusal(f"is damaged: {error}") from error
    lines, repeated = without_headers(pages)
    sparse = [
        covered > Account.PICTURE and sum(len(line.text) for line in page) < _SPARSE
        for page, (covered, _, _) in zip(lines, shapes, strict=True)
    ]
    enough = _SPARSE if 2 * sum(sparse) > count else _MIN_CHARS
    for number, page in enumerate(lines):
        _count(number + 1, page, shapes[number], enough, account)
    account.add("lines that repeat at the head and foot of pages", repeated)
    text = "\n".join([join_lines([line for page in lines for line in page]), *texts]).strip("\n")
    left_out = "\n".join(line.text for page in pages for line in page)  # lines that repeat; pages count their letters
    reading = account.reading(text, left_out=left_out, pages=count)
    if not text:
        raise Refusal(f"holds no text on its {count} pages")
    check_legible(text)
    return reading


def _damaged_streams(content: bytes) -> int:
    """The number of packed streams, other than pictures and fonts, that cannot be unpacked to their end."""
    if _ENCRYPTED.search(content):
        return 0
    damaged = at = 0
    while found := _STREAM.search(content, at):
        at = found.end()
        dictionary = content[max(0, found.start() - _DICTIONARY) : found.start()].rpartition(b"obj")[2]
        empty = content[at : at + 12].lstrip().startswith(b"endstream")
        if not empty and _PACKED.search(dictionary) and not _NO_TEXT.search(dictionary):
            whole, at = _unpack(content, at)  # the search goes on behind it: no byte is unpacked twice
            damaged += not whole
    return damaged


def _unpack(content: bytes, start: int) -> tuple[bool, int]:
    """Whether zlib data that begins at `start` unpacks to its end, where its checksum stands; and where it stopped."""
    stream, place = zlib.decompressobj(), start
    try:
        for place in range(start, len(content), _AT_ONCE):
            piece = content[place : place + _AT_ONCE]
            while piece and not stream.eof:
                stream.decompress(piece, _AT_ONCE)
                piece = stream.unconsumed_tail
            if stream.eof:
                return True, min(place + _AT_ONCE, len(content)) - len(stream.unused_data)
    except zlib.error:
        return False, place
    return False, len(content)


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


def _lines(page: Any, raw: Any) -> list[PdfLine]:
    """The lines of a page, in the order of its text; of columns that are drawn line by line, column by column."""
    content = page.get_textpage()
    lines, start = _columns(content), 0
    if lines:
        return lines
    for line in content.get_text_range(errors="replace").split("\r\n"):
        length = len(line.encode("utf-16-le", "surrogatepass")) // 2
        text = line.strip(" \t\0\n")
        if text:
            ends = [raw.FPDFText_GetCharIndexFromTextIndex(content, at) for at in (start, start + length - 1)]
            boxes = [content.get_charbox(at, loose=True) if at >= 0 else (0.0,) * 4 for at in ends]
            begin, end = boxes[0][0], boxes[1][2]
            # mirrored where it runs to the left: upside down, or in a script from right to left
            lines.append(PdfLine(text, begin, end) if begin <= end else PdfLine(text, -begin, -end))
        start += length + 2
    return lines


def _columns(content: Any) -> list[PdfLine]:
    """The lines of a page whose two columns are drawn line by line across both; none of any other page."""
    boxes = [content.get_rect(number) for number in range(content.count_rects())]
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


def _annotations(page: Any, page_number: int, raw: Any, account: Account) -> list[str]:
    """The texts that were typed onto a page or into its form; comments, stamps and files are counted."""
    texts = []
    for number in range(raw.FPDFPage_GetAnnotCount(page)):
        one = raw.FPDFPage_GetAnnot(page, number)
        kind = raw.FPDFAnnot_GetSubtype(one)
        name = b"V" if kind == _WIDGET else b"Contents"
        content = ctypes.create_string_buffer(raw.FPDFAnnot_GetStringValue(one, name, None, 0))
        raw.FPDFAnnot_GetStringValue(one, name, ctypes.cast(content, ctypes.POINTER(raw.FPDF_WCHAR)), len(content))
        raw.FPDFPage_CloseAnnot(one)
        text = content.raw.decode("utf-16-le", "replace").rstrip("\0")
        if kind in (_FREE_TEXT, _WIDGET):
            texts.append(text)
        elif kind in (_STAMP, _FILE):
            account.add("stamps" if kind == _STAMP else "attachments", weight=Account.UNKNOWN)
        account.held.append(Piece(f"comments of page {page_number}", text))
    return [text for text in texts if text.strip()]


def _count(number: int, lines: list[PdfLine], shapes: tuple[float, int, int], enough: int, account: Account) -> None:
    """Count what a page shows beside its text."""
    size = sum(len(line.text) + 1 for line in lines) - 1
    covered, pictures, segments = shapes
    if covered > Account.PICTURE and size < max(enough, 0 if covered > _NEARLY_ALL else PAGE_CHARS * covered):
        account.add("pages of pictures", weight=PAGE_CHARS, page=number)
    elif segments > _PAGE_SEGMENTS:
        account.add("pages of drawn letters", weight=PAGE_CHARS if size < _MIN_CHARS else 0, page=number)
    elif pictures:
        account.add("pictures", pictures, page=number)


def _shapes(page: Any, raw: Any) -> tuple[float, int, int]:
    """The share of a page that pictures cover, their number, and the segments of shapes that may be letters."""
    covered, pictures, segments = 0.0, 0, 0
    kinds = [raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH]
    for shape in islice(page.get_objects(filter=kinds), _MAX_SHAPES):
        if shape.type == raw.FPDF_PAGEOBJ_PATH:
            drawn = raw.FPDFPath_CountSegments(shape)
            segments += drawn if drawn > _SHAPE_SEGMENTS else 0
            continue
        box, form = shape.get_bounds(), shape.container
        while form:
            box, form = form.get_matrix().on_rect(*box), form.container
        share = max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1]) / (page.get_width() * page.get_height())
        covered += share
        pictures += share > Account.STAMP
    return covered, pictures, segments


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
