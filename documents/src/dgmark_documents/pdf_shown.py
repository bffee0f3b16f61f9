"""What a page of a PDF shows, held against what is read of it.

The text of a page and its picture come from different parts of PDFium: text objects have letters that no one sees
(invisible, white, outside of the page), and drawings have letters that are no text. So the page is drawn, and each run
of its text must leave a mark there; what is drawn outside of all text and pictures may be letters.
"""

import ctypes
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from math import log2, sqrt
from statistics import median
from typing import Any, NamedTuple

from dgmark_documents.account import Account, letters_in
from dgmark_documents.pdf_lines import Box

_PIXELS = 250_000  # of a page when it is drawn: .7 a point for a page of A4
_CONTRAST = 12  # of 255 shades, between a letter and what is around it
_PART = 20  # pixels of a run of text that is looked at
_PLAIN = 0.25  # share of a run that may be spaces
_COVERED = 0.6  # share of a run that lies on other text
_TINY = 0.9  # points: letters of this height, and words of this width, cannot be read
_SCAN_DENSITY, _DECODED = 30, 1_000_000  # pixels an inch of a scan; pixels of a picture that is drawn
_INVISIBLE = 3  # the render mode of text that is not drawn, as in the text layer of a scan
_REPLACED = 20  # letters of a page that ActualText replaces; it is used for ligatures, hyphens and formulas
# letters without ascenders and descenders have one height in a font; of so many on a page, this share may differ by
# this much
_LOW = frozenset("acemnorsuvwxz")
_STRIDE, _SAMPLE, _ENOUGH, _DIFFERENT, _OTHER = 7919, 150, 15, 0.15, 0.3
_CHANCE = 3  # letters of other heights, such as initials
_DARK = bytes(0 if shade < 128 else 1 if shade < 215 else 3 for shade in range(256))
_CORNERS = 2.5  # corners of a letter of 9 points
_FEW = 10  # letters that the ends of lines and boxes of a page may be


class Picture(NamedTuple):
    """A picture on a page: its object, its box in points, the number of its pixels, and whether it may be a scan."""

    shape: Any
    box: Box
    pixels: int
    scan: bool


def box_on_page(shape: Any) -> Box:
    """The box of an object of a page, which may stand in a form."""
    box: Box = shape.get_bounds()
    form = shape.container
    while form:
        box, form = form.get_matrix().on_rect(*box), form.container
    return box


def pictures_of(objects: list[Any], raw: Any) -> list[Picture]:
    """The pictures among the objects of a page."""
    pictures = []
    for shape in objects:
        if shape.type != raw.FPDF_PAGEOBJ_IMAGE:
            continue
        box = box_on_page(shape)
        width, height = shape.get_px_size()
        dense = min(width / max(1.0, box[2] - box[0]), height / max(1.0, box[3] - box[1])) * 72
        pictures.append(Picture(shape, box, width * height, dense >= _SCAN_DENSITY))
    return pictures


def hidden_text(objects: list[Any], pictures: list[Picture], raw: Any) -> list[Any]:
    """The objects of text that is not drawn, but for the text layers of scans."""
    scans = [picture.box for picture in pictures if picture.scan]
    return [
        shape
        for shape in objects
        if shape.type == raw.FPDF_PAGEOBJ_TEXT
        and raw.FPDFTextObj_GetTextRenderMode(shape) == _INVISIBLE
        and not (scans and _inside(box_on_page(shape), scans))
    ]


def switch(objects: list[Any], on: bool, raw: Any) -> None:
    """Take objects into a page or out of it."""
    for shape in objects:
        raw.FPDFPageObj_SetIsActive(shape, on)


def _inside(box: Box, others: list[Box]) -> bool:
    """Whether the middle of a box lies in one of the others."""
    across, up = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return any(left <= across <= right and bottom <= up <= top for left, bottom, right, top in others)


