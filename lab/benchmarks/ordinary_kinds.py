"""The kinds of ordinary documents: their endings, their words, and a text put in place of one of their paragraphs.

Words are counted in the plainest way, so that what dgmark cannot read is counted too. The paragraph is the middle one
of those of 20 words and more, or else the longest one; all else stays as it is.
"""

import json
import re
import textwrap
import zipfile
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_ushort
from email import message_from_bytes, policy
from functools import partial
from io import BytesIO
from typing import Any, NamedTuple, TypeVar

import pypdfium2
import pypdfium2.raw as pdfium
from lxml import etree, html

LEAST_WORDS = 20  # of a paragraph that can stand for the body
_WORD = re.compile(r"[^\W\d_]{2,}")
One = TypeVar("One")


class Kind(NamedTuple):
    """A kind of documents.

    Attributes:
        endings: of the names of files.
        text: the text of a document, about.
        place: a document with a text in place of a paragraph.
    """

    endings: tuple[str, ...]
    text: Callable[[bytes], str]
    place: Callable[[bytes, str], bytes]

    def words(self, content: bytes) -> list[str]:
        """The words of a document, about; none if it cannot be counted."""
        try:
            return _WORD.findall(self.text(content))
        except Exception:  # test files of document tools are damaged in every way
            return []

    def placed(self, content: bytes, text: str) -> bytes | None:
        """The document with a text, in ASCII, in place of a paragraph; None if it has no paragraph."""
        try:
            return self.place(content, text)
        except (etree.LxmlError, ValueError, LookupError, AssertionError):
            return None


