"""What kind of document a file is: by its first bytes, and only then by its name.

Knows nothing of how a kind is read.
"""

import re
from enum import StrEnum
from pathlib import PurePath
from typing import Self

from dgmark_documents.reading import Refusal


class Kind(StrEnum):
    """The kinds of documents that are read.

    Attributes:
        suffixes: the endings of their names.
        reader: the function that reads them, which `parser_process` gives what it names of a document. One that is
            damaged, or that is not read for the most part, is a Refusal.
    """

    suffixes: tuple[str, ...]
    reader: str

    TEXT = "text", ".txt .text"
    MARKDOWN = "Markdown", ".md .markdown .mdown .mkd .mdx .rmd .qmd"
    HTML = "HTML", ".html .htm .xhtml", "html_text:read_html"
    PDF = "PDF", ".pdf", "pdf:read_pdf"
    RTF = "RTF", ".rtf", "rtf:read_rtf"
    DOCX = "Word document", ".docx .docm .dotx .dotm", "word:read_docx"
    PPTX = "PowerPoint presentation", ".pptx .pptm .ppsx .ppsm .potx .potm", "presentation:read_pptx"
    ODT = "OpenDocument text", ".odt .ott .fodt", "opendocument:read_odt"
    EPUB = "EPUB", ".epub", "epub:read_epub"
    MAIL = "e-mail or web archive", ".eml .emlx .mht .mhtml .webarchive", "mail:read_mail"
    MAILBOX = "mailbox", ".mbox", "mail:read_mailbox"
    CSV = "table as text", ".csv .tsv"
    XLSX = "Excel workbook", ".xlsx", "workbook:read_workbook"
    NOTEBOOK = "notebook", ".ipynb", "notebooks:read_notebook"
    SUBTITLES = "subtitles", ".srt .vtt .sbv .ass .ssa .sub .lrc .smi", "subtitles:read_subtitles"
    XML = (
        "XML", ".xml .tei .docbook .dbk .dita .fb2 .rss .atom .opml .ttml .dfxp .xliff .xlf .tmx", "xml_text:read_xml",
    )  # fmt: skip
    SVG = "SVG", ".svg", "html_text:read_html"
    JSON = "JSON", ".json", "json_text:read_json"
    EVENTS = "stream of events", ".sse", "json_text:read_events"
    CATALOGUE = "catalogue of messages", ".po .pot", "catalogues:read_catalogue"
    TEX = "TeX", ".tex .latex .ltx"
    RST = "reStructuredText", ".rst .rest"
    ORG = "Org", ".org"
    ASCIIDOC = "AsciiDoc", ".adoc .asciidoc"
    WIKI = "text of a wiki", ".wiki .mediawiki .creole"
    MARKED_UP = "text with markup", ".textile .texi .texinfo .pod"

    def __new__(cls, name: str, suffixes: str = "", reader: str = "") -> Self:
        """Keep what is known of a kind beside its name."""
        kind = str.__new__(cls, name)
        kind._value_, kind.suffixes, kind.reader = name, tuple(suffixes.split()), reader
        return kind


SUFFIXES = {suffix: kind for kind in Kind for suffix in kind.suffixes}
OLD_OFFICE = (".doc", ".xls", ".ppt")  # never read, and refused with a reason
ARCHIVES = (".zip",)
ZIP = (b"PK\3\4", b"PK\5\6")
TABLES = (Kind.CSV, Kind.XLSX)
# kinds that are scored as they stand, with their signs of markup
MARKUP = (Kind.MARKDOWN, Kind.TEX, Kind.RST, Kind.ORG, Kind.ASCIIDOC, Kind.WIKI, Kind.MARKED_UP)
AS_THEY_STAND = (Kind.TEXT, *MARKUP)
HEAD = 2**16  # bytes that recognition needs; the header of an e-mail may be long

