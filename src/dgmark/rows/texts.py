"""Texts to score, from documents, folders, rows and standard input. An unusable row or text becomes a bad row.

Knows nothing of tokens and keys.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

from dgmark.arguments.checks import instance
from dgmark.arguments.contents import as_text, id_of_row, is_id
from dgmark.detection.reading.disguises.markup_signs import markup_note
from dgmark.errors import InputError, NoTexts
from dgmark.files.inputs import STDIN, open_input
from dgmark.files.outputs import is_protected
from dgmark.rows.documents import MAX_BYTES, Document, folder_suffixes, read_opened
from dgmark.rows.jsonl import SUFFIXES, BadRow, Row, is_rows, read_rows, rows_or_text, without_id
from dgmark.rows.parquet import PARQUET_SUFFIXES, is_parquet, parquet_rows
from dgmark.rows.tables import ID_COLUMN, TEXT_COLUMN

# characters of a text, or token ids of a response: more than the Bible has
MAX_CHARS = 5_000_000
_EMPTY = "the text is empty"
_IDS = "token_ids"  # the column or field of token ids


@dataclass(frozen=True)
class Item:
    """One text, or the token ids of one response, to score.

    Attributes:
        row_id: the id of its row, or the name of its document.
        content: the text or the ids.
        kind: the kind of its document, such as "PDF"; None for rows.
        notes: what was left out of the document, and what the reader should know of it or of the text.
        incomplete: whether something was left out of the document.
        uncertain_because: why a text without the mark cannot be called that, if so: "unread", "not_shown" or "markup".
        file: the file of its row, if that is to be stated.
        key: the name of the key that its row names, if that is to be stated.
    """

    row_id: str
    content: str | list[int]
    kind: str | None = None
    notes: tuple[str, ...] = ()
    incomplete: bool = False
    uncertain_because: str | None = None
    file: str | None = None
    key: str | None = None

    @property
    def name(self) -> str:
        """What a person is told that the text is called."""
        return self.row_id if self.file is None else f"{self.file}:{self.row_id}"


@dataclass(frozen=True)
class RowReading:
    """What is read of the rows of files and tables.

    Attributes:
        text_column: the column or field that holds the texts, or lists of token ids; by default "text". The columns of
            a table beside one that was named are none of its text.
        id_column: the column or field of the rows' ids; by default "id" of JSON Lines, and the numbers of other rows.
        key_column: the column or field that names the key of each row.
        prefer_ids: take the ids of a row that holds both a text and "token_ids".
        name_files: state the file of each row, as where several files may have rows of one id.

    Raises:
        SettingsError: the name of a column is not a text.
    """

    text_column: str | None = None
    id_column: str | None = None
    key_column: str | None = None
    prefer_ids: bool = False
    name_files: bool = False

    def __post_init__(self) -> None:
        for name, column in (("texts", self.text_column), ("ids", self.id_column), ("keys", self.key_column)):
            if column is not None:
                instance(f"the column of {name}", column, str)

    @property
    def column(self) -> str:
        """The column of the texts."""
        return self.text_column or TEXT_COLUMN


ANY_ROWS = RowReading()


def read_texts(
    source: str, reading: RowReading = ANY_ROWS, *, on_skip: Callable[[str], object] | None = None
) -> Iterator[Item | BadRow]:
    """Read the texts of one source. One of more than `MAX_CHARS` characters or ids is a bad row.

    Args:
        source: a document that `read_document` reads, JSON Lines (`.jsonl`, `.ndjson`, also `.gz`), Parquet, a folder
            (its files with such an ending, in order of name; what cannot be opened as a file is a bad row), or "-"
            for standard input.
        reading: what is read of rows.
        on_skip: called with each file of a folder whose ending is that of no document.

    Raises:
        InputError: the file cannot be read, or the folder holds no document.
        MissingExtra: reading the file needs a package that is not installed.
    """
    if os.path.isdir(source):
        for file in _documents_of(source, on_skip):
            if isinstance(file, BadRow):
                yield file
                continue
            try:
                yield from read_texts(file, replace(reading, name_files=True))
            except InputError as error:
                yield unreadable(file, error)
    elif is_rows(source) or is_parquet(source):
        rows = read_rows(source) if is_rows(source) else _rows_of_parquet(source, reading)
        for row in rows:
            item = _item_of(row, reading)
            yield replace(item, file=source) if reading.name_files else item
    elif source == STDIN:
        yield from _from_stdin(reading)
    else:
        with open_input(source, "a document, a folder, or -") as opened:
            document = _read_document(opened, source, reading.text_column)
        if document.is_table and reading.id_column not in (None, ID_COLUMN):
            raise InputError(
                f"{source} has its ids in the column {ID_COLUMN}, as every table that is not Parquet: rename its "
                "column, or leave the column of ids out"
            )
        yield from _items_of(source, document)


def _rows_of_parquet(source: str, reading: RowReading) -> Iterator[Row | BadRow]:
    return parquet_rows(
        source,
        reading.column,
        more=[one for one in (reading.id_column, reading.key_column) if one is not None],
        ids_column=_IDS,
        prefer_ids=reading.prefer_ids,
    )


def files_of(sources: Iterable[str]) -> list[str]:
    """The sources, with the documents of folders in place of the folders.

    Raises:
        InputError: a folder holds no document, or what is not a document that can be read.
    """
    files: list[str] = []
    for source in sources:
        for file in _documents_of(source, None) if os.path.isdir(source) else [source]:
            if isinstance(file, BadRow):
                raise InputError(f"{file.row_id} {file.error}")
            files.append(file)
    return files


def _documents_of(folder: str, on_skip: Callable[[str], object] | None) -> list[str | BadRow]:
    """The documents of a folder and the folders in it, by their endings, in order of name, and what is not read."""
    found: dict[Path, str | BadRow] = {}
    skipped: list[Path] = []
    suffixes = (*folder_suffixes(), *SUFFIXES, *PARQUET_SUFFIXES)

    def refuse(path: str | Path, why: str) -> None:
        found[Path(path)] = BadRow(str(path), why, InputError)

    def unread(error: OSError) -> None:
        refuse(error.filename, f"cannot be read: {error.strerror}")

    for place, folders, files in os.walk(folder, onerror=unread):
        for path in (Path(place, name) for name in folders):
            if path.is_symlink():
                refuse(path, "is a link to a folder, and links are not followed: give that folder itself")
        for path in (Path(place, name) for name in files):
            # Office writes "~$name" beside a document that is open
            if not path.name.lower().endswith(suffixes) or path.name.startswith(("~$", ".")) or _is_key(path):
                skipped.append(path)
            elif path.is_file() or not path.exists():
                found[path] = str(path)  # a link to nothing is refused when it is opened
            else:
                refuse(path, "is a pipe or a device, not a file")
    if not found:
        raise NoTexts(f"the folder {folder} holds no document: looked for {', '.join(suffixes)}")
    for path in sorted(skipped):
        if on_skip:
            on_skip(str(path))
    return [found[path] for path in sorted(found)]


def _is_key(path: Path) -> bool:
    """Whether a file is one of keys or tokens, which is no text to score."""
    try:
        return path.suffix == ".json" and path.stat().st_size <= 2**16 and is_protected(path)
    except OSError:  # which is an error where the file is read
        return False


def _from_stdin(reading: RowReading) -> Iterator[Item | BadRow]:
    """Read rows as they arrive, or one whole document. The first line that is not blank decides."""
    with open_input(STDIN, "a document") as file:
        found = rows_or_text(file, "stdin", MAX_BYTES)
        if not isinstance(found, bytes):
            for row in found:
                yield _item_of(row, reading)
            return
    with _spooled(found) as copy:
        document = read_opened(copy, "stdin", text_column=reading.text_column)
    yield from _items_of("stdin", document)


def _read_document(file: BufferedIOBase, name: str, text_column: str | None) -> Document:
    """Read an open document; what comes out of a pipe is copied first, up to the limit of a file's size."""
    on_disk = cast(BinaryIO, file)
    if stat.S_ISREG(os.fstat(on_disk.fileno()).st_mode):
        return read_opened(on_disk, name, text_column=text_column)
    with _spooled(file.read(MAX_BYTES + 1)) as copy:
        return read_opened(copy, name, text_column=text_column)


