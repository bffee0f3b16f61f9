"""What stands on the pages of a PDF without being their content: comments, form fields, texts of pictures.

PDFium draws annotations into a page on demand ("flatten"): then their appearance is text like any other. What has no
appearance in the file, such as a comment that opens on a click, is read from its strings.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

from pypdfium2 import raw

from dgmark_documents.account import Account
from dgmark_documents.pdf_looks import utf16

_HIDDEN = 2 | 32  # flags: hidden, no view
_POPUP, _STAMP, _FILE, _WIDGET = 16, 13, 17, 20  # PDFium's kinds of annotations
_MEDIA = {18: "sounds", 19: "films", 21: "screens", 25: "3D drawings", 26: "media players"}
_STRINGS = {
    b"Contents": "comments", b"RC": "comments", b"OverlayText": "comments", b"V": "form fields", b"TU": "tool tips",
    b"Alt": "alternative texts",
}  # fmt: skip


def add_annotations(page: Any, forms: Any, account: Account) -> bool:
    """Add the texts of a page's annotations beside its body; return whether any of them has an appearance."""
    appears = False
    for number in range(raw.FPDFPage_GetAnnotCount(page)):
        one = raw.FPDFPage_GetAnnot(page, number)
        if not one:
            continue
        kind = raw.FPDFAnnot_GetSubtype(one)
        drawn = bool(raw.FPDFAnnot_HasKey(one, b"AP"))
        appears = appears or drawn
        texts = [(place, utf16(raw.FPDFAnnot_GetStringValue, one, name)) for name, place in _STRINGS.items()]
        if forms and kind == _WIDGET:
            texts += _field(one, forms)
        if kind == _WIDGET and not forms:
            account.add("choices of no form", raw.FPDFAnnot_HasKey(one, b"Opt"))
        hidden = raw.FPDFAnnot_GetFlags(one) & _HIDDEN
        raw.FPDFPage_CloseAnnot(one)
        for place, text in texts:
            if hidden:
                account.hidden.add(text)
            else:
                account.put(place, text)
        if kind in (_STAMP, _FILE):
            account.add("stamps" if kind == _STAMP else "attachments", weight=Account.UNKNOWN)
        elif kind in _MEDIA:
            account.add(_MEDIA[kind])
        elif kind == _POPUP and drawn:
            account.add_unknown("comments with a drawing")
    return appears


def _field(one: Any, forms: Any) -> Iterator[tuple[str, str]]:
    """The value of a form field, which may stand in a field above it, its choices and its tool tip."""
    yield "form fields", utf16(raw.FPDFAnnot_GetFormFieldValue, forms, one)
    yield "tool tips", utf16(raw.FPDFAnnot_GetFormFieldAlternateName, forms, one)
    for number in range(max(0, raw.FPDFAnnot_GetOptionCount(forms, one))):
        yield "form fields", utf16(raw.FPDFAnnot_GetOptionLabel, forms, one, number)


def add_alternatives(page: Any, account: Account) -> None:
    """Add the texts that stand for the pictures of a page."""
    tree = raw.FPDF_StructTree_GetForPage(page)
    if not tree:
        return
    top = [raw.FPDF_StructTree_GetChildAtIndex(tree, at) for at in range(raw.FPDF_StructTree_CountChildren(tree))]
    waiting = top[::-1]
    while waiting:
        one = waiting.pop()
        if one:
            account.put("alternative texts", utf16(raw.FPDF_StructElement_GetAltText, one))
            count = raw.FPDF_StructElement_CountChildren(one)
            waiting += [raw.FPDF_StructElement_GetChildAtIndex(one, at) for at in reversed(range(count))]
    raw.FPDF_StructTree_Close(tree)


def add_form_data(document: Any, account: Account) -> None:
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
