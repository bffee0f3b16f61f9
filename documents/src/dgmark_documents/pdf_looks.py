"""How the texts of a page of a PDF are shown: the `Look` of each text object, by what the page states for it.

A page says how a text is drawn, and not what is behind it: that is white, or the colour of the last shape that was
filled there before.
"""

import ctypes
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import hypot
from statistics import median
from typing import Any

from pypdfium2 import raw

from dgmark_documents.account import letters_in
from dgmark_documents.look import Look, look_alike

Box = tuple[float, float, float, float]  # left, bottom, right, top, in points

_INVISIBLE = 3  # the render mode of text that is not drawn, as in the text layer of a scan
_OUTLINED = (1, 5)  # those of letters that are not filled
_SCAN = 30  # pixels an inch of a scan
# texts of a page, and the share of them that is drawn before one above or to the left, where they are in any order
_MIXED_TEXTS, _MIXED = 20, 0.25
# letters without ascenders and descenders have one height in a font; of so many on a page, this share may differ by
# this much, and a few, such as initials, in any case
_LOW = frozenset("acemnorsuvwxz")
_STRIDE, _SAMPLE, _ENOUGH, _DIFFERENT, _OTHER, _CHANCE = 7919, 150, 15, 0.15, 0.3, 3
_PHRASE = 16  # letters that stand for what is drawn; fewer are a ligature, a hyphen or a sign


def looks(objects: list[Any], page: Box, first: int = 0) -> Iterator[tuple[Any, Look]]:
    """The text objects of a page, with their looks.

    Args:
        objects: the objects of the page, in the order in which they are drawn.
        page: the box of the page.
        first: the number of the first object that is looked at; those before it may stand behind it.
    """
    filled: list[tuple[Box, str | None]] = []
    fills: set[str | None] = {"ffffff"}
    scans = [box_of(one) for one in objects if one.type == raw.FPDF_PAGEOBJ_IMAGE and _is_scan(one)]
    for number, one in enumerate(objects):
        if one.type != raw.FPDF_PAGEOBJ_TEXT:
            if one.type != raw.FPDF_PAGEOBJ_PATH or _is_filled(one):
                colour = _colour(one)[0] if one.type == raw.FPDF_PAGEOBJ_PATH else None
                filled.append((box_of(one), colour))
                fills.add(colour)
        elif number >= first:
            box, mode = box_of(one), raw.FPDFTextObj_GetTextRenderMode(one)
            colour, opacity = _colour(one, outline=mode in _OUTLINED)
            alike = any(look_alike(colour, fill) for fill in fills)
            yield (
                one,
                Look(
                    hidden=_is_outside(box, page) or (mode == _INVISIBLE and not _within(box, scans)),
                    size=_size(one, box),
                    colour=colour,
                    background=_behind(box, filled) if alike and mode != _INVISIBLE else None,
                    opacity=opacity,
                    moved=any(name == "OC" for name, _ in _marks(one)),
                ),
            )


def replacing(shape: Any) -> set[str]:
    """The phrases that a text object states in place of what it draws."""
    return {text for _, text in _marks(shape) if letters_in(text) >= _PHRASE}


def are_mixed(texts: list[Box]) -> bool:
    """Whether texts are drawn in an order that is not that of their lines, by their boxes."""
    back = sum(two[1] > one[3] or (two[2] <= one[0] and two[3] > one[1]) for one, two in pairwise(texts))
    return len(texts) >= _MIXED_TEXTS and back > _MIXED * len(texts)


def has_other_letters(content: Any) -> bool:
    """Whether the letters of a page's text are not those that its fonts draw: letters of one height differ in it."""
    heights: dict[int, list[float]] = defaultdict(list)
    count = content.count_chars()
    # a wide stride: in even steps, the sample of a text that repeats could hold few of its letters
    for at in {number * _STRIDE % count for number in range(_SAMPLE)} if count else ():
        shape, loose = raw.FPDFText_GetTextObject(content, at), content.get_charbox(at, loose=True)
        turned = abs(raw.FPDFText_GetCharAngle(content, at)) > 0.01
        if chr(raw.FPDFText_GetUnicode(content, at)) in _LOW and shape and loose[3] > loose[1] and not turned:
            box = content.get_charbox(at)
            font = ctypes.cast(raw.FPDFTextObj_GetFont(shape), ctypes.c_void_p).value or 0
            heights[font].append((box[3] - box[1]) / (loose[3] - loose[1]))
    different = sum(abs(one - median(found)) > _OTHER * median(found) for found in heights.values() for one in found)
    total = sum(map(len, heights.values()))
    return total >= _ENOUGH and different > max(_CHANCE, _DIFFERENT * total)


