"""Texts to score, from documents, folders, rows and standard input. An unusable row or text becomes a bad row.

Knows nothing of tokens and keys.
"""

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BufferedIOBase
from pathlib import Path
from typing import Any, BinaryIO, cast

from dgmark.contents.type_checks import is_id
from dgmark.detection.disguises.markup_signs import markup_note
from dgmark.errors import InputError, NoTexts
from dgmark.files.inputs import STDIN, open_input
from dgmark.rows.documents import MAX_BYTES, Document, folder_suffixes, read_opened
from dgmark.rows.jsonl import SUFFIXES, BadRow, Row, read_rows, rows_or_text
from dgmark.rows.tables import TEXT_COLUMN

# characters of a text, or token ids of a response: more than the Bible has
MAX_CHARS = 5_000_000
_EMPTY = "the text is empty"
# from an open file, a name, and the keyword `text_column` to a document
ReadDocument = Callable[..., Document]


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
    """

    row_id: str
    content: str | list[int]
    kind: str | None = None
    notes: tuple[str, ...] = ()
    incomplete: bool = False
    uncertain_because: str | None = None


def read_texts(
    source: str,
    *,
    prefer_ids: bool = False,
    text_column: str = TEXT_COLUMN,
    on_skip: Callable[[str], object] | None = None,
    read: ReadDocument = read_opened,
) -> Iterator[Item | BadRow]:
    """Read the texts of one source. One of more than `MAX_CHARS` characters or ids is a bad row.

    Args:
        source: a document that `read_document` reads, JSON Lines (`.jsonl`, `.ndjson`), a folder (its files with such
            an ending, in order of name; what is no file or cannot be opened is a bad row), or "-" for standard input.
        prefer_ids: take the ids of a row that holds both a text and "token_ids".
        text_column: the column or field that holds the texts of rows and tables.
        on_skip: called with each file of a folder whose ending is that of no document.
        read: reads a document.

    Raises:
        InputError: the file cannot be read, or the folder holds no document.
        MissingExtra: reading the file needs a package that is not installed.
    """
    suffix = Path(source).suffix.lower()
    if os.path.isdir(source):
        for file in _documents_of(source, on_skip):
            if isinstance(file, BadRow):
                yield file
                continue
            try:
                yield from read_texts(file, prefer_ids=prefer_ids, text_column=text_column, read=read)
            except InputError as error:
                yield unreadable(file, error)
    elif suffix in SUFFIXES:
        for row in read_rows(source):
            yield _item_of(row, prefer_ids, text_column)
    elif source == STDIN:
        yield from _from_stdin(prefer_ids, text_column, read)
    else:
        with open_input(source, "a document, a folder, or -") as opened:
            yield from _items_of(source, _read_document(opened, source, text_column, read))


def _documents_of(folder: str, on_skip: Callable[[str], object] | None) -> list[str | BadRow]:
    """The documents of a folder and the folders in it, by their endings, in order of name, and what is not read."""
    found: dict[Path, str | BadRow] = {}
    skipped: list[Path] = []
    suffixes = (*folder_suffixes(), *SUFFIXES)

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
            if path.suffix.lower() not in suffixes or path.name.startswith(("~$", ".")):
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


def _from_stdin(prefer_ids: bool, text_column: str, read: ReadDocument) -> Iterator[Item | BadRow]:
    """Read rows as they arrive, or one whole document. The first line that is not blank decides."""
    with open_input(STDIN, "a document") as file:
        found = rows_or_text(file, "stdin", MAX_BYTES)
        if not isinstance(found, bytes):
            for row in found:
                yield _item_of(row, prefer_ids, text_column)
            return
    with _spooled(found) as copy:
        document = read(copy, "stdin", text_column=text_column)
    yield from _items_of("stdin", document)


def _read_document(file: BufferedIOBase, name: str, text_column: str, read: ReadDocument) -> Document:
    """Read an open document; what comes out of a pipe is copied first, up to the limit of a file's size."""
    on_disk = cast(BinaryIO, file)
    if stat.S_ISREG(os.fstat(on_disk.fileno()).st_mode):
        return read(on_disk, name, text_column=text_column)
    with _spooled(file.read(MAX_BYTES + 1)) as copy:
        return read(copy, name, text_column=text_column)


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


def _item_of(row: Row | BadRow, prefer_ids: bool, text_column: str) -> Item | BadRow:
    """The text or the ids of a row, see `read_texts`."""
    if isinstance(row, BadRow):
        return row
    text, ids = row.get(text_column), row.get("token_ids")
    if isinstance(ids, list) and (prefer_ids or text is None):
        if len(ids) > MAX_CHARS:
            return _too_long(row["id"], f"the row has {len(ids)} token ids")
        if not _are_ids(ids):
            return BadRow(row["id"], '"token_ids" are not all whole numbers')
        return Item(row["id"], ids) if ids else BadRow(row["id"], _EMPTY, InputError)
    if not isinstance(text, str):
        return BadRow(row["id"], str(row.get("error") or f'no "{text_column}" and no "token_ids"'))
    return _text_of_row(row["id"], text)


def prompt_of(row: Row) -> str | list[int] | BadRow:
    """The prompt of a row: a text, or token ids."""
    prompt = row.get("prompt")
    if isinstance(prompt, str) or (isinstance(prompt, list) and _are_ids(prompt)):
        return prompt
    return BadRow(row["id"], 'no "prompt": give a text, or a list of token ids')


def _are_ids(ids: list[Any]) -> bool:
    return all(is_id(i) and abs(i) < 2**31 for i in ids)
