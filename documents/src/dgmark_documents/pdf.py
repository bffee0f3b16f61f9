"""PDF files to text, through PDFium.

Each page is read, drawn and read again with its annotations: what is read and not shown, and what is shown and not
read, is counted.
"""

import ctypes
import logging
import re
from contextlib import suppress
from itertools import islice
from typing import Any, BinaryIO

from dgmark_documents.account import Account, Piece, letters_in
from dgmark_documents.charsets import check_legible
from dgmark_documents.pdf_annotations import add_form_data, add_strings, flattened, text_behind
from dgmark_documents.pdf_lines import PdfLine, join_lines, page_text, runs_of, without_headers
from dgmark_documents.pdf_objects import scan
from dgmark_documents.pdf_shown import (
    Picture,
    compare,
    has_other_letters,
    hidden_text,
    pictures_of,
    replacements,
    switch,
)
from dgmark_documents.reading import PAGE_CHARS, Limits, Reading, Refusal
from dgmark_documents.zip_archive import LOCKED

# a page with fewer characters than its pictures could hold is a picture; one that covers nearly all of it may be a scan
# with its text layer, and then so many characters are enough
_NEARLY_ALL, _MIN_CHARS = 0.9, 100
# where most pages are pictures with fewer characters than this, these are captions and foot lines on every page
_SPARSE = 400
# shapes of so many segments draw letters (others draw lines and boxes); a page with so many of them is drawn text
_SHAPE_SEGMENTS, _PAGE_SEGMENTS, _MAX_SHAPES = 10, 1000, 50_000
_DRAWN = 100  # letters that may be drawn outside of the text, on a page and in all
_SAME = 0.5  # share of the letters of a page that its fonts must have where ActualText states others
_NOT_LETTERS = re.compile(r"[\W\d_]+")


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
    # it warns of forms that it does not draw; they are read here
    logging.getLogger("pypdfium2").setLevel(logging.ERROR)
    reader = _Reader(document, pypdfium2.raw)
    try:
        for number in range(count):
            reader.read_page(number)
    except pypdfium2.PdfiumError as error:
        raise Refusal(f"is damaged: {error}") from error
    file.seek(0)
    return reader.reading(file.read())


def _text_of(page: Any) -> str:
    return str(page.get_textpage().get_text_range(errors="replace"))


