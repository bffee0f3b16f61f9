"""OpenDocument texts (.odt) to text: paragraphs, headings, lists and tables in order, then the notes."""

from typing import Any

from dgmark.documents.flow import Flow
from dgmark.documents.packed import LOCKED, Package
from dgmark.documents.reading import MissingLibrary, Reading, Refusal

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_SVG = "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}"
_BLOCKS = frozenset((f"{_TEXT}p", f"{_TEXT}h"))
_SKIPPED = frozenset(
    [f"{_TEXT}{name}" for name in ("tracked-changes", "note-citation", "ruby-text", "sequence-decls")]
    + [f"{_OFFICE}{name}" for name in ("annotation", "annotation-end", "forms", "binary-data")]
    + [f"{_SVG}{name}" for name in ("title", "desc")]
)


def read_opendocument(package: Package) -> Reading:
    """Read an OpenDocument text. Headers and footers stand in another part and are not read.

    Raises:
        Refusal: the document is damaged or encrypted.
    """
    try:
        from lxml import etree
    except ModuleNotFoundError as error:
        raise MissingLibrary("lxml", "An OpenDocument text") from error
    manifest = "META-INF/manifest.xml"
    locked = manifest in package.names and b"encryption-data" in package.read(manifest)
    if locked or "encrypted-package" in package.names:
        raise Refusal(LOCKED)
    package.check_xml()
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    try:
        root = etree.fromstring(package.read("content.xml"), parser)
    except etree.XMLSyntaxError as error:
        raise Refusal(f"is damaged: {error}") from error
    body = root.find(f"{_OFFICE}body/{_OFFICE}text")
    if body is None:
        raise Refusal("is damaged: it has no body of text")
    flow = Flow()
    notes = _add(flow, etree.iterwalk(body, events=("start", "end", "comment", "pi")))
    for note in notes:
        flow.block()
        _add(flow, etree.iterwalk(note, events=("start", "end", "comment", "pi")))
    return Reading(flow.text)


def _add(flow: Flow, events: Any) -> list[Any]:
    """Add the text of a tree; return the bodies of the notes in it."""
    notes: list[Any] = []
    top = None
    for event, element in events:
        top = element if top is None else top
        if event == "start":
            if element.tag == f"{_TEXT}note":
                notes += element.findall(f"{_TEXT}note-body")
            if element.tag in _SKIPPED or element.tag == f"{_TEXT}note":
                events.skip_subtree()
                continue
            if element.tag in _BLOCKS:
                flow.block()
            _add_space(flow, element)
            flow.add(element.text)
            continue
        if event == "end" and element.tag in _BLOCKS:
            flow.block()
        if element is not top:
            flow.add(element.tail)
    return notes


def _add_space(flow: Flow, element: Any) -> None:
    """White space that an element stands for."""
    if element.tag == f"{_TEXT}s":
        count = element.get(f"{_TEXT}c", "1")
        flow.add(" " * min(int(count), 1000) if count.isdecimal() else " ", exact=True)
    elif element.tag == f"{_TEXT}tab":
        flow.add("\t", exact=True)
    elif element.tag == f"{_TEXT}line-break":
        flow.end_line()
