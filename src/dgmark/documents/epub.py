"""EPUB books to text: the chapters in the order of the spine."""

import posixpath
from urllib.parse import unquote

from dgmark.documents.html_text import add_html
from dgmark.documents.reading import Limits, Reading, Refusal
from dgmark.documents.text_builder import TextBuilder
from dgmark.documents.zip_archive import ZipArchive

_ENCRYPTION = "META-INF/encryption.xml"


def read_epub(archive: ZipArchive, limits: Limits) -> Reading:
    """Read the chapters of an EPUB; its table of contents is not read.

    Raises:
        Refusal: the book is damaged, protected, or has too many chapters.
    """
    chapters = _chapters(archive)
    if len(chapters) > limits.pages:
        raise Refusal(f"has {len(chapters)} chapters; the limit is {limits.pages}")
    encrypted = archive.read(_ENCRYPTION).decode("utf-8", "replace") if _ENCRYPTION in archive.names else ""
    builder = TextBuilder()
    for name in chapters:
        if name in encrypted:
            raise Refusal("is protected against reading (DRM): its chapters are encrypted")
        builder.block(2)
        add_html(builder, archive.read(name))
    return Reading(builder.text, pages=len(chapters))


def _chapters(archive: ZipArchive) -> list[str]:
    """The names of the chapters, in reading order."""
    container = archive.xml("META-INF/container.xml")
    root = next((one.get("full-path") for one in container.iterfind(".//{*}rootfile")), None)
    if not root:
        raise Refusal("is damaged: it does not say where its contents stand")
    contents = archive.xml(root)
    folder = posixpath.dirname(root)
    places = {
        item.get("id"): posixpath.normpath(posixpath.join(folder, unquote(item.get("href") or "")))
        for item in contents.iterfind(".//{*}manifest/{*}item")
        if "html" in (item.get("media-type") or "") and "nav" not in (item.get("properties") or "").split()
    }
    spine = [item.get("idref") for item in contents.iterfind(".//{*}spine/{*}itemref") if item.get("linear") != "no"]
    chapters = [places[one] for one in spine if one in places]
    if not chapters:
        raise Refusal("holds no chapter")
    return chapters
