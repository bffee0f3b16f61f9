"""Texts to score, from documents, folders, rows and standard input. An unusable row or text becomes a bad row.

Knows nothing of tokens and keys.
"""

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from dgmark.documents.document import Document, read_document, read_opened
from dgmark.documents.kinds import SUFFIXES, TABLES
from dgmark.errors import EmptyInput, InputError, MissingExtra, NoTexts, install_hint
from dgmark.rows.jsonl import STDIN, BadRow, Row, parse_rows, read_rows

TEXT_SUFFIXES = (*SUFFIXES, ".jsonl", ".parquet")
TEXT_COLUMN = "text"
_PARQUET_BATCH = 256
_EMPTY = "the text is empty"


@dataclass(frozen=True)
class Item:
    """One text, or the token ids of one response, to score.

    Attributes:
        row_id: the id of its row, or the name of its document.
        content: the text or the ids.
        kind: the kind of its document, such as "PDF"; None for rows.
        notes: what was left out of the document, and what the reader should know.
    """

    row_id: str
    content: str | list[int]
    kind: str | None = None
    notes: tuple[str, ...] = ()


def read_texts(
    source: str,
    *,
    prefer_ids: bool = False,
    text_column: str = TEXT_COLUMN,
    on_skip: Callable[[str], object] | None = None,
) -> Iterator[Item | BadRow]:
    """Read the texts of one source.

    Args:
        source: a document that `read_document` reads, a `.jsonl` or `.parquet` file, a folder (its files with such an
            ending, in order of name), or "-" for standard input.
        prefer_ids: take the ids of a row that holds both a text and "token_ids".
        text_column: the column or field that holds the texts of rows and tables.
        on_skip: called with each file of a folder whose ending is that of no document.

    Raises:
        InputError: the file cannot be read, or the folder holds no document.
        MissingExtra: reading the file needs a package that is not installed.
    """
    suffix = Path(source).suffix.lower()
    if source == STDIN:
        yield from _from_lines(iter(sys.stdin.buffer), "stdin", prefer_ids, text_column)
    elif Path(source).is_dir():
        for file in _documents_of(source, on_skip):
            try:
                yield from read_texts(file, prefer_ids=prefer_ids, text_column=text_column)
            except InputError as error:
                yield BadRow(file, str(error).removeprefix(f"{file} "), type(error))
    elif suffix == ".jsonl":
        for row in read_rows(source):
            yield _item(row, prefer_ids, text_column)
    elif suffix == ".parquet":
        for row in read_parquet(source, text_column):
            yield _item(row, prefer_ids, text_column)
    else:
        yield from _items_of(source, read_document(source, text_column=text_column))


def _documents_of(folder: str, on_skip: Callable[[str], object] | None) -> list[str]:
    """The documents of a folder and the folders in it, by their endings, in order of name."""
    files = sorted(file for file in Path(folder).rglob("*") if file.is_file())
    # Office writes "~$name" beside a document that is open
    named = [file for file in files if file.suffix.lower() in TEXT_SUFFIXES and not file.name.startswith(("~$", "."))]
    if not named:
        raise NoTexts(f"the folder {folder} holds no document: looked for {', '.join(TEXT_SUFFIXES)}")
    for file in sorted({*files} - {*named}):
        if on_skip:
            on_skip(str(file))
    return [str(file) for file in named]


def _items_of(name: str, document: Document) -> Iterator[Item | BadRow]:
    """The text of a document, or the texts of a table."""
    if document.kind not in TABLES:
        yield Item(name, document.text, document.kind, document.notes)
    for row_id, text in document.rows:
        place = f"{name}:{row_id}"
        yield Item(place, text, document.kind, document.notes) if text.strip() else BadRow(place, _EMPTY, EmptyInput)


def read_parquet(path: str, text_column: str = TEXT_COLUMN) -> Iterator[Row | BadRow]:
    """Read the ids, texts and token_ids of a Parquet file, row by row; a batch is in memory at a time.

    Raises:
        NoTexts: the file cannot be read as Parquet, from its start or from some row on, or it has neither a column
            of texts nor a column "token_ids".
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise MissingExtra(f"Parquet files need pyarrow: {install_hint('parquet')}") from error
    try:
        file = parquet.ParquetFile(path)
    except (OSError, arrow.ArrowException) as error:
        raise NoTexts(f"{path} cannot be read as Parquet: {error}") from error
    with file:
        columns = [name for name in ("id", text_column, "token_ids") if name in file.schema_arrow.names]
        if not {text_column, "token_ids"} & set(columns):
            raise NoTexts(
                f'{path} has neither a column "{text_column}" nor a column "token_ids": give --text-column NAME'
            )
        number = 0
        batches = file.iter_batches(batch_size=_PARQUET_BATCH, columns=columns)
        while True:
            try:
                batch = next(batches, None)
            except (OSError, arrow.ArrowException) as error:
                raise NoTexts(f"{path} cannot be read as Parquet after row {number}: {error}") from error
            if batch is None:
                return
            for at in range(len(batch)):
                number += 1
                name = f"{path}:{number}"
                try:
                    (row,) = batch.slice(at, 1).to_pylist()
                except (ValueError, OverflowError) as error:  # bytes that are not text; includes Arrow's errors
                    yield BadRow(name, f"not readable: {error}")
                    continue
                yield {**row, "id": str(row["id"]) if row.get("id") is not None else name}


def is_rows(content: bytes) -> bool:
    """Whether standard input holds JSON Lines instead of a text: then its first line is a JSON object."""
    try:
        return isinstance(json.loads(content.lstrip().split(b"\n", 1)[0]), dict)
    except (ValueError, RecursionError):
        return False


def _from_lines(lines: Iterator[bytes], name: str, prefer_ids: bool, text_column: str) -> Iterator[Item | BadRow]:
    """Read rows as they arrive, or one whole document. The first line that is not blank decides which."""
    head = []
    for line in lines:
        head.append(line)
        if line.strip():
            break
    if head and is_rows(head[-1]):
        for row in parse_rows(chain(head, lines), name):
            yield _item(row, prefer_ids, text_column)
        return
    with tempfile.TemporaryFile() as file:
        file.writelines(chain(head, lines))
        file.seek(0)
        yield from _items_of(name, read_opened(file, name, text_column=text_column))


def _text(name: str, text: str) -> Item | BadRow:
    return Item(name, text) if text.strip() else BadRow(name, _EMPTY, EmptyInput)


def _item(row: Row | BadRow, prefer_ids: bool, text_column: str) -> Item | BadRow:
    if isinstance(row, BadRow):
        return row
    text, ids = row.get(text_column), row.get("token_ids")
    if isinstance(ids, list) and (prefer_ids or text is None):
        if not all(type(i) is int and abs(i) < 2**31 for i in ids):
            return BadRow(row["id"], '"token_ids" are not all whole numbers')
        return Item(row["id"], ids) if ids else BadRow(row["id"], _EMPTY, EmptyInput)
    if not isinstance(text, str):
        return BadRow(row["id"], str(row.get("error") or f'no "{text_column}" and no "token_ids"'))
    return _text(row["id"], text)