def box_of(shape: Any) -> Box:
    """The box of an object of a page, which may stand in a form."""
    box: Box = shape.get_bounds()
    form = shape.container
    while form:
        box, form = form.get_matrix().on_rect(*box), form.container
    return box


def utf16(get: Callable[..., int], *arguments: Any) -> str:
    """A string that a function of PDFium writes into a buffer, as UTF-16."""
    size = get(*arguments, None, 0)
    if size <= 2:  # nothing, or the zero at its end alone
        return ""
    content = ctypes.create_string_buffer(size)
    get(*arguments, ctypes.cast(content, ctypes.POINTER(ctypes.c_ushort)), size)
    return content.raw.decode("utf-16-le", "replace").rstrip("\0").replace("\r", "\n")


def _within(box: Box, others: list[Box]) -> bool:
    """Whether the middle of a box lies in one of the others."""
    across, up = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return any(left <= across <= right and bottom <= up <= top for left, bottom, right, top in others)


def _is_outside(box: Box, page: Box) -> bool:
    """Whether a box lies outside of the page."""
    left, bottom, right, top = page
    return box[2] < left or box[0] > right or box[3] < bottom or box[1] > top


def _behind(box: Box, filled: list[tuple[Box, str | None]]) -> str | None:
    """The colour behind a box; None if it is not known."""
    return next((colour for at, colour in reversed(filled) if _within(box, [at])), "ffffff")


def _is_scan(picture: Any) -> bool:
    left, bottom, right, top = box_of(picture)
    width, height = picture.get_px_size()
    return bool(72 * min(width / max(1.0, right - left), height / max(1.0, top - bottom)) >= _SCAN)


def _is_filled(shape: Any) -> bool:
    mode, stroke = ctypes.c_int(), ctypes.c_int()
    raw.FPDFPath_GetDrawMode(shape, mode, stroke)
    return bool(mode.value)


def _colour(shape: Any, *, outline: bool = False) -> tuple[str | None, float]:
    """The colour and the opacity of an object; no colour if it is drawn with a pattern."""
    get = raw.FPDFPageObj_GetStrokeColor if outline else raw.FPDFPageObj_GetFillColor
    parts = [ctypes.c_uint() for _ in range(4)]
    if not get(shape, *parts):
        return None, 1.0
    *colour, opacity = (part.value for part in parts)
    return bytes(colour).hex(), opacity / 255


def _size(shape: Any, box: Box) -> float:
    """The size of letters in points; a font may have a unit of its own, so that the box counts, too."""
    size = ctypes.c_float()
    raw.FPDFTextObj_GetFontSize(shape, size)
    matrix, form = shape.get_matrix(), shape.container
    while form:
        matrix, form = matrix.multiply(form.get_matrix()), form.container
    stated = size.value * min(hypot(matrix.a, matrix.b), hypot(matrix.c, matrix.d))
    return max(stated, min(box[2] - box[0], box[3] - box[1]))


def _marks(shape: Any) -> Iterator[tuple[str, str]]:
    """The marks of an object: the name of each, and the text that it states in place of the object's own."""
    for number in range(raw.FPDFPageObj_CountMarks(shape)):
        mark = raw.FPDFPageObj_GetMark(shape, number)
        name = _in_mark(raw.FPDFPageObjMark_GetName, mark)
        yield name, _in_mark(raw.FPDFPageObjMark_GetParamStringValue, mark, b"ActualText")


def _in_mark(get: Any, *arguments: Any) -> str:
    size = ctypes.c_ulong()
    get(*arguments, None, 0, size)
    content = ctypes.create_string_buffer(max(1, size.value))
    get(*arguments, ctypes.cast(content, ctypes.POINTER(ctypes.c_ushort)), size.value, size)
    return content.raw.decode("utf-16-le", "replace").rstrip("\0") if size.value > 2 else ""
