"""Office documents to text: .docx through mammoth, .odt with lxml, .rtf through striprtf.

Body, tables, lists and notes are read; macros, pictures, headers and footers are not.
"""

import re
from typing import Any, BinaryIO

from dgmark.documents.html_text import add_html
from dgmark.documents.reading import Reading, Refusal
from dgmark.documents.text_builder import TextBuilder, without_bullets
from dgmark.documents.zip_archive import LOCKED, ZipArchive

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_SVG = "{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}"
_BLOCKS = frozenset((f"{_TEXT}p", f"{_TEXT}h"))
_SKIPPED = frozenset(
    [f"{_TEXT}{name}" for name in ("tracked-changes", "note-citation", "ruby-text", "sequence-decls")]
    + [f"{_OFFICE}{name}" for name in ("annotation", "annotation-end", "forms", "binary-data")]
    + [f"{_SVG}{name}" for name in ("title", "desc")]
)
# striprtf writes "|" for the end of a table's cell; a paragraph instead keeps "|" for texts that hold it
_RTF_CELL = re.compile(r"(\\\\)|\\(?:nest)?cell(?![a-z])")


def read_docx(file: BinaryIO, archive: ZipArchive) -> Reading:
    """Read a Word document; notes stand after the body. Tracked insertions are read, tracked deletions are not.

    Raises:
        Refusal: the document is damaged.
    """
    import mammoth

    archive.check_xml()
    file.seek(0)
    try:
        page = mammoth.convert_to_html(
            file,
            convert_image=lambda _image: [],
            include_embedded_style_map=False,
            ignore_empty_paragraphs=False,
            external_file_access=False,
        ).value
    except Exception as error:  # mammoth has no error of its own for damaged files
        raise Refusal(f"is damaged: {type(error).__name__}: {error}") from error
    builder = TextBuilder()
    # in a <body> of its own, as the parser drops white space before the first tag
    add_html(builder, f"<body>{page}</body>".encode(), encoding="utf-8", gap=1, exact=True)
    return Reading(builder.text)


def read_odt(archive: ZipArchive) -> Reading:
    """Read an OpenDocument text: paragraphs, headings, lists and tables in order, then the notes.

    Raises:
        Refusal: the document is damaged or encrypted.
    """
    manifest = "META-INF/manifest.xml"
    locked = manifest in archive.names and b"encryption-data" in archive.read(manifest)
    if locked or "encrypted-package" in archive.names:
        raise Refusal(LOCKED)
    archive.check_xml()
    body = archive.xml("content.xml").find(f"{_OFFICE}body/{_OFFICE}text")
    if body is None:
        raise Refusal("is damaged: it has no body of text")
    builder = TextBuilder()
    for note in _add_odt(builder, body):
        builder.block()
        _add_odt(builder, note)
    return Reading(builder.text)


def _add_odt(builder: TextBuilder, top: Any) -> list[Any]:
    """Add the text of a tree; return the bodies of the notes in it."""
    from lxml import etree

    notes: list[Any] = []
    events = etree.iterwalk(top, events=("start", "end", "comment", "pi"))
    for event, element in events:
        if event == "start":
            if element.tag == f"{_TEXT}note":
                notes += element.findall(f"{_TEXT}note-body")
            if element.tag in _SKIPPED or element.tag == f"{_TEXT}note":
                events.skip_subtree()
                continue
            if element.tag in _BLOCKS:
                builder.block()
            _add_odt_space(builder, element)
            builder.add(element.text)
            continue
        if event == "end" and element.tag in _BLOCKS:
            builder.block()
        if element is not top:
            builder.add(element.tail)
    return notes


def _add_odt_space(builder: TextBuilder, element: Any) -> None:
    """White space that an element stands for."""
    if element.tag == f"{_TEXT}s":
        count = element.get(f"{_TEXT}c", "1")
        builder.add(" " * min(int(count), 1000) if count.isdecimal() else " ", exact=True)
    elif element.tag == f"{_TEXT}tab":
        builder.add("\t", exact=True)
    elif element.tag == f"{_TEXT}line-break":
        builder.end_line()


def read_rtf(content: bytes) -> Reading:
    """Read an RTF file, without its footnotes.

    Raises:
        Refusal: it is damaged.
    """
    from striprtf.striprtf import rtf_to_text

    if not content.rstrip(b"\0\r\n \t").endswith(b"}"):
        raise Refusal("is cut off: its last bracket is missing")
    source = _RTF_CELL.sub(lambda found: found[1] or "\\par ", content.decode("latin-1"))
    try:
        text = str(rtf_to_text(source, errors="replace"))  # type: ignore[no-untyped-call]
    except Exception as error:  # striprtf has no error of its own for damaged files
        raise Refusal(f"is damaged: {type(error).__name__}: {error}") from error
    builder = TextBuilder()
    for line in without_bullets(text).split("\n"):
        builder.add(line.strip(), exact=True)
        builder.end_line()
    notes = ("its footnotes are left out",) if "{\\footnote" in source else ()
    return Reading(builder.text, notes)