def _middle(paragraphs: Sequence[One], text_of: Callable[[One], str]) -> One:
    words = [len(text_of(one).split()) for one in paragraphs]
    long = [one for one, count in zip(paragraphs, words, strict=True) if count >= LEAST_WORDS]
    if long:
        return long[len(long) // 2]
    if not any(words):
        raise ValueError("no paragraph")
    return paragraphs[words.index(max(words))]


# --- web pages ---

_BLOCKS = "self::div or self::li or self::dd or self::td or self::pre"


def _html_text(content: bytes) -> str:
    page = html.document_fromstring(content)
    for hidden in page.xpath("//script | //style | //head"):
        hidden.drop_tree()
    return " ".join(page.itertext())


def _in_html(content: bytes, text: str) -> bytes:
    parser = html.HTMLParser(encoding=None if b"charset" in content[:2000] or b"encoding" in content[:100] else "utf-8")
    page = html.document_fromstring(content, parser)
    paragraphs = page.xpath("//body//p") or page.xpath(f"//body//*[{_BLOCKS}][not(*)]")
    _fill(_middle(paragraphs, _text_of), text)
    tree = page.getroottree()
    whole: bytes = etree.tostring(tree, method="html", encoding=tree.docinfo.encoding or "utf-8")
    return whole


def _text_of(element: Any) -> str:
    return " ".join(element.itertext())


def _fill(paragraph: Any, text: str) -> None:
    del paragraph[:]
    paragraph.text = text


# --- packed documents ---


class Parts(NamedTuple):
    """The parts of a packed document that hold its body as XML.

    Attributes:
        names: of the parts.
        paragraph: the tag of a paragraph.
        runs: the start of the tags of runs and of their texts, as in Office's documents; None if there are no runs.
        parser: reads a part.
    """

    names: re.Pattern[str]
    paragraph: str
    runs: str | None = None
    parser: etree.XMLParser = etree.XMLParser()

    def size(self, part: bytes) -> int:
        """The size by which one of several parts is chosen: of its file, or of its text in runs."""
        return len(part) if self.runs is None else len("".join(_run_texts(etree.fromstring(part), self.runs)))

    def filled(self, part: bytes, text: str) -> bytes:
        """A part with a text in place of a paragraph."""
        root, runs = etree.fromstring(part, self.parser), self.runs
        paragraphs = [*root.iter(self.paragraph)]
        if runs is None:
            _fill(_middle(paragraphs, _text_of), text)
        else:
            paragraph = _middle(paragraphs, lambda one: " ".join(_run_texts(one, runs)))
            for child in [*paragraph]:
                if child.tag != f"{self.paragraph}Pr":
                    paragraph.remove(child)
            etree.SubElement(etree.SubElement(paragraph, f"{runs}r"), f"{runs}t").text = text
        whole: bytes = etree.tostring(root.getroottree(), encoding="utf-8", xml_declaration=True)
        return whole


def _run_texts(element: Any, runs: str) -> list[str]:
    return [run.text or "" for run in element.iter(f"{runs}t")]


_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_DOCX = Parts(re.compile(r"word/document\.xml"), f"{_W}p", _W)
_PPTX = Parts(re.compile(r"ppt/slides/slide\d+\.xml"), f"{_A}p", _A)
_ODT = Parts(re.compile(r"content\.xml"), "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}p")
_EPUB = Parts(
    re.compile(r".+\.(xhtml|html|htm)"), "{http://www.w3.org/1999/xhtml}p", parser=etree.XMLParser(recover=True)
)


def _packed_text(content: bytes) -> str:
    with zipfile.ZipFile(BytesIO(content)) as parts:
        of_office = [
            name for name in parts.namelist() if any(one.names.fullmatch(name) for one in (_DOCX, _PPTX, _ODT))
        ]
        names = of_office or [name for name in parts.namelist() if _EPUB.names.fullmatch(name)]
        return " ".join(_markup_text(parts.read(name)) for name in names)


def _markup_text(content: bytes) -> str:
    try:
        return _text_of(etree.fromstring(content))
    except etree.XMLSyntaxError:  # such as entities of HTML
        return _html_text(content)


def _in_packed(kind: Parts, content: bytes, text: str) -> bytes:
    """In the largest part; all others keep their order and their bytes."""
    packed = BytesIO()
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(packed, "w") as new:
        parts = {part.filename: old.read(part) for part in old.infolist()}
        largest = max((name for name in parts if kind.names.fullmatch(name)), key=lambda name: kind.size(parts[name]))
        parts[largest] = kind.filled(parts[largest], text)
        for part in old.infolist():
            new.writestr(part, parts[part.filename])
    return packed.getvalue()


def _packed(kind: Parts, *endings: str) -> Kind:
    return Kind(endings, _packed_text, partial(_in_packed, kind))


# --- others ---

_RTF_SIGNS = re.compile(rb"\\'[0-9a-f]{2}|\\[a-z]+-?[0-9]* ?|[0-9a-f\s]{40,}|[{}]", re.IGNORECASE)
# the start of a group beside the body, of another group, the end of a group, and what is not a group
_RTF_TOKEN = re.compile(
    rb"({\s*\\(?:\*|fonttbl|colortbl|stylesheet|info|header|footer|footnote|pict|object)[a-z]*)|({)|(})|\\[{}\\]"
)
_RTF_PARAGRAPH = re.compile(rb"\\par(?![a-z])")
_LINE, _LEADING, _TOP, _LEFT, _FONT = 80, 14, 790, 60, 11  # of a page of A4: characters, then points


def _rtf_body(content: bytes) -> Iterator[tuple[int, int]]:
    """Where the body of an RTF file stands: starts and ends of the pieces between the groups beside it."""
    beside: list[bool] = []  # of each open group, whether it or one around it stands beside the body
    start = 0
    for token in _RTF_TOKEN.finditer(content):
        was = bool(beside) and beside[-1]
        if token[1] or token[2]:
            beside.append(was or bool(token[1]))
        elif token[3] and beside:
            beside.pop()
        now = bool(beside) and beside[-1]
        if now and not was:
            yield start, token.start()
        if was and not now:
            start = token.end()
    yield start, len(content)


def _rtf_text(content: bytes) -> str:
    body = b" ".join(content[start:end] for start, end in _rtf_body(content))
    return _RTF_SIGNS.sub(b" ", body).decode("latin-1")


def _in_rtf(content: bytes, text: str) -> bytes:
    """Behind the middle one of the paragraphs' ends."""
    ends = [end.end() for start, stop in _rtf_body(content) for end in _RTF_PARAGRAPH.finditer(content, start, stop)]
    if not ends:
        raise ValueError("no paragraph")
    place = ends[len(ends) // 2]
    return b"".join((content[:place], b" ", text.encode("ascii"), b"\\par ", content[place:]))


def _mail_text(content: bytes) -> str:
    body = message_from_bytes(content, policy=policy.default).get_body(("plain", "html"))
    text = body.get_content() if body else ""
    return _html_text(text.encode()) if body and body.get_content_subtype() == "html" else text


def _in_mail(content: bytes, text: str) -> bytes:
    mail = message_from_bytes(content, policy=policy.default)
    body = mail.get_body(("html", "plain"))
    if body is None:
        raise ValueError("no paragraph")
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


def _notebook_text(content: bytes) -> str:
    return " ".join("".join(cell["source"]) for cell in json.loads(content)["cells"])


def _in_notebook(content: bytes, text: str) -> bytes:
    notebook = json.loads(content)
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    _middle(cells, lambda cell: "".join(cell["source"]))["source"] = [text]
    return json.dumps(notebook, indent=1, ensure_ascii=False).encode()


def _pdf_text(content: bytes) -> str:
    with pypdfium2.PdfDocument(content) as pages:
        return " ".join(page.get_textpage().get_text_range() for page in pages)


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


KINDS = {
    "HTML": Kind((".html", ".htm", ".xhtml"), _html_text, _in_html),
    "PDF": Kind((".pdf",), _pdf_text, _in_pdf),
    "DOCX": _packed(_DOCX, ".docx"),
    "ODT": _packed(_ODT, ".odt", ".ott"),
    "RTF": Kind((".rtf",), _rtf_text, _in_rtf),
    "EPUB": _packed(_EPUB, ".epub"),
    "EML": Kind((".eml",), _mail_text, _in_mail),
    "IPYNB": Kind((".ipynb",), _notebook_text, _in_notebook),
    "PPTX": _packed(_PPTX, ".pptx", ".ppsx", ".potx"),
}
