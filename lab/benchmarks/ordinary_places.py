"""Put a text in place of a paragraph of a document, and leave all else as it is.

The paragraph is the middle one of those of 20 words and more, or else the longest one.
"""

import json
import re
import textwrap
import zipfile
from collections.abc import Callable, Sequence
from ctypes import c_ushort
from email import message_from_bytes, policy
from io import BytesIO
from typing import Any, TypeVar

import pypdfium2
import pypdfium2.raw as pdfium
from lxml import etree, html

from ordinary_corpus import rtf_body

LEAST_WORDS = 20  # of a paragraph that can stand for the body
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_SLIDE = re.compile(r"ppt/slides/slide\d+\.xml")
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_XHTML = "{http://www.w3.org/1999/xhtml}"
_RTF_PARAGRAPH = re.compile(rb"\\par(?![a-z])")
_BLOCKS = "self::div or self::li or self::dd or self::td or self::pre"
_LINE, _LEADING, _TOP, _LEFT, _FONT = 80, 14, 790, 60, 11  # of a page of A4: characters, then points

One = TypeVar("One")


def placed(content: bytes, kind: str, text: str) -> bytes | None:
    """The document with `text` in place of a paragraph, on a page of its own in a PDF; None if it has no paragraph.

    Args:
        content: the document.
        kind: its kind, a key of `ordinary_corpus.KINDS`.
        text: what is put in, in ASCII.
    """
    try:
        return _PLACE[kind](content, text)
    except (_NoParagraphError, etree.LxmlError, ValueError, LookupError, AssertionError):
        return None


class _NoParagraphError(Exception):
    pass


