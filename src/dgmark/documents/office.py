"""Office documents to text with lxml: .docx and .odt.

Body, text boxes, tables, lists and notes are read; pictures and objects are counted. Elements go by their local
names, of which the two kinds share those that mean the same.
"""

import posixpath
import re
from dataclasses import dataclass
from typing import Any

from dgmark.documents.account import Account
from dgmark.documents.charsets import decode, decode_page
from dgmark.documents.html_text import add_html
from dgmark.documents.reading import Reading, Refusal
from dgmark.documents.text_builder import TextBuilder
from dgmark.documents.zip_archive import LOCKED, ZipArchive

_SIGNS = {"tab": "\t", "ptab": "\t", "noBreakHyphen": "\u2011"}
_DELETED = frozenset(("del", "moveFrom", "tracked-changes"))
# comments, tab stops, how a character sounds, and what Word shows where it does not know a newer element
_SKIPPED = frozenset((
    "annotation", "tabs", "rt", "Fallback", "note", "note-citation", "ruby-text", "sequence-decls", "annotation-end",
    "forms", "binary-data", "title", "desc",
))  # fmt: skip
_CODE = re.compile("[0-9A-Fa-f]{4}")
_SIGN_FONTS = ("Symbol", "Webdings", "Wingdings")
_LENGTH = re.compile(r"(\d+\.?\d*|\.\d+)(pt|in|cm|mm|px)?")
_POINTS = {"pt": 1.0, "in": 72.0, "cm": 72 / 2.54, "mm": 7.2 / 2.54, "px": 0.75, None: 1 / 12700}  # by default Word's


def read_docx(archive: ZipArchive) -> Reading:
    """Read a Word document; notes stand after the body. Tracked insertions are read, tracked deletions are not.

    Raises:
        Refusal: the document is damaged, or most of it is not read.
    """
    builder, account = TextBuilder(), Account()
    archive.check_xml()
    main = next((part for kind, part in _related(archive, "").values() if kind == "officeDocument"), None)
    if main is None:
        raise Refusal("is damaged: it does not say where its text stands")
    related = _related(archive, main)
    document = _Document(builder, account, archive, related)
    document.add(archive.xml(main))
    for kind, part in sorted(related.values()):
        if kind in ("footnotes", "endnotes"):
            builder.block()
            document.add(archive.xml(part))
    account.held += archive.pieces()
    return account.reading(builder.text)


def _related(archive: ZipArchive, part: str) -> dict[str, tuple[str, str]]:
    """Of the parts that a part names, by their ids: the kind of relation and the name."""
    folder, name = posixpath.split(part)
    names = posixpath.join(folder, "_rels", f"{name}.rels")
    links = archive.xml(names).iterfind("{*}Relationship") if names in archive.names else ()
    return {
        link.get("Id", ""): (
            link.get("Type", "").rsplit("/", 1)[-1],
            posixpath.normpath(posixpath.join("/", folder, link.get("Target", ""))).lstrip("/"),
        )
        for link in links
    }


def read_odt(archive: ZipArchive) -> Reading:
    """Read an OpenDocument text: paragraphs, headings, lists and tables in order, then the notes.

    Raises:
        Refusal: the document is damaged or encrypted, or most of it is not read.
    """
    manifest = "META-INF/manifest.xml"
    locked = manifest in archive.names and b"encryption-data" in archive.read(manifest)
    if locked or "encrypted-package" in archive.names:
        raise Refusal(LOCKED)
    archive.check_xml()
    body = archive.xml("content.xml").find("{*}body/{*}text")
    if body is None:
        raise Refusal("is damaged: it has no body of text")
    builder, account = TextBuilder(), Account()
    document = _Document(builder, account, archive)
    for top in (body, *body.iterfind(".//{*}note/{*}note-body")):
        builder.block()
        document.add(top)
    for part in {"content.xml", "styles.xml"} & archive.names:
        backgrounds = archive.xml(part).iter("{*}fill-image", "{*}background-image")
        fills = [one for one in backgrounds if _get(one, "href")]
        account.add("pictures", len(fills), weight=Account.UNKNOWN * len(fills))
    account.held += archive.pieces()
    return account.reading(builder.text)


