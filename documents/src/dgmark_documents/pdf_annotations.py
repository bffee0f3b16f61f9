"""Comments, form fields and what else stands on the pages of a PDF without being their content.

PDFium draws annotations into a page on demand ("flatten"): then their appearance is text like any other. What has no
appearance in the file, such as a comment that opens on a click, is read from its strings.
"""

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

from dgmark_documents.account import Account, Piece

_HIDDEN = 2 | 32  # flags: hidden, no view
_POPUP, _STAMP, _FILE, _WIDGET = 16, 13, 17, 20  # PDFium's kinds of annotations
_MEDIA = {18: "sounds", 19: "films", 21: "screens", 25: "3D drawings", 26: "media players"}
_STRINGS = {b"Contents": "comments", b"OverlayText": "comments", b"V": "form fields", b"TU": "tool tips"}


def add_strings(page: Any, forms: Any, raw: Any, account: Account) -> bool:
    """Add the texts of a page's annotations beside its body; return whether any of them has an appearance."""
    appears = False
    for number in range(raw.FPDFPage_GetAnnotCount(page)):
        one = raw.FPDFPage_GetAnnot(page, number)
        if not one:
            continue
        kind = raw.FPDFAnnot_GetSubtype(one)
        drawn = bool(raw.FPDFAnnot_HasKey(one, b"AP"))
        appears = appears or drawn
        texts = [(place, _string(raw.FPDFAnnot_GetStringValue, one, name)) for name, place in _STRINGS.items()]
        if forms and kind == _WIDGET:
            texts += _field(one, forms, raw)
        hidden = raw.FPDFAnnot_GetFlags(one) & _HIDDEN
        raw.FPDFPage_CloseAnnot(one)
        for place, text in texts:
            if hidden:
                account.held.append(Piece(place, text, "hidden parts"))
            elif text.strip():
                account.add_beside(place, text)
        if kind in (_STAMP, _FILE):
            account.add("stamps" if kind == _STAMP else "attachments", weight=Account.UNKNOWN)
        elif kind in _MEDIA:
            account.add(_MEDIA[kind])
        elif kind == _POPUP and drawn:
            account.add_unknown("comments with a drawing")
    return appears


def _field(one: Any, forms: Any, raw: Any) -> Iterator[tuple[str, str]]:
    """The value of a form field, which may stand in a field above it, its choices and its tool tip."""
    yield "form fields", _string(raw.FPDFAnnot_GetFormFieldValue, forms, one)
    yield "tool tips", _string(raw.FPDFAnnot_GetFormFieldAlternateName, forms, one)
    for number in range(max(0, raw.FPDFAnnot_GetOptionCount(forms, one))):
        yield "form fields", _string(raw.FPDFAnnot_GetOptionLabel, forms, one, number)


def _string(get: Callable[..., int], *arguments: Any) -> str:
    """A string that a function of PDFium writes into a buffer, as UTF-16."""
    size = get(*arguments, None, 0)
    if size <= 2:  # nothing, or the zero at its end alone
        return ""
    content = ctypes.create_string_buffer(size)
    get(*arguments, ctypes.cast(content, ctypes.POINTER(ctypes.c_ushort)), size)
    return content.raw.decode("utf-16-le", "replace").rstrip("\0").replace("\r", "\n")


def flattened(document: Any, number: int, page: Any, raw: Any) -> Any:
    """The page with the appearance of its annotations as content, or the page itself if nothing changes."""
    return document[number] if raw.FPDFPage_Flatten(page, raw.FLAT_NORMALDISPLAY) == raw.FLATTEN_SUCCESS else page


def text_behind(page: Any, count: int, raw: Any) -> str:
    """The text of a page's objects behind the first ones, but for what stands outside of the page."""
    first = [raw.FPDFPage_GetObject(page, number) for number in range(count)]
    for shape in first:
        raw.FPDFPageObj_SetIsActive(shape, False)
    text = str(page.get_textpage().get_text_bounded(*page.get_bbox()))
    for shape in first:
        raw.FPDFPageObj_SetIsActive(shape, True)
    return text.replace("\r\n", "\n").replace("\ufffe", "")


def add_form_data(document: Any, raw: Any, account: Account) -> None:
    """Add the text of an XFA form, which some readers show instead of the pages."""
    from lxml import etree

    for number in range(max(0, raw.FPDF_GetXFAPacketCount(document))):
        size = ctypes.c_ulong()
        raw.FPDF_GetXFAPacketContent(document, number, None, 0, size)
        content = ctypes.create_string_buffer(max(1, size.value))
        raw.FPDF_GetXFAPacketContent(document, number, content, size.value, size)
        packet = content.raw[: size.value].strip()
        if not packet:
            continue
        parser = etree.XMLParser(recover=True, resolve_entities=False, no_network=True, huge_tree=False)
        # the packets are pieces of one document: of the first and the last only an end of it
        root = etree.fromstring(b"<x>" + packet.rpartition(b"?>")[2] + b"</x>", parser)
        texts = [] if root is None else root.itertext()
        account.add_beside("the form", "\n".join(text.strip() for text in texts if text.strip()))
        account.add("scripts", packet.count(b"<script"))
