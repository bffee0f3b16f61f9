"""PDF files to text, through PDFium: the text of the pages, then what stands on them beside it."""

import logging
import re
import zlib
from contextlib import suppress
from itertools import islice
from typing import Any, BinaryIO

import pypdfium2
from pypdfium2 import raw

from dgmark_documents.account import HIDDEN, Account, letters_in
from dgmark_documents.charsets import check_legible
from dgmark_documents.look import unseen
from dgmark_documents.pdf_annotations import add_alternatives, add_annotations, add_form_data
from dgmark_documents.pdf_lines import PdfLine, join_lines, page_lines, without_headers
from dgmark_documents.pdf_looks import are_mixed, box_of, has_other_letters, looks, replacing, utf16
from dgmark_documents.reading import LOCKED, PAGE_CHARS, Limits, Reading, Refusal

# a page with fewer characters than its pictures could hold is a picture; one that covers nearly all of it may be a scan
# with its text layer, and then so many characters are enough
_NEARLY_ALL, _MIN_CHARS = 0.9, 100
# where most pages are pictures with fewer characters than this, these are captions and foot lines on every page
_SPARSE = 400
_SEGMENTS = 1000  # of the lines and shapes of a page, if they may draw letters
_MAX_OBJECTS = 50_000  # of a page
_NOT_LETTERS = re.compile(r"[\W\d_]+")
_STREAM = re.compile(rb"(?<!end)stream\r?\n")
_PACKED = re.compile(rb"/Filter\s*(/FlateDecode\b|\[\s*/FlateDecode\s*\])")
# pictures, fonts, and what describes a document or its colours
_NO_TEXT = re.compile(rb"/(Image|Length1|Type1C|CIDFontType0C|OpenType|Metadata|Alternate)\b")
_DRAWN_APART = re.compile(rb"/PatternType\s*1\b|/S\s*/(?:Luminosity|Alpha)\b")
_SCRIPT = re.compile(rb"/S\s*/JavaScript\b")
_DICTIONARY, _AT_ONCE = 2000, 2**16  # bytes


def read_pdf(file: BinaryIO, limits: Limits) -> Reading:
    """Read a PDF. Lines are joined to paragraphs, and lines that repeat at the head and foot of pages are left out."""
    try:
        document = pypdfium2.PdfDocument(file)
        count = len(document)
    except pypdfium2.PdfiumError as error:
        raise Refusal(LOCKED if "password" in str(error).lower() else f"is damaged: {error}") from error
    if count > limits.pages:
        raise Refusal(f"has {count} pages; the limit is {limits.pages}")
    # it warns of forms that it does not draw; they are read here
    logging.getLogger("pypdfium2").setLevel(logging.ERROR)
    reader = _Reader(document)
    try:
        for number in range(count):
            reader.read_page(number)
    except pypdfium2.PdfiumError as error:
        raise Refusal(f"is damaged: {error}") from error
    file.seek(0)
    return reader.reading(file.read())