def replacements(objects: list[Any], raw: Any) -> list[tuple[Any, Any]]:
    """The objects of a page whose text ActualText replaces, with their marks; none if it replaces few letters."""
    found: list[tuple[Any, Any]] = []
    letters = 0
    for shape in objects:
        if shape.type != raw.FPDF_PAGEOBJ_TEXT:
            continue
        for number in range(raw.FPDFPageObj_CountMarks(shape)):
            mark = raw.FPDFPageObj_GetMark(shape, number)
            size = ctypes.c_ulong()
            raw.FPDFPageObjMark_GetParamStringValue(mark, b"ActualText", None, 0, size)
            if size.value > 2:
                found.append((shape, mark))
                content = ctypes.create_string_buffer(size.value)
                place = ctypes.cast(content, ctypes.POINTER(raw.FPDF_WCHAR))
                raw.FPDFPageObjMark_GetParamStringValue(mark, b"ActualText", place, size.value, size)
                letters += letters_in(content.raw.decode("utf-16-le", "replace"))
    return found if letters >= _REPLACED else []


def has_other_letters(content: Any, raw: Any) -> bool:
    """Whether the letters of a page's text are not those that its fonts draw: letters of one height differ in it."""
    heights: dict[int, list[float]] = defaultdict(list)
    count = content.count_chars()
    # a wide stride: in even steps, the sample of a text that repeats could hold few of its letters
    for at in {number * _STRIDE % count for number in range(_SAMPLE)} if count else ():
        if chr(raw.FPDFText_GetUnicode(content, at)) not in _LOW:
            continue
        shape = raw.FPDFText_GetTextObject(content, at)
        loose = content.get_charbox(at, loose=True)
        if not shape or loose[3] - loose[1] <= 0 or abs(raw.FPDFText_GetCharAngle(content, at)) > 0.01:
            continue
        box = content.get_charbox(at)
        font = ctypes.cast(raw.FPDFTextObj_GetFont(shape), ctypes.c_void_p).value or 0
        heights[font].append((box[3] - box[1]) / (loose[3] - loose[1]))
    rare = [height for found in heights.values() if len(found) < 5 for height in found]
    kinds = [rare, *(found for found in heights.values() if len(found) >= 5)]
    different = sum(abs(height - median(found)) > _OTHER * median(found) for found in kinds for height in found)
    total = sum(map(len, kinds))
    return total >= _ENOUGH and different > max(_CHANCE, _DIFFERENT * total)


