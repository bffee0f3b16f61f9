"""`read_document`: the text in a file, and how it was read.

Plain text is decoded here. Every other kind is parsed in a process of its own (`sandbox.py`).
"""

import hashlib
import os
from dataclasses import dataclass, replace
from typing import BinaryIO

from dgmark.arguments import instance, number, path_text, whole
from dgmark.documents.charsets import decode
from dgmark.documents.inline_markup import without_markup
from dgmark.documents.kinds import AS_THEY_STAND, HEAD, TABLES, Kind, begins_as, is_plain, mismatch, recognise
from dgmark.documents.reading import MB, Limits, Reading, Refusal
from dgmark.documents.sandbox import parse_in_process
from dgmark.errors import InputError, MissingExtra, NoTexts, SettingsError
from dgmark.extras import install_hint

TEXT_COLUMN = "text"
_MOST = 2**53  # of any limit
# of the words of a text that is scored with its signs of markup, the share that they touch where a note says so, and
# where it is not called not marked
_MARKUP_NOTED, _MARKUP_UNCERTAIN = 1 / 8, 1 / 4


@dataclass(frozen=True)
class Document:
    """The text of a file.

    Attributes:
        text: the text, as it is scored. Empty for a table.
        kind: what the file is, such as "PDF".
        notes: what was left out, and what the reader should know.
        pages: number of pages (PDF), chapters (EPUB), slides (PowerPoint) or sheets (Excel); None for other kinds.
        rows: of a table, the id and the text of each row.
        incomplete: whether something was left out.
        uncertain_because: why a text without the mark cannot be called that, if so: "unread" (more than a tenth of the
            letters were not read, or 400, or a part of unknown size), "not_shown" (as many were read that the document
            does not show) or "markup" (signs of markup touch more than a quarter of the words).
    """

    text: str
    kind: str
    notes: tuple[str, ...] = ()
    pages: int | None = None
    rows: tuple[tuple[str, str], ...] = ()
    incomplete: bool = False
    uncertain_because: str | None = None

    @property
    def sha256(self) -> str:
        """The SHA-256 of the text as UTF-8, in hexadecimal."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


def read_document(
    path: str | os.PathLike[str], *, text_column: str = TEXT_COLUMN, limits: Limits | None = None
) -> Document:
    """Read the text of a file: plain text, Markdown, HTML, PDF, RTF, .docx, .pptx, .odt, .epub, .eml, .mht, .ipynb,
    .srt, .xml, .po, .json, .csv, .xlsx and others.

    The kind is recognised by the content, then by the name. All kinds but plain text need the extra `documents`. They
    are parsed in a process of their own, without keys and with limits.

    Args:
        path: the file.
        text_column: of a table, the column that holds the texts.
        limits: what the document may cost.

    Raises:
        SettingsError: `path` is neither a text nor a path, or another argument is of a wrong type.
        NoTexts: the file cannot be opened.
        InputError: it holds no text.
        InputError: most of it cannot be read, as of a scan.
        InputError: it is a picture, encrypted, damaged, of a kind that is not read, or beyond a limit.
        MissingExtra: the extra `documents` is not installed.
    """
    name = path_text(path, "a document")
    try:
        with open(name, "rb") as file:
            return read_opened(file, name, text_column=text_column, limits=limits)
    except OSError as error:
        raise NoTexts(f"{name} cannot be read: {error.strerror}; give a file, a folder, or -") from error


def read_opened(file: BinaryIO, name: str, *, text_column: str = TEXT_COLUMN, limits: Limits | None = None) -> Document:
    """Read an open file of the system, as `read_document` does; `name` stands in the errors."""
    instance("the text column", text_column, str)
    limits = Limits() if limits is None else _checked(limits)
    size = os.fstat(file.fileno()).st_size
    try:
        if size > limits.file_bytes:
            raise Refusal(f"has {size // MB} MB; the limit is {limits.file_bytes // MB} MB: cut it into parts")
        kind, reading = _read(file, name, text_column, limits)
    except Refusal as error:
        raise InputError(f"{name} {error}") from error
    except ModuleNotFoundError as error:
        library = (error.name or "a library").replace("_", "-")
        raise MissingExtra(f"reading {name} needs {library}: {install_hint('documents')}") from error
    if not reading.text.strip() and not reading.rows and kind not in TABLES:
        raise InputError(f"{name} holds no text")
    note = mismatch(name, kind)
    notes = (*([note] if note else []), *reading.how, *reading.notes)
    incomplete = bool(reading.notes)
    return Document(reading.text, str(kind), notes, reading.pages, reading.rows, incomplete, reading.uncertain_because)


def _checked(limits: object) -> Limits:
    """Limits, once checked to be numbers from 0 on.

    Raises:
        SettingsError: they are not.
    """
    limits = instance("limits", limits, Limits)
    for name, value in vars(limits).items():
        check = number if name == "seconds" else whole  # the parser's process, which has no time for this, takes them
        if not 0 <= check(f"limit {name}", value) < _MOST:
            raise SettingsError(f"limit {name} {value!r:.40} is not from 0 to 2^53")
    return limits


def _read(file: BinaryIO, name: str, column: str, limits: Limits) -> tuple[Kind, Reading]:
    head = file.read(HEAD)
    kind = recognise(name, head)
    if kind not in AS_THEY_STAND:
        kind, reading = parse_in_process(file, kind, column, limits)
        return kind, _weighed(reading) if kind is Kind.NOTEBOOK else reading
    text, how = decode(head + file.read())
    begins = begins_as(head) if kind in (Kind.TEXT, Kind.MARKDOWN) else None
    if begins is not None:
        how.append(
            f"its content looks like {begins}, and is scored as it stands, with its signs of markup: name it as such a "
            "file to have its text scored"
        )
    reading = Reading(text, how=tuple(how))
    if kind is Kind.TEXT and begins is None and not is_plain(name):  # programs, logs and other data
        return kind, reading
    return kind, _weighed(reading)


def _weighed(reading: Reading) -> Reading:
    """The reading of a text that is scored with its signs of markup, which says so if they touch many of its words."""
    _, share = without_markup(reading.text)
    if share <= _MARKUP_NOTED:
        return reading
    note = f"signs of markup touch {share:.0%} of its words; these are scored with the signs, and once more without"
    because = reading.uncertain_because or ("markup" if share > _MARKUP_UNCERTAIN else None)
    return replace(reading, how=(*reading.how, note), uncertain_because=because)