class _Reader:
    """A document of PDFium, and what was read of it so far."""

    def __init__(self, document: Any) -> None:
        self._document = document
        self._account = Account()
        if document.get_formtype() != raw.FORMTYPE_NONE:
            document.init_forms()
        self._pages: list[list[PdfLine]] = []
        self._covered: list[float] = []  # by pictures, of each page
        self._big: list[int] = []  # pictures
        self._segments: list[int] = []
        self._mixed = ""  # what is drawn in an order that is not that of the lines, as labels of diagrams are

    def read_page(self, number: int) -> None:
        """Read a page, then what its annotations show."""
        account = self._account
        page = self._document[number]
        page.set_rotation(0)  # PDFium's order of lines is that of a page which is not turned
        objects = self._objects(page)
        self._look_at(page, objects, 0)
        content = page.get_textpage()
        self._pages.append(page_lines(content))
        if has_other_letters(content):
            account.add_unknown("pages whose letters stand for others", page=number + 1)
        add_alternatives(page, account)
        if add_annotations(page, self._document.formenv, account):
            of_page = len(objects)
            if raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY) == raw.FLATTEN_SUCCESS:
                page = self._document[number]
                objects = self._objects(page)
                self._look_at(page, objects, of_page)
                self._switch_off(objects[:of_page])
                text = str(page.get_textpage().get_text_range(errors="replace"))
                account.add_beside("annotations", text.replace("\r\n", "\n").replace("\ufffe", ""))
        self._count_shapes(page, objects)

    def _objects(self, page: Any) -> list[Any]:
        return list(islice((one for one in page.get_objects() if one.type != raw.FPDF_PAGEOBJ_FORM), _MAX_OBJECTS))

    def _switch_off(self, objects: list[Any]) -> None:
        for shape in objects:
            raw.FPDFPageObj_SetIsActive(shape, False)

    def _look_at(self, page: Any, objects: list[Any], first: int) -> None:
        """Count the texts from this object on that are not seen, and take those that are hidden out of the page."""
        account = self._account
        content = page.get_textpage()
        texts = [*looks(objects, page.get_bbox(), first)]
        if are_mixed([box_of(shape) for shape, _ in texts]):
            self._mixed += str(content.get_text_range(errors="replace"))
        hidden = []
        for shape, look in texts:
            why = unseen(look)
            if why == HIDDEN:
                hidden.append(shape)
                account.hidden.add(utf16(raw.FPDFTextObj_GetText, shape, content))
            elif why:
                account.add_not_shown(why, utf16(raw.FPDFTextObj_GetText, shape, content))
        stated = {one for shape, _ in texts for one in replacing(shape)}
        account.add_not_shown("text that stands for what is drawn", " ".join(stated))
        self._switch_off(hidden)

    def _count_shapes(self, page: Any, objects: list[Any]) -> None:
        """Count the pictures of a page and the segments of its shapes."""
        area = page.get_width() * page.get_height()
        covered, big = 0.0, 0
        for picture in (one for one in objects if one.type == raw.FPDF_PAGEOBJ_IMAGE):
            left, bottom, right, top = box_of(picture)
            width, height = max(0.0, right - left), max(0.0, top - bottom)
            share = width * height / area
            covered += share
            big += share > Account.STAMP
            if share <= Account.STAMP:
                self._account.add_picture(width, height)
        self._covered.append(covered)
        self._big.append(big)
        paths = [one for one in objects if one.type == raw.FPDF_PAGEOBJ_PATH]
        self._segments.append(sum(raw.FPDFPath_CountSegments(one) for one in paths))

    def reading(self, content: bytes) -> Reading:
        """The text of the pages, with what stands beside them; `content` is the file."""
        account = self._account
        lines, repeated = without_headers(self._pages)
        self._count_pages(lines)
        account.add("lines that repeat at the head and foot of pages", repeated)
        self._add_outline()
        add_form_data(self._document, account)
        account.add_unknown("ends of damaged streams", damaged_streams(content))
        account.add("scripts", len(_SCRIPT.findall(content)))
        account.add("drawings in patterns and masks", len(_DRAWN_APART.findall(content)))
        count = self._document.count_attachments()
        account.add("attachments", count, weight=Account.UNKNOWN * count)
        text = join_lines([line for page in lines for line in page]).strip("\n")
        if 2 * letters_in(self._mixed) > letters_in(text):
            account.add_not_shown("text in an order that is not that of the lines", self._mixed)
        left_out = "\n".join(line.text for page in self._pages for line in page)
        reading = account.reading(text, left_out=left_out, pages=len(self._pages))
        if not reading.text:
            raise Refusal(f"holds no text on its {len(self._pages)} pages")
        check_legible(reading.text)
        return reading

    def _count_pages(self, lines: list[list[PdfLine]]) -> None:
        """Count what pages show beside their text."""
        account = self._account
        sizes = [sum(len(line.text) + 1 for line in page) - 1 for page in lines]
        sparse = [
            covered > Account.PICTURE and sum(len(line.text) for line in page) < _SPARSE
            for page, covered in zip(lines, self._covered, strict=True)
        ]
        enough = _SPARSE if 2 * sum(sparse) > len(lines) else _MIN_CHARS
        for number, (size, covered) in enumerate(zip(sizes, self._covered, strict=True)):
            needed = max(enough, 0 if covered > _NEARLY_ALL else PAGE_CHARS * covered)
            if covered > Account.PICTURE and size < needed:
                account.add("pages of pictures", weight=PAGE_CHARS, page=number + 1)
            elif self._segments[number] > _SEGMENTS:
                weight = PAGE_CHARS if size < _MIN_CHARS else 0
                account.add("pages of drawings", weight=weight, page=number + 1)
            elif self._big[number]:
                account.add("pictures", self._big[number], page=number + 1)

    def _add_outline(self) -> None:
        """Add the titles of the outline that are no lines of the pages."""
        titles = []
        with suppress(Exception):
            titles = [mark.get_title() for mark in self._document.get_toc()]
        if not titles:
            return
        known = {_NOT_LETTERS.sub("", line.text) for page in self._pages for line in page}
        unknown = [title for title in titles if _NOT_LETTERS.sub("", title) not in known]
        self._account.add_beside("the outline", "\n".join(unknown))


def damaged_streams(content: bytes) -> int:
    """The number of streams packed by zlib alone that cannot be unpacked to their end, but for pictures and fonts.

    PDFium shows what it can unpack of these, and says nothing.
    """
    damaged = at = 0
    if b"/Encrypt" in content:
        return 0
    while found := _STREAM.search(content, at):
        start = at = found.end()
        about = content[max(0, found.start() - _DICTIONARY) : found.start()].rpartition(b"obj")[2]
        empty = content[at : at + 12].lstrip().startswith(b"endstream")
        if empty or not _PACKED.search(about) or _NO_TEXT.search(about):
            continue
        stream = zlib.decompressobj()
        with suppress(zlib.error):
            for at in range(start, len(content), _AT_ONCE):  # the search goes on there: nothing is unpacked twice
                stream.decompress(content[at : at + _AT_ONCE])
                if stream.eof:
                    break
        damaged += not stream.eof
    return damaged