class _Reader:
    """A document of PDFium, and what was read of it so far."""

    def __init__(self, document: Any, raw: Any) -> None:
        self._document, self._raw = document, raw
        self._account = Account()
        if document.get_formtype() != raw.FORMTYPE_NONE:
            document.init_forms()
        self._pages: list[list[PdfLine]] = []
        self._covered: list[float] = []
        self._big: list[int] = []  # pictures
        self._segments: list[int] = []
        self._drawn: list[int] = []

    def read_page(self, number: int) -> None:
        """Read a page, hold it against its drawing, and add its annotations."""
        raw, account = self._raw, self._account
        page = self._document[number]
        objects = self._objects(page)
        pictures = pictures_of(objects, raw)
        self._leave_out(page, objects, pictures)
        content = page.get_textpage()
        runs = runs_of(content)
        found = page_text(content, runs, page.get_bbox(), raw)
        account.held.append(Piece(f"page {number + 1}", found.text))
        account.add("letters outside of their pages", found.outside)
        self._pages.append(found.lines)
        if has_other_letters(content, raw):
            account.add_unknown("pages whose letters stand for others", page=number + 1)
        if add_strings(page, self._document.formenv, raw, account):
            first = raw.FPDFPage_CountObjects(page)
            page = flattened(self._document, number, page, raw)
            account.add_beside("annotations", text_behind(page, first, raw))
            objects = self._objects(page)
            switch(hidden_text(objects, pictures, raw), False, raw)
            pictures = pictures_of(objects, raw)
            content = page.get_textpage()
            runs = runs_of(content)
        self._drawn.append(compare(page, pictures, content, runs, account, raw))
        self._count_shapes(page, objects, pictures)

    def _objects(self, page: Any) -> list[Any]:
        raw = self._raw
        kinds = [raw.FPDF_PAGEOBJ_TEXT, raw.FPDF_PAGEOBJ_IMAGE, raw.FPDF_PAGEOBJ_PATH]
        return list(islice(page.get_objects(filter=kinds), _MAX_SHAPES))

    def _leave_out(self, page: Any, objects: list[Any], pictures: list[Picture]) -> None:
        """Leave out text that is not drawn, and read what fonts draw where ActualText states other letters."""
        raw, account, number = self._raw, self._account, len(self._pages) + 1
        hidden = hidden_text(objects, pictures, raw)
        if hidden:
            known = {ctypes.addressof(shape.raw.contents) for shape in hidden}
            seen = [shape for shape in objects if ctypes.addressof(shape.raw.contents) not in known]
            switch(seen, False, raw)
            account.held.append(Piece(f"hidden text of page {number}", _text_of(page), "hidden parts"))
            switch(seen, True, raw)
            switch(hidden, False, raw)
        replaced = replacements(objects, raw)
        if replaced:
            stated = _text_of(page)
            for shape, mark in replaced:
                raw.FPDFPageObj_RemoveMark(shape, mark)
            account.held.append(Piece(f"replacing text of page {number}", stated))
            if letters_in(_text_of(page)) < _SAME * letters_in(stated):
                account.add_unknown("texts that stand for drawings", page=number)

    def _count_shapes(self, page: Any, objects: list[Any], pictures: list[Picture]) -> None:
        """Count the pictures of a page and the segments of its shapes."""
        raw, area = self._raw, page.get_width() * page.get_height()
        covered, big = 0.0, 0
        for picture in pictures:
            left, bottom, right, top = picture.box
            width, height = max(0.0, right - left), max(0.0, top - bottom)
            share = width * height / area
            covered += share
            big += share > Account.STAMP
            if share <= Account.STAMP:
                self._account.add_picture(width, height)
        drawn = [raw.FPDFPath_CountSegments(shape) for shape in objects if shape.type == raw.FPDF_PAGEOBJ_PATH]
        self._covered.append(covered)
        self._segments.append(sum(segments for segments in drawn if segments > _SHAPE_SEGMENTS))
        self._big.append(big)

    def reading(self, content: bytes) -> Reading:
        """The text of the pages, with what stands beside them; `content` is the file."""
        account = self._account
        lines, repeated = without_headers(self._pages)
        self._count_pages(lines)
        account.add("lines that repeat at the head and foot of pages", repeated)
        self._add_outline()
        add_form_data(self._document, self._raw, account)
        self._add_objects(content)
        text = join_lines([line for page in lines for line in page]).strip("\n")
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
        all_drawn = sum(self._drawn)
        for number, (size, covered) in enumerate(zip(sizes, self._covered, strict=True)):
            needed = max(enough, 0 if covered > _NEARLY_ALL else PAGE_CHARS * covered)
            if covered > Account.PICTURE and size < needed:
                account.add("pages of pictures", weight=PAGE_CHARS, page=number + 1)
            elif self._segments[number] > _PAGE_SEGMENTS:
                weight = PAGE_CHARS if size < _MIN_CHARS else 0
                account.add("pages of drawn letters", weight=weight, page=number + 1)
            elif self._big[number]:
                account.add("pictures", self._big[number], page=number + 1)
            elif self._drawn[number] and all_drawn > _DRAWN:
                account.add("pages with drawings", page=number + 1)

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

    def _add_objects(self, content: bytes) -> None:
        """Add what the objects of the file hold."""
        account = self._account
        found = scan(content)
        account.add_unknown("ends of damaged streams", found.damaged)
        account.add("scripts", found.scripts)
        count = self._document.count_attachments()
        account.add("attachments", count, weight=Account.UNKNOWN * count)
        for place, text in found.strings:
            account.add_beside(place, text)