# the other kinds are texts that may begin with anything; their readers refuse what they cannot read
PACKED = (Kind.XLSX, Kind.DOCX, Kind.PPTX, Kind.ODT, Kind.EPUB)
_SIGNED = (Kind.PDF, Kind.RTF, *PACKED)
_BEGINNINGS = {
    Kind.HTML: re.compile(rb"<!doctype html|<html", re.IGNORECASE),
    Kind.SVG: re.compile(rb"(?:<\?xml[^>]*>\s*)?(?:<!--.*?-->\s*|<!DOCTYPE svg[^>]*>\s*)*<svg\b", re.DOTALL),
    Kind.XML: re.compile(rb"<\?xml\b"),
    Kind.SUBTITLES: re.compile(rb"WEBVTT\b|1\r?\n(?:\d+:)?\d+:\d\d[.,]\d+ -->|\[Script Info\]"),
    Kind.NOTEBOOK: re.compile(rb"\{\s*\"(?:cells|nbformat|metadata|worksheets)\".*\"cell_type\"", re.DOTALL),
    Kind.JSON: re.compile(rb"\{\s*\"[^\"\n]{0,200}\"\s*:|\[\s*(?:\"[^\"\n]*\"\s*[,\]]|\{\s*\"[^\"\n]{0,200}\"\s*:)"),
    Kind.CATALOGUE: re.compile(rb'(?:#[^\n]*\n|\s)*msg(?:id|ctxt) "'),
    Kind.TEX: re.compile(rb"(?:%[^\n]*\n|\s)*\\(?:documentclass|documentstyle|begin\{document\})"),
}
_MAIL = re.compile(rb"([!-9;-~]+:[^\n]*\n([ \t][^\n]*\n)*)*?MIME-Version:", re.IGNORECASE)
# the line before each message of a mailbox, and the header's first
_MESSAGE = re.compile(rb"^From .{0,200}\d\d:\d\d.{0,100}\n(?=[!-9;-~]+:)", re.MULTILINE)
# answers of services as they are streamed: lines of events, or objects of Ollama
_EVENTS = re.compile(rb'(?:(?:event|id|retry)?:.*\n|\s)*data: ?\{"|\{"model": ?"[^\n]*"done": ?(?:false|true)\b')
_PICTURE = "is a picture: read the text in it by text recognition (OCR), and give that text"
_OLD_OFFICE = (
    "is an Office file of the form before 2007 (.doc, .xls, .ppt), or is encrypted with a password: save it as .docx, "
    ".xlsx, .pptx or plain text, without a password"
)
# other binary files are refused when they are decoded
_REFUSED = {
    _PICTURE: (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*"),
    "is a packed archive: unpack it, and give the files in it": (b"\x1f\x8b", b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07"),
    "is a Parquet file: write its rows as JSON Lines first": (b"PAR1",),
    "is a PostScript file: convert it to PDF": (b"%!PS",),
    _OLD_OFFICE: (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1",),
}


def recognise(name: str, head: bytes) -> Kind | None:
    """The kind of a file, by its first bytes and then by its name; None for a ZIP archive, whose parts say it.

    Raises:
        Refusal: the file holds no text, is of a kind that is not read, or is not of the kind that its name says.
    """
    if b"%PDF-" in head[:1024]:
        return Kind.PDF
    if head.startswith(ZIP):
        return None
    if head.lstrip()[:5] == b"{\\rtf":
        return Kind.RTF
    for reason, magics in _REFUSED.items():
        if head.startswith(magics):
            raise Refusal(reason)
    if head[8:12] in (b"WEBP", b"heic", b"mif1", b"avif"):
        raise Refusal(_PICTURE)
    if head.startswith(b"bplist00"):
        return Kind.MAIL
    if messages_of(name, head):
        return Kind.MAILBOX
    if _EVENTS.match(head):
        return Kind.EVENTS
    named = _named(name)
    kind = _kind_of_text(name, head)
    if named is None or named is kind or not head.strip():
        return kind
    raise Refusal(
        f"is no {named}, although its name says so: it is damaged, or it is plain text and should be named .txt"
    )


def _kind_of_text(name: str, head: bytes) -> Kind:
    """The kind of a file whose first bytes are text.

    The name decides among the kinds that are text: a .txt or .py file may well hold a web page's source as its text. A
    file without an ending, or with that of an old Office file, is what its first bytes say; XML and subtitles have
    many endings.
    """
    named = _named(name)
    in_one_piece = named is Kind.ODT and b"<office:document" in head  # .fodt
    if named is not None and (named not in _SIGNED or in_one_piece):
        return named
    suffix = PurePath(name).suffix.lower()
    begins = begins_as(head)
    if suffix and named is None and suffix not in OLD_OFFICE:  # Word saves web pages and archives as .doc too
        return begins if begins in (Kind.XML, Kind.SVG, Kind.SUBTITLES, Kind.NOTEBOOK) else Kind.TEXT
    return Kind.MAIL if _MAIL.match(head) else begins or Kind.TEXT


def begins_as(head: bytes) -> Kind | None:
    """The kind of text that these first bytes say; None if they say none."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return next((kind for kind, beginning in _BEGINNINGS.items() if beginning.match(start)), None)


def messages_of(name: str, content: bytes) -> list[bytes]:
    """The messages of a mailbox, without the lines between them; none of any other file. An e-mail may hold others."""
    is_mailbox = _MESSAGE.match(content) and _named(name) is not Kind.MAIL
    return _MESSAGE.split(content)[1:] if is_mailbox else []


def is_plain(name: str) -> bool:
    """Whether a name says no kind of text but a plain one: it ends in .txt, or in nothing."""
    return PurePath(name).suffix.lower() in ("", *Kind.TEXT.suffixes)


def _named(name: str) -> Kind | None:
    return SUFFIXES.get(PurePath(name).suffix.lower())


def mismatch(name: str, kind: Kind) -> str | None:
    """A note if the name says another kind than the content."""
    if _named(name) in (None, kind):
        return None
    return f"its name ends in {PurePath(name).suffix.lower()}, but its content is {kind}, and was read as such"
