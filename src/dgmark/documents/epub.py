"""EPUB books to text: the chapters in the order of the spine."""

import posixpath
from typing import Any
from urllib.parse import unquote

from dgmark.documents.account import Account
from dgmark.documents.charsets import decode_page
from dgmark.documents.html_text import add_html
from dgmark.documents.reading import PAGE_CHARS, Limits, Reading, Refusal
from dgmark.documents.text_builder import TextBuilder
from dgmark.documents.zip_archive import ZipArchive

_ENCRYPTION = "META-INF/encryption.xml"


def read_epub(archive: ZipArchive, limits: Limits) -> Reading:
    """Read the chapters of an EPUB in the order of its spine.

    Raises:
        Refusal: the book is damaged, protected, has too many chapters, or most of it is not read.
    """
    chapters = _chapters(archive)
    if len(chapters) > limits.pages:
        raise Refusal(f"has {len(chapters)} chapters; the limit is {limits.pages}")
    if _ENCRYPTION in archive.names:
        encrypted = {
            unquote(one.get("URI") or "") for one in archive.xml(_ENCRYPTION).iterfind(".//{*}CipherReference")
        }
        if encrypted & chapters.keys():
            raise Refusal("is protected against reading (DRM): its chapters are encrypted")
    builder, account = TextBuilder(), Account()
    for name, kind in chapters.items():
        builder.block(2)
        if "html" in kind or "svg" in kind:
            add_html(builder, decode_page(archive.read(name))[0], account)
        else:
            account.add("chapters of pictures", weight=PAGE_CHARS)
    account.held += archive.pieces()
    return account.reading(builder.text, pages=len(chapters))


def _chapters(archive: ZipArchive) -> dict[str, str]:
    """The names of the chapters, in reading order, with their kinds."""
    container = archive.xml("META-INF/container.xml")
    root = next((one.get("full-path") for one in container.iterfind(".//{*}rootfile")), None)
    if not root:
        raise Refusal("is damaged: it does not say where its contents stand")
    contents = archive.xml(root)
    folder = posixpath.dirname(root)

    def place(item: Any) -> str:
        return posixpath.normpath(posixpath.join(folder, unquote(item.get("href") or "")))

    items = {item.get("id"): item for item in contents.iterfind(".//{*}manifest/{*}item")}
    spine = [one.get("idref") for one in contents.iterfind(".//{*}spine/{*}itemref")]
    chapters = {place(items[one]): items[one].get("media-type") or "" for one in spine if one in items}
    if not chapters:
        raise Refusal("holds no chapter")
    return chapters
