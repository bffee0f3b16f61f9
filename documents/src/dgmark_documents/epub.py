"""EPUB books to text: the chapters in the order of the spine, then the table of contents and the titles."""

import posixpath
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote

from dgmark_documents.account import Account, Piece
from dgmark_documents.charsets import decode_page
from dgmark_documents.html_text import add_html, is_page, join_labels, page_pieces
from dgmark_documents.reading import PAGE_CHARS, Limits, Reading, Refusal
from dgmark_documents.text_builder import TextBuilder
from dgmark_documents.xml_pieces import xml_pieces
from dgmark_documents.zip_archive import ZipArchive, is_markup

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
# what a book says of itself and readers of books show
_ABOUT = ("title", "creator", "description", "publisher", "rights", "subject", "contributor", "source", "coverage")
_CONTENTS = "application/x-dtbncx+xml"  # the table of contents of EPUB 2


class _Item(NamedTuple):
    """A part of a book: its name in the archive, its media type and what it is for."""

    name: str
    kind: str
    properties: str


def read_epub(archive: ZipArchive, limits: Limits) -> Reading:
    """Read the chapters of an EPUB in the order of its spine."""
    book = _Book(archive)
    if len(book.chapters) > limits.pages:
        raise Refusal(f"has {len(book.chapters)} chapters; the limit is {limits.pages}")
    if _ENCRYPTION in archive.names:
        references = archive.xml(_ENCRYPTION).iterfind(".//{*}CipherReference")
        if {unquote(one.get("URI") or "") for one in references} & {one.name for one in book.chapters}:
            raise Refusal("is protected against reading (DRM): its chapters are encrypted")
    builder, account = TextBuilder(), book.account
    for chapter in book.chapters:
        builder.block(2)
        book.add_chapter(builder, chapter)
    for item in book.items.values():
        book.add_contents(item)
    about = [one.text or "" for name in _ABOUT for one in book.root.iterfind(f".//{{*}}metadata//{{*}}{name}")]
    account.add_beside("titles", join_labels(about))
    pieces = [*book.pieces()]
    attributes = {(one.text, one.group): one for one in pieces if one.place.rpartition(", ")[2].startswith("attribute")}
    account.held += [one for one in pieces if attributes.get((one.text, one.group), one) is one]  # chapters share some
    return account.reading(builder.text, pages=len(book.chapters))


class _Book:
    """A book while it is read.

    Attributes:
        account: what it holds beside the chapters.
        root: the root of the package file, which says what the book consists of.
        items: the parts of the book by id.
        chapters: those that are chapters, in order, each once.
    """

    def __init__(self, archive: ZipArchive) -> None:
        self._archive, self.account = archive, Account()
        name = next((one.get("full-path") for one in archive.xml(_CONTAINER).iterfind(".//{*}rootfile")), None)
        if not name:
            raise Refusal("is damaged: it does not say where its contents stand")
        self._name, self.root = name, archive.xml(name)
        folder = posixpath.dirname(name)
        self.items = {
            one.get("id") or "": _Item(
                _place(folder, one.get("href") or ""), one.get("media-type") or "", one.get("properties") or ""
            )
            for one in self.root.iterfind(".//{*}manifest/{*}item")
        }
        spine = (one.get("idref") or "" for one in self.root.iterfind(".//{*}spine/{*}itemref"))
        self.chapters = list(dict.fromkeys(self.items[one] for one in spine if one in self.items))
        if not self.chapters:
            raise Refusal("holds no chapter")

    def add_chapter(self, builder: TextBuilder, chapter: _Item) -> None:
        """Add the text of a chapter."""
        if is_page(chapter.kind):
            self._add_page(builder, chapter)
        elif chapter.kind.startswith("text/"):
            builder.add(self._text(chapter.name), exact=True)
        else:
            self.account.add("chapters of pictures", weight=PAGE_CHARS)

    def add_contents(self, item: _Item) -> None:
        """Read a table of contents that is no chapter behind the chapters."""
        if item in self.chapters or item.name not in self._archive.names:
            return
        if item.kind == _CONTENTS:
            labels = self._archive.xml(item.name).iterfind(".//{*}text")
            self.account.add_beside("table of contents", join_labels(["".join(one.itertext()) for one in labels]))
        elif "nav" in item.properties.split() and is_page(item.kind):
            builder = TextBuilder()
            self._add_page(builder, item)
            self.account.add_beside("table of contents", builder.text)

    def _add_page(self, builder: TextBuilder, item: _Item) -> None:
        def opened(address: str) -> str | None:
            name = _place(posixpath.dirname(item.name), address)
            return self._text(name) if name in self._archive.names else None

        add_html(builder, self._text(item.name), self.account, open_file=opened)

    def _text(self, name: str) -> str:
        return decode_page(self._archive.read(name))[0]

    def pieces(self) -> Iterator[Piece]:
        """The texts of every part of the book but for those that say how it is packed."""
        kinds = {item.name: item.kind for item in self.items.values()}
        for name in sorted(self._archive.names - {_CONTAINER, _ENCRYPTION}):
            content = self._archive.read(name)
            if name == self._name or kinds.get(name) == _CONTENTS:
                # what the package says of the book is dates and numbers beside what is read
                yield from (one._replace(group="labels") for one in xml_pieces(self._archive.xml(name), name))
            elif is_markup(content):
                yield from page_pieces(decode_page(content)[0], name)
            elif kinds.get(name, "").startswith("text/") and kinds[name] not in ("text/css", "text/javascript"):
                yield Piece(name, decode_page(content)[0])


def _place(folder: str, address: str) -> str:
    return posixpath.normpath(posixpath.join(folder, unquote(address.partition("#")[0])))
