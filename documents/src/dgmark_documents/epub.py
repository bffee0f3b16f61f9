"""EPUB books to text: the chapters in the order of the spine, then the table of contents and the titles."""

import posixpath
from collections.abc import Iterator
from typing import Any, NamedTuple
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


class _Package(NamedTuple):
    """What the package file says: its name, its root, the parts of the book by id, and the ids of the chapters."""

    name: str
    root: Any
    items: dict[str, _Item]
    spine: list[str]


def read_epub(archive: ZipArchive, limits: Limits) -> Reading:
    """Read the chapters of an EPUB in the order of its spine.

    Raises:
        Refusal: the book is damaged, protected, has too many chapters, or most of it is not read.
    """
    package = _package(archive)
    chapters = list(dict.fromkeys(package.items[one] for one in package.spine))
    if len(chapters) > limits.pages:
        raise Refusal(f"has {len(chapters)} chapters; the limit is {limits.pages}")
    if _ENCRYPTION in archive.names:
        encrypted = {
            unquote(one.get("URI") or "") for one in archive.xml(_ENCRYPTION).iterfind(".//{*}CipherReference")
        }
        if encrypted & {one.name for one in chapters}:
            raise Refusal("is protected against reading (DRM): its chapters are encrypted")
    builder, account = TextBuilder(), Account()
    for chapter in chapters:
        builder.block(2)
        _add_chapter(builder, archive, chapter, account)
    for item in package.items.values():
        _add_contents(archive, item, chapters, account)
    about = [one.text or "" for name in _ABOUT for one in package.root.iterfind(f".//{{*}}metadata//{{*}}{name}")]
    account.add_beside("titles", join_labels(about))
    pieces = [*_pieces(archive, package)]
    attributes = {(one.text, one.group): one for one in pieces if one.place.rpartition(", ")[2].startswith("attribute")}
    account.held += [one for one in pieces if attributes.get((one.text, one.group), one) is one]  # chapters share some
    return account.reading(builder.text, pages=len(chapters))


def _add_chapter(builder: TextBuilder, archive: ZipArchive, chapter: _Item, account: Account) -> None:
    if is_page(chapter.kind):
        _add_page(builder, archive, chapter, account)
    elif chapter.kind.startswith("text/"):
        builder.add(decode_page(archive.read(chapter.name))[0], exact=True)
    else:
        account.add("chapters of pictures", weight=PAGE_CHARS)


def _add_page(builder: TextBuilder, archive: ZipArchive, item: _Item, account: Account) -> None:
    def opened(address: str) -> str | None:
        name = _place(posixpath.dirname(item.name), address)
        return decode_page(archive.read(name))[0] if name in archive.names else None

    add_html(builder, decode_page(archive.read(item.name))[0], account, open_file=opened)


def _add_contents(archive: ZipArchive, item: _Item, chapters: list[_Item], account: Account) -> None:
    """Read a table of contents that is no chapter behind the chapters."""
    if item in chapters or item.name not in archive.names:
        return
    if item.kind == _CONTENTS:
        labels = archive.xml(item.name).iterfind(".//{*}text")
        account.add_beside("table of contents", join_labels(["".join(one.itertext()) for one in labels]))
    elif "nav" in item.properties.split() and is_page(item.kind):
        builder = TextBuilder()
        _add_page(builder, archive, item, account)
        account.add_beside("table of contents", builder.text)


def _pieces(archive: ZipArchive, package: _Package) -> Iterator[Piece]:
    """The texts of every part of the book but for those that say how it is packed."""
    kinds = {item.name: item.kind for item in package.items.values()}
    for name in sorted(archive.names - {_CONTAINER, _ENCRYPTION}):
        content = archive.read(name)
        if name == package.name or kinds.get(name) == _CONTENTS:
            # what the package says of the book is dates and numbers beside what is read
            yield from (one._replace(group="labels") for one in xml_pieces(archive.xml(name), name))
        elif is_markup(content):
            yield from page_pieces(decode_page(content)[0], name)
        elif kinds.get(name, "").startswith("text/") and kinds[name] not in ("text/css", "text/javascript"):
            yield Piece(name, decode_page(content)[0])


def _package(archive: ZipArchive) -> _Package:
    container = archive.xml(_CONTAINER)
    name = next((one.get("full-path") for one in container.iterfind(".//{*}rootfile")), None)
    if not name:
        raise Refusal("is damaged: it does not say where its contents stand")
    root = archive.xml(name)
    folder = posixpath.dirname(name)
    items = {
        one.get("id") or "": _Item(
            _place(folder, one.get("href") or ""), one.get("media-type") or "", one.get("properties") or ""
        )
        for one in root.iterfind(".//{*}manifest/{*}item")
    }
    spine = [one.get("idref") or "" for one in root.iterfind(".//{*}spine/{*}itemref")]
    chapters = [one for one in spine if one in items]
    if not chapters:
        raise Refusal("holds no chapter")
    return _Package(name, root, items, chapters)


def _place(folder: str, address: str) -> str:
    return posixpath.normpath(posixpath.join(folder, unquote(address.partition("#")[0])))
