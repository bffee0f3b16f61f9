"""`read_document`: the text in a file. Plain text in Unicode and tables as text are read here; all other documents by
the package that the entry point `dgmark.documents` names, which is `documents/` of this repository.
"""

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import entry_points
from pathlib import PurePath
from typing import Any, BinaryIO, NamedTuple, Protocol, runtime_checkable

from dgmark.arguments.checks import instance, number, path_text, whole
from dgmark.detection.reading.disguises.inline_markup import without_markup
from dgmark.detection.reading.disguises.terminal import without_terminal_codes
from dgmark.errors import InputError, MissingExtra, NoTexts, SettingsError, distribution_hint
from dgmark.rows.tables import ANY_ROWS, RowReading, Table, TextRow, delimited_table, texts_of

MAX_BYTES = 128 * 2**20  # of a document, where no limits are given
_MOST = 2**53  # of any limit
# of the words of a text that is scored with its signs of markup, the share that they touch where a note says so, and
# where it is not called not marked
_MARKUP_NOTED, _MARKUP_UNCERTAIN = 1 / 8, 1 / 4
# what is read without the package for documents, and what its kind is called; a file without an ending is plain text
_PLAIN = {"": "text", ".txt": "text", ".text": "text", ".md": "Markdown", ".markdown": "Markdown"}
_TABLES = {".csv": "table as text", ".tsv": "table as text"}
# how texts begin that are documents of other kinds, in files without an ending
_OTHERS = ("<!doctype", "<html", "<?xml", "<svg", "{\\rtf", "%pdf-", "%!ps", "mime-version:")