def _spooled(content: bytes) -> BinaryIO:
    """A file of the system with this content; it ends with its use."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 (the caller closes it)
    file.write(content)
    file.seek(0)
    return cast(BinaryIO, file)


def _items_of(name: str, document: Document) -> Iterator[Item | BadRow]:
    """The text of a document, or the texts of a table."""
    if document.is_table:
        items = [_text_of_row(f"{name}:{row_id}", text) for row_id, text in document.rows]
    else:
        items = [_text(name, document.text)]
    for item in items:
        if isinstance(item, Item):
            left_out = document.incomplete, document.uncertain_because
            item = Item(item.row_id, item.content, document.kind, (*document.notes, *item.notes), *left_out)
        yield item


def unreadable(source: str, error: InputError) -> BadRow:
    """The bad row of a source that cannot be read. The source is named once, by its id."""
    return BadRow(source, str(error).removeprefix(f"{source} "), type(error))


def _text(name: str, text: str) -> Item | BadRow:
    if len(text) > MAX_CHARS:
        return _too_long(name, f"the text has {len(text)} characters")
    return Item(name, text) if text.strip() else BadRow(name, _EMPTY, InputError)


def _text_of_row(name: str, text: str) -> Item | BadRow:
    """A text that stands in a row, with a note if it holds markup, for which rows have no kind of their own."""
    item, note = _text(name, text), markup_note(text)
    return replace(item, notes=(note,)) if note and isinstance(item, Item) else item


def _too_long(name: str, what: str) -> BadRow:
    return BadRow(name, f"{what}, and {MAX_CHARS} are allowed: cut it into parts")


def _item_of(row: Row | BadRow, reading: RowReading) -> Item | BadRow:
    """The text or the ids of a row, see `RowReading`."""
    if isinstance(row, BadRow):
        return row
    row_id = row_id_of(row, reading.id_column)
    if isinstance(row_id, BadRow):
        return row_id
    text, ids = row.get(reading.column), row.get(_IDS)
    key = None if reading.key_column is None else as_text(row.get(reading.key_column))
    if isinstance(text, list):
        text, ids = None, text
    if isinstance(ids, list) and (reading.prefer_ids or text is None):
        if len(ids) > MAX_CHARS:
            return _too_long(row_id, f"the row has {len(ids)} token ids")
        if not are_ids(ids):
            return BadRow(row_id, '"token_ids" are not all whole numbers')
        return Item(row_id, ids, key=key) if ids else BadRow(row_id, _EMPTY, InputError)
    if isinstance(text, str):
        item = _text_of_row(row_id, text)
        return replace(item, key=key) if key is not None and isinstance(item, Item) else item
    if reading.column in row and text is None and not row.get("error"):
        return BadRow(row_id, "there is no text: the value is missing")
    return BadRow(row_id, str(row.get("error") or f'no "{reading.column}" and no "token_ids"'))


def row_id_of(row: Row, id_column: str | None) -> str | BadRow:
    """What names a row: its id, or what stands in the column of ids."""
    found = id_of_row(row["id"] if id_column is None else row.get(id_column))
    return without_id(str(row["id"]), str(id_column)) if found is None else found


def are_ids(ids: list[Any]) -> bool:
    """Whether a list holds token ids."""
    return all(is_id(i) and abs(i) < 2**31 for i in ids)