class Drawing:
    """A page as it is drawn, in shades of grey."""

    def __init__(self, page: Any, undrawn: list[Box], raw: Any) -> None:
        scale = min(1.0, sqrt(_PIXELS / max(1.0, page.get_width() * page.get_height())))
        bitmap = page.render(scale=scale, grayscale=True, may_draw_forms=False, draw_annots=False)
        self.pixels = bytearray(bitmap.buffer)
        self.width, self.height, self.stride = bitmap.width, bitmap.height, bitmap.stride
        self._scale = scale
        self._covered = bytearray(len(self.pixels))  # by text, of which height
        self._undrawn = undrawn
        corners = [self._on_device(page, raw, *point) for point in ((0, 0), (1000, 0), (0, 1000))]
        self._origin = corners[0]
        self._across, self._up = (
            ((one[0] - corners[0][0]) / 1000, (one[1] - corners[0][1]) / 1000) for one in corners[1:]
        )
        bitmap.close()

    def _on_device(self, page: Any, raw: Any, across: float, up: float) -> tuple[float, float]:
        x, y = ctypes.c_int(), ctypes.c_int()
        fine = 64
        raw.FPDF_PageToDevice(page, 0, 0, self.width * fine, self.height * fine, 0, across, up, x, y)
        return x.value / fine, y.value / fine

    def _pixels_of(self, box: Box) -> tuple[float, float, float, float]:
        """A box of a page in pixels: left, top, right, bottom."""
        (x, y), (ax, ay), (ux, uy) = self._origin, self._across, self._up
        left, right = x + box[0] * ax + box[1] * ux, x + box[2] * ax + box[3] * ux
        top, bottom = y + box[0] * ay + box[1] * uy, y + box[2] * ay + box[3] * uy
        return min(left, right), min(top, bottom), max(left, right), max(top, bottom)

    def hidden(self, box: Box, text_of: Callable[[Box], str]) -> tuple[str, str]:
        """Why a run of text is not seen, and what of it; each run is asked once, in the order of drawing.

        Args:
            box: the box of the run.
            text_of: gives the text in a box of the page.
        """
        left, top, right, bottom = self._pixels_of(box)
        width, height = right - left, bottom - top
        start, end = max(0, int(left)), min(self.width, int(right) + 1)
        rows = range(max(0, int(top)), min(self.height, int(bottom) + 1))
        if end <= start or not rows:
            return "", ""  # outside of the page: not read
        tiny = _TINY * self._scale
        if min(width, height) < tiny and (max(width, height) < tiny or letters_in(text_of(box)) > 1):
            return "too small to be read", text_of(box)
        if not _inside(box, self._undrawn):
            plain = [text_of(part) for part in self._plain_parts(box, rows, start, end)]
            text = "".join(part for part in plain if len(plain) == 1 or letters_in(part) > 1)
            if letters_in(text):
                return "not drawn in a colour of its own", text
        if self._cover(rows, start, end, 1 + int(2 * log2(1 + height))):
            return "under other text", text_of(box)
        return "", ""

    def _plain_parts(self, box: Box, rows: range, start: int, end: int) -> list[Box]:
        """The parts of a box in which nothing is drawn."""
        middle = rows[len(rows) // 3]
        count = max(1, (end - start) // _PART)
        pieces = [start + (end - start) * part // count for part in range(count + 1)]
        plain = {
            part
            for part, (one, two) in enumerate(pairwise(pieces))
            if not self._drawn(middle, one, two) and not any(self._drawn(row, one, two) for row in rows)
        }
        if len(plain) < _PLAIN * count:  # spaces in it, or before it
            return []
        step = (box[2] - box[0]) / count
        starts = [part for part in sorted(plain) if part - 1 not in plain]
        ends = [part + 1 for part in sorted(plain) if part + 1 not in plain]
        return [
            (box[0] + one * step, box[1], box[0] + two * step, box[3]) for one, two in zip(starts, ends, strict=True)
        ]

    def _drawn(self, row: int, start: int, end: int) -> bool:
        """Whether there is any contrast in these pixels."""
        shades = self.pixels[row * self.stride + start : row * self.stride + end]
        return bool(shades) and max(shades) - min(shades) >= _CONTRAST

    def _cover(self, rows: range, start: int, end: int, size: int) -> bool:
        """Note that text of this size covers these pixels; return whether text of that size covers them."""
        over, mark = 0, bytes([size]) * (end - start)
        for row in rows:
            place = slice(row * self.stride + start, row * self.stride + end)
            over += self._covered[place].count(size)
            self._covered[place] = mark
        return over > _COVERED * len(rows) * len(mark)

    def erase(self, box: Box) -> None:
        """Make a box plain."""
        left, top, right, bottom = self._pixels_of(box)
        start, end = max(0, int(left) - 1), min(self.width, int(right) + 2)
        if end <= start:
            return
        for row in range(max(0, int(top) - 1), min(self.height, int(bottom) + 2)):
            self.pixels[row * self.stride + start : row * self.stride + end] = b"\xff" * (end - start)

    def letters(self) -> int:
        """The letters that may be drawn in what is not erased, by its corners: lines and boxes have few."""
        drawn = self.pixels.translate(_DARK).strip(b"\3")  # without the white at the head and the foot
        shades = int.from_bytes(drawn, "little") ^ int.from_bytes(b"\3" * len(drawn), "little")
        corners = (shades ^ shades >> 8) & (shades ^ shades >> 8 * self.stride)
        letters = int(corners.bit_count() / _CORNERS)
        return letters if letters > _FEW else 0


def compare(page: Any, pictures: list[Picture], content: Any, runs: list[Box], account: Account, raw: Any) -> int:
    """Hold the text of a page against its drawing; count what is read and not shown.

    Args:
        page: the page.
        pictures: its pictures.
        content: PDFium's text of the page.
        runs: the boxes of its runs.
        account: where it is counted.
        raw: PDFium's functions.

    Returns:
        The letters that may be drawn outside of text and pictures.
    """
    undrawn = [picture for picture in pictures if picture.pixels > _DECODED]
    switch([picture.shape for picture in undrawn], False, raw)
    drawing = Drawing(page, [picture.box for picture in undrawn], raw)
    for box in runs:
        why, text = drawing.hidden(box, lambda place: str(content.get_text_bounded(*place)))
        if text:
            account.add_not_shown(f"text {why}", text)
    for box in (*runs, *(picture.box for picture in pictures)):
        drawing.erase(box)
    return drawing.letters()