@dataclass(frozen=True)
class _Document:
    """Adds trees of a document to a builder.

    Attributes:
        builder: where the text goes.
        account: counts what is not read.
        archive: the document.
        related: of a Word document, what its main part names; its text stands only in elements of its own.
    """

    builder: TextBuilder
    account: Account
    archive: ZipArchive
    related: dict[str, tuple[str, str]] | None = None

    def add(self, top: Any) -> None:
        """Add the text of a tree."""
        from lxml import etree

        word = self.related is not None
        events = etree.iterwalk(top, events=("start", "end", "comment", "pi"))
        for event, element in events:
            name = etree.QName(element).localname if isinstance(element.tag, str) else ""
            if event == "start":
                if name in _SKIPPED or self._leave_out(element, name):
                    events.skip_subtree()
                    continue
                if name in ("p", "h"):
                    self.builder.block()
                if name == "t" or not word:
                    self.builder.add(element.text, exact=word)
                continue
            if event == "end" and name in ("p", "h"):
                self.builder.block()
            if element is not top and not word:
                self.builder.add(element.tail)

    def _leave_out(self, element: Any, name: str) -> bool:
        """Add what an element stands for; whether its contents are not read."""
        kind = _get(element, "type")
        if name in _DELETED:
            self.account.add("tracked deletions")
        elif name in ("object", "subDoc"):
            self.account.add("embedded objects", weight=Account.UNKNOWN)
        elif name == "frame" and [*element.iterchildren("{*}object", "{*}object-ole", "{*}plugin")]:
            self._add_picture(element, "width", "height", "embedded objects")
        else:
            self._add_sign(element, name, kind)
            return kind in ("separator", "continuationSeparator")  # the line above notes
        return True

    def _add_sign(self, element: Any, name: str, kind: str | None) -> None:
        if name in _SIGNS:
            self.builder.add(_SIGNS[name], exact=True)
        elif name == "s":
            count = _get(element, "c") or "1"
            self.builder.add(" " * min(int(count), 1000) if count.isdecimal() else " ", exact=True)
        elif name in ("line-break", "cr") or (name == "br" and kind in (None, "textWrapping")):
            self.builder.end_line()
        elif name == "drawing":
            size = next(element.iter("{*}extent"), element)
            for _ in element.iter("{*}pic", "{*}chart", "{*}custGeom"):
                self._add_picture(size, "cx", "cy")
        elif name == "imagedata":
            style = dict(part.split(":", 1) for part in element.getparent().get("style", "").split(";") if ":" in part)
            self.account.add_picture(_points(style.get("width")), _points(style.get("height")))
        elif (
            name == "contentPart"
            or (name == "fill" and _get(element, "id"))
            or (name == "blipFill" and element.getparent().prefix != "pic")
        ):
            self.account.add_picture(None, None)  # ink, and pictures behind text
        elif name == "sym":
            self._add_symbol(element)
        elif name == "frame" and element.find("{*}image") is not None:
            self._add_picture(element, "width", "height")
        elif name == "section-source" and not _text(element.getparent()):
            self.account.add("linked sections", weight=Account.UNKNOWN)
        elif name in ("altChunk", "relIds"):
            self._add_linked(
                *(self.related or {}).get(_get(element, "id" if name == "altChunk" else "dm") or "", ("", ""))
            )

    def _add_symbol(self, element: Any) -> None:
        """Add a character that stands with its font: fonts of letters have theirs among the private ones, too."""
        code, font = _get(element, "char") or "", _get(element, "font") or ""
        if not _CODE.fullmatch(code) or font.startswith(_SIGN_FONTS):
            return
        self.builder.add(chr(int(code, 16) - 0xF000 if code.upper().startswith("F0") else int(code, 16)), exact=True)

    def _add_linked(self, kind: str, part: str) -> None:
        """Add the part that stands for a place of the text: a document of another kind, or a diagram."""
        ending = posixpath.splitext(part)[1].lower() if part in self.archive.names else ""
        self.builder.block()
        if ending and kind == "diagramData":
            self.add(self.archive.xml(part))
        elif ending in (".html", ".htm", ".xhtml"):
            add_html(self.builder, decode_page(self.archive.read(part))[0], self.account)
        elif ending == ".txt":
            self.builder.add(decode(self.archive.read(part))[0], exact=True)
        else:
            self.account.add("embedded objects", weight=Account.UNKNOWN)
        self.builder.block()

    def _add_picture(self, element: Any, width: str, height: str, what: str = "pictures") -> None:
        self.account.add_picture(_points(_get(element, width)), _points(_get(element, height)), what)


def _text(top: Any) -> str:
    return "".join(piece for piece in top.itertext() if piece.strip())


def _get(element: Any, name: str) -> str | None:
    """An attribute by its local name."""
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), None)


def _points(length: str | None) -> float | None:
    found = _LENGTH.fullmatch((length or "").strip())
    return float(found[1]) * _POINTS[found[2]] if found else None