@dataclass(frozen=True)
class Document:
    """The text of a file.

    Attributes:
        text: the text, as it is scored. Empty for a table.
        kind: what the file is, such as "PDF".
        notes: what was left out, and what the reader should know.
        pages: number of pages (PDF), chapters (EPUB), slides (PowerPoint) or sheets (Excel); None for other kinds.
        table: of a table, the text of each row.
        incomplete: whether something was left out.
        uncertain_because: why a text without the mark cannot be called that, if so: "unread" (more than a tenth of the
            letters were not read, or 400, or a part of unknown size), "not_shown" (as many were read that the document
            does not show) or "markup" (signs of markup touch more than a quarter of the words).
        is_table: whether it is a table, which may have no rows.
    """

    text: str
    kind: str
    notes: tuple[str, ...] = ()
    pages: int | None = None
    table: tuple[TextRow, ...] = ()
    incomplete: bool = False
    uncertain_because: str | None = None
    is_table: bool = False

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """Of a table, the id and the text of each row; a row without an id is named by its place."""
        return tuple((row.row_id or row.place, row.text) for row in self.table)

    @property
    def sha256(self) -> str:
        """The SHA-256 of the text as UTF-8, in hexadecimal."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


Members = Iterator[tuple[str, Callable[[], bytes] | None]]


@runtime_checkable
class DocumentReader(Protocol):
    """A module that reads documents, as the entry point `dgmark.documents` names one.

    Attributes:
        FOLDER_SUFFIXES: endings of the files that are looked at in folders.
        TEXT_SUFFIXES: those of documents that hold one text.
        Limits: makes limits of what a document may cost, by keyword.
        Refusal: the error of a document that cannot be read; its message continues a sentence that begins with the
            document's name.
        members: takes an open file of the system and its name; gives the documents in an archive or a mailbox, each
            with a function that unpacks it (None for what is no document), or None if it is one document.
        read: takes an open file of the system, its name, and the keywords `column` and `limits`; gives what the file
            is, and a reading with the fields of `dgmark_documents.reading.Reading`.
    """

    FOLDER_SUFFIXES: Sequence[str]
    TEXT_SUFFIXES: Sequence[str]
    Limits: Callable[..., Any]
    Refusal: type[Exception]
    members: Callable[..., Members | None]
    read: Callable[..., tuple[str, Any]]


@cache
def installed_reader() -> DocumentReader | None:
    """The package that reads documents; None if none is installed."""
    for found in entry_points(group="dgmark.documents"):
        reader: DocumentReader = found.load()
        return reader
    return None


def folder_suffixes() -> tuple[str, ...]:
    """The endings of the documents that are looked at in folders."""
    reader = installed_reader()
    return (*filter(None, _PLAIN), *_TABLES) if reader is None else tuple(reader.FOLDER_SUFFIXES)


def text_suffixes() -> tuple[str, ...]:
    """The endings of documents that hold one text."""
    reader = installed_reader()
    return tuple(filter(None, _PLAIN)) if reader is None else tuple(reader.TEXT_SUFFIXES)


def document_limits(**limits: float) -> Any:
    """Limits of what a document may cost; None if no package that reads documents is installed."""
    reader = installed_reader()
    return None if reader is None else reader.Limits(**limits)


def read_document(path: str | os.PathLike[str], *, text_column: str | None = None, limits: Any = None) -> Document:
    """Read the text of a file: plain text, Markdown, HTML, PDF, RTF, .docx, .pptx, .odt, .epub, .eml, .mht, .ipynb,
    .srt, .xml, .po, .json, .csv, .xlsx and others.

    The kind is recognised by the content, then by the name. All kinds but plain text in Unicode and tables as text
    need the package dgmark-documents. They are parsed in a process of their own, without keys and with limits.

    Args:
        path: the file.
        text_column: of a table, the column that holds the texts, which is then all that is read of it; by default
            "text", where notes say what the other columns hold.
        limits: what the document may cost, a `dgmark.Limits`.

    Raises:
        SettingsError: `path` is neither a text nor a path, or another argument is of a wrong type.
        NoTexts: the file cannot be opened.
        InputError: it holds no text.
        InputError: most of it cannot be read, as of a scan.
        InputError: it is a picture, encrypted, damaged, of a kind that is not read, or beyond a limit.
        MissingExtra: dgmark-documents, or a library of it, is not installed.
    """
    name = path_text(path, "a document")
    reading = RowReading(text_column)
    try:
        with open(name, "rb") as file:
            return read_opened(file, name, reading, limits=limits)
    except OSError as error:
        raise NoTexts(f"{name} cannot be read: {error.strerror}; give a file, a folder, or -") from error


def read_opened(file: BinaryIO, name: str, reading: RowReading = ANY_ROWS, *, limits: Any = None) -> Document:
    """Read an open file of the system, as `read_document` does; `name` stands in the errors."""
    reader = installed_reader()
    if reader is None:
        return _read_alone(file, name, reading)
    try:
        kind, found = reader.read(file, name, column=reading.column, limits=_checked(reader, limits))
    except reader.Refusal as error:
        raise InputError(f"{name} {error}") from error
    except ModuleNotFoundError as error:
        library = (error.name or "a library").replace("_", "-")
        raise MissingExtra(f"reading {name} needs {library}: {distribution_hint('documents')}") from error
    return document_of(name, kind, found, reading)


def members_of(file: BinaryIO, name: str) -> Members:
    """The documents in an archive or a mailbox, such as "a.zip:b.pdf", with what unpacks them; none of other files.

    What is no document has nothing that unpacks it. What unpacks a document raises an InputError if that is damaged.
    """
    reader = installed_reader()
    if reader is not None:
        for member, unpack in reader.members(file, name) or ():
            full = f"{name}:{member}"
            yield full, unpack and partial(_unpacked, reader, full, unpack)


def _unpacked(reader: DocumentReader, name: str, unpack: Callable[[], bytes]) -> bytes:
    try:
        return unpack()
    except reader.Refusal as error:
        raise InputError(f"{name} {error}") from error


def _checked(reader: DocumentReader, limits: object) -> Any:
    """Limits, once checked to be numbers from 0 on; others are a SettingsError."""
    if limits is None:
        return reader.Limits()
    limits = instance("limits", limits, type(reader.Limits()))
    for name, value in vars(limits).items():
        check = number if name == "seconds" else whole  # the parser's process, which has no time for this, takes them
        if not 0 <= check(f"limit {name}", value) < _MOST:
            raise SettingsError(f"limit {name} {value!r:.40} is not from 0 to 2^53")
    return limits


def _read_alone(file: BinaryIO, name: str, reading: RowReading) -> Document:
    """Read a document without the package for documents: plain text in Unicode, or a table in it."""
    suffix = PurePath(name).suffix.lower()
    kind = _PLAIN.get(suffix) or _TABLES.get(suffix)
    content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise InputError(f"{name} has more than {MAX_BYTES >> 20} MB, the limit: cut it into parts")
    text = _in_unicode(content)
    if kind is None or text is None or (not suffix and text.lstrip()[:20].lower().startswith(_OTHERS)):
        raise MissingExtra(
            f"reading {name} needs dgmark-documents, which reads PDF, Word and other documents and texts that are not "
            f"in Unicode: {distribution_hint('documents')}"
        )
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return document_of(name, kind, _PlainText(text, "delimited" if suffix in _TABLES else "as it stands"), reading)


def _in_unicode(content: bytes) -> str | None:
    """The text of these bytes in UTF-8, or in UTF-16 with a byte order mark; None if they are neither."""
    marked = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    try:
        text = content.decode("utf-16" if marked else "utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


class _PlainText(NamedTuple):
    """A text that needs no package, with the fields of `dgmark_documents.reading.Reading`."""

    text: str
    form: str
    tables: Sequence[Table] = ()
    how: Sequence[str] = ()
    notes: Sequence[str] = ()
    pages: int | None = None
    uncertain_because: str | None = None


def document_of(name: str, kind: str, found: Any, reading: RowReading) -> Document:
    """The document of what was read: codes of a terminal left out, the texts of tables found, markup weighed.

    Args:
        name: the name of the file, which stands in the errors.
        kind: what the file is.
        found: what was read, with the fields of `dgmark_documents.reading.Reading`.
        reading: of a table, the columns that are read.

    Raises:
        InputError: it holds no text, or no column of this name.
    """
    plain, because = without_terminal_codes(found.text), found.uncertain_because
    how, left_out = [*found.how], [*found.notes]
    if plain != found.text:
        how.append("codes that steer a terminal, such as colours, were left out")
    is_table = found.form in ("delimited", "tables")
    table: tuple[TextRow, ...] = ()
    if is_table:
        try:
            tables = [Table(*table) for table in found.tables]
            texts = texts_of([delimited_table(plain, reading.column)] if found.form == "delimited" else tables, reading)
        except InputError as error:
            raise InputError(f"{name} {error}") from error
        plain, table, how, left_out = "", texts.rows, [*how, *texts.how], [*texts.notes, *left_out]
    elif not plain.strip():
        raise InputError(f"{name} holds no text")
    elif found.form == "as it stands":
        _, share = without_markup(plain.partition("\\begin{document}")[2] or plain)  # what TeX shows
        if share > _MARKUP_NOTED:
            how.append(
                f"signs of markup touch {share:.0%} of its words; these are scored with the signs, and once more "
                "without"
            )
        if share > _MARKUP_UNCERTAIN:
            because = because or "markup"
    return Document(plain, kind, (*how, *left_out), found.pages, table, bool(left_out), because, is_table)