def _middle(paragraphs: Sequence[One], text_of: Callable[[One], str]) -> One:
    words = [len(text_of(one).split()) for one in paragraphs]
    long = [one for one, count in zip(paragraphs, words, strict=True) if count >= LEAST_WORDS]
    if long:
        return long[len(long) // 2]
    if not any(words):
        raise _NoParagraphError
    return paragraphs[words.index(max(words))]


def _text_of(element: Any) -> str:
    return " ".join(element.itertext())


def _in_html(content: bytes, text: str) -> bytes:
    parser = html.HTMLParser(encoding=None if b"charset" in content[:2000] or b"encoding" in content[:100] else "utf-8")
    page = html.document_fromstring(content, parser)
    paragraphs = page.xpath("//body//p") or page.xpath(f"//body//*[{_BLOCKS}][not(*)]")
    _fill(_middle(paragraphs, _text_of), text)
    tree = page.getroottree()
    whole: bytes = etree.tostring(tree, method="html", encoding=tree.docinfo.encoding or "utf-8")
    return whole


def _in_chapter(content: bytes, text: str) -> bytes:
    root = etree.fromstring(content, etree.XMLParser(recover=True))
    _fill(_middle([*root.iter(f"{_XHTML}p")], _text_of), text)
    whole: bytes = etree.tostring(root.getroottree(), encoding="utf-8", xml_declaration=True)
    return whole


def _fill(paragraph: Any, text: str) -> None:
    del paragraph[:]
    paragraph.text = text


def _in_docx(content: bytes, text: str) -> bytes:
    def fill(part: bytes) -> bytes:
        root = etree.fromstring(part)
        paragraph = _middle([*root.iter(f"{_W}p")], lambda one: " ".join(run.text or "" for run in one.iter(f"{_W}t")))
        for child in paragraph:
            if child.tag != f"{_W}pPr":
                paragraph.remove(child)
        etree.SubElement(etree.SubElement(paragraph, f"{_W}r"), f"{_W}t").text = text
        whole: bytes = etree.tostring(root, encoding="utf-8", xml_declaration=True, standalone=True)
        return whole

    return _with_part(content, "word/document.xml", fill)


def _in_pptx(content: bytes, text: str) -> bytes:
    """Put the text on the longest slide."""
    with zipfile.ZipFile(BytesIO(content)) as parts:
        slides = {name: parts.read(name) for name in parts.namelist() if _SLIDE.fullmatch(name)}
    roots = {name: etree.fromstring(part) for name, part in slides.items()}
    name = max(roots, key=lambda one: sum(len(run.text or "") for run in roots[one].iter(f"{_A}t")))

    def fill(_: bytes) -> bytes:
        runs = _middle(
            [*roots[name].iter(f"{_A}p")], lambda one: " ".join(run.text or "" for run in one.iter(f"{_A}t"))
        )
        first, *others = runs.iter(f"{_A}t")
        first.text = text
        for run in others:
            run.text = ""
        whole: bytes = etree.tostring(roots[name], encoding="utf-8", xml_declaration=True, standalone=True)
        return whole

    return _with_part(content, name, fill)


def _in_odt(content: bytes, text: str) -> bytes:
    def fill(part: bytes) -> bytes:
        root = etree.fromstring(part)
        _fill(_middle([*root.iter(f"{_TEXT}p")], _text_of), text)
        whole: bytes = etree.tostring(root, encoding="utf-8", xml_declaration=True)
        return whole

    return _with_part(content, "content.xml", fill)


def _in_epub(content: bytes, text: str) -> bytes:
    """In the largest chapter."""
    with zipfile.ZipFile(BytesIO(content)) as book:
        chapters = [part for part in book.infolist() if part.filename.endswith((".xhtml", ".html", ".htm"))]
        largest = max(chapters, key=lambda part: part.file_size).filename
    return _with_part(content, largest, lambda part: _in_chapter(part, text))


def _with_part(content: bytes, name: str, change: Callable[[bytes], bytes]) -> bytes:
    """A packed file with one part changed; all others keep their order and their bytes."""
    packed = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(packed, "w") as new:
        for part in old.infolist():
            inside = old.read(part)
            new.writestr(part, change(inside) if part.filename == name else inside)
    return packed.getvalue()


def _in_mail(content: bytes, text: str) -> bytes:
    mail = message_from_bytes(content, policy=policy.default)
    body = mail.get_body(("html", "plain"))
    if body is None:
        raise _NoParagraphError
    if body.get_content_subtype() == "html":
        page = body.get_payload(decode=True)
        assert isinstance(page, bytes)
        body.set_content(_in_html(page, text), "text", "html")
        return mail.as_bytes()
    paragraphs = re.split(r"(\n\s*\n)", body.get_content())
    of_body = [*range(0, len(paragraphs), 2)]
    paragraphs[_middle(of_body, lambda place: paragraphs[place])] = textwrap.fill(text, 72)
    body.set_content("".join(paragraphs))
    return mail.as_bytes()


def _in_notebook(content: bytes, text: str) -> bytes:
    notebook = json.loads(content)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    _middle(cells, lambda cell: "".join(cell["source"]))["source"] = [text]
    return json.dumps(notebook, indent=1, ensure_ascii=False).encode()


def _in_rtf(content: bytes, text: str) -> bytes:
    """Behind the middle one of the paragraphs' ends."""
    ends = [end.end() for start, stop in rtf_body(content) for end in _RTF_PARAGRAPH.finditer(content, start, stop)]
    if not ends:
        raise _NoParagraphError
    place = ends[len(ends) // 2]
    return b"".join((content[:place], b" ", text.encode("ascii"), b"\\par ", content[place:]))


def _in_pdf(content: bytes, text: str) -> bytes:
    """On a new last page: a paragraph of a PDF has a fixed place."""
    with pypdfium2.PdfDocument(content) as document:
        page = document.new_page(595, 842)
        font = pdfium.FPDFText_LoadStandardFont(document, b"Helvetica")
        for number, line in enumerate(textwrap.wrap(text, _LINE)):
            drawn = pdfium.FPDFPageObj_CreateTextObj(document, font, _FONT)
            letters = line.encode("utf-16-le") + b"\0\0"
            pdfium.FPDFText_SetText(drawn, (c_ushort * (len(letters) // 2)).from_buffer_copy(letters))
            pdfium.FPDFPageObj_Transform(drawn, 1, 0, 0, 1, _LEFT, _TOP - _LEADING * number)
            pdfium.FPDFPage_InsertObject(page, drawn)
        page.gen_content()
        document.save(whole := BytesIO())
    return whole.getvalue()


_PLACE: dict[str, Callable[[bytes, str], bytes]] = {
    "HTML": _in_html,
    "PDF": _in_pdf,
    "DOCX": _in_docx,
    "PPTX": _in_pptx,
    "ODT": _in_odt,
    "RTF": _in_rtf,
    "EPUB": _in_epub,
    "EML": _in_mail,
    "IPYNB": _in_notebook,
}
