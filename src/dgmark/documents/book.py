"""EPUB books to text: the chapters in the order of the spine."""

import posixpath
from typing import Any
from urllib.parse import unquote

from dgmark.documents.flow import Flow
from dgmark.documents.limits import Limits
from dgmark.documents.markup import add_html
from dgmark.documents.packed import Package
from dgmark.documents.reading import MissingLibrary, Reading, Refusal

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"


def read_book(package: Package, limits: Limits) -> Reading:
    """Read the chapters of an EPUB; its table of contents is not read.

    Raises:
        Refusal: the book is damaged, protected, or has too many chapters.
    """
    chapters = _chapters(package)
    if len(chapters) > limits.pages:
        raise Refusal(f"has {len(chapters)} chapters; the limit is {limits.pages}")
    secret = package.read(_ENCRYPTION).decode("utf-8", "replace") if _ENCRYPTION in package.names else ""
    flow = Flow()
    for name in chapters:
        if name in secret:
            raise Refusal("is protected against reading (DRM): its chapters are encrypted")
        flow.block(2)
        add_html(flow, package.read(name))
    return Reading(flow.text, pages=len(chapters))


def _chapters(package: Package) -> list[str]:
    """The names of the chapters, in reading order."""
    container = _xml(package, _CONTAINER)
    root = next((one.get("full-path") for one in container.iterfind(".//{*}rootfile")), None)
    if not root:
        raise Refusal("is damaged: it does not say where its contents stand")
    contents = _xml(package, root)
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


def _xml(package: Package, name: str) -> Any:
    try:
        from lxml import etree
    except ModuleNotFoundError as error:
        raise MissingLibrary("lxml", "An EPUB") from error
    try:
        return etree.fromstring(package.read(name), etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError as error:
        raise Refusal(f"is damaged: {error}") from error
