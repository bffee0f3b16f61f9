"""Texts to score, from files, folders, JSON Lines and standard input. An unusable row or text becomes a bad row.

Knows nothing of tokens and keys.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dgmark.errors import EmptyInput, InputError, MissingExtra, NoTexts, install_hint
from dgmark.rows.inputs import STDIN, decode, open_input
from dgmark.rows.jsonl import BadRow, Row, read_rows, rows_or_text

if TYPE_CHECKING:
    from pyarrow.parquet import RowGroupMetaData

TEXT_SUFFIXES = (".txt", ".md", ".jsonl", ".parquet")
# characters of a text: more than the Bible has
MAX_CHARS, MOST_CHARS = 5_000_000, 2**30
_PARQUET_BATCH = 256
# a row group that unpacks to more than this, and to more than this many times its size in the file, is a bomb
_LARGE_GROUP, _DENSE_GROUP = 2**28, 100
_EMPTY = "the text is empty"


@dataclass(frozen=True)
class Item:
    """One text, or the token ids of one response, to score."""

    row_id: str
    content: str | list[int]


def read_texts(source: str, *, prefer_ids: bool = False, max_chars: int = MAX_CHARS) -> Iterator[Item | BadRow]:
    """Read the texts of one source.

    Args:
        source: a text file, a `.jsonl` or `.parquet` file, a folder (its `.txt`, `.md`, `.jsonl` and `.parquet` files,
            in order of name), or "-" for standard input.
        prefer_ids: take the ids of a row that holds both "text" and "token_ids".
        max_chars: characters of the longest text (token ids of the longest response). A longer one is a bad row, and
            little more than this of it is ever in memory.

    Raises:
        NoTexts: the file cannot be read, or the folder holds no text.
    """
    suffix = Path(source).suffix.lower()
    if os.path.isdir(source):
        files = sorted(file for file in Path(source).rglob("*") if file.suffix.lower() in TEXT_SUFFIXES)
        files = [file for file in files if file.is_file()]
        if not files:
            raise NoTexts(f"{source} is a folder without texts: looked for {', '.join(TEXT_SUFFIXES)}")
        for file in files:
            yield from _read_one(str(file), prefer_ids, max_chars)
    elif suffix == ".jsonl":
        for row in read_rows(source, largest_line(max_chars)):
            yield _item(row, prefer_ids, max_chars)
    elif suffix == ".parquet":
        for row in read_parquet(source):
            yield _item(row, prefer_ids, max_chars)
    else:
        name = "stdin" if source == STDIN else source
        with open_input(source, "a text file, a folder, or -") as opened:
            if source != STDIN:
                yield _text_of(name, opened.read(4 * max_chars + 1), max_chars)
                return
            found = rows_or_text(opened, name, 4 * max_chars, largest_line(max_chars))
            if isinstance(found, bytes):
                yield _text_of(name, found, max_chars)
                return
            for row in found:
                yield _item(row, prefer_ids, max_chars)


def _read_one(source: str, prefer_ids: bool, max_chars: int) -> Iterator[Item | BadRow]:
    """Read one file of a folder; a file that cannot be read is a bad row, and the others are read."""
    try:
        yield from read_texts(source, prefer_ids=prefer_ids, max_chars=max_chars)
    except InputError as error:
        yield unreadable(source, error)


def unreadable(source: str, error: InputError) -> BadRow:
    """The bad row of a source that cannot be read. The source is named once, by its id."""
    return BadRow(source, str(error).removeprefix(f"{source} "), type(error))


def largest_line(max_chars: int) -> int:
    """Bytes of a line of JSON Lines whose text is `max_chars` long: 12 for a character, and 2**24 for other fields."""
    return 12 * max_chars + 2**24


def read_parquet(path: str) -> Iterator[Row | BadRow]:
    """Read the columns id, text and token_ids of a Parquet file, row by row; a batch is in memory at a time.

    A row group that would unpack to far more than it holds in the file is one bad row.

    Raises:
        NoTexts: the file cannot be read as Parquet, from its start or from some row on, or it has neither a column
            "text" nor a column "token_ids".
        MissingExtra: pyarrow is not installed.
    """
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ModuleNotFoundError as error:
        raise MissingExtra(f"Parquet files need pyarrow: {install_hint('parquet')}") from error
    with open_input(path, "a Parquet file"):
        pass  # no device, and no pipe that blocks
    try:
        metadata = parquet.read_metadata(path)
        shared = [name for name in ("text",) if name in metadata.schema.names]
        # a text that many rows share is unpacked once
        file = parquet.ParquetFile(path, read_dictionary=shared, metadata=metadata)
    except (OSError, arrow.ArrowException) as error:
        raise NoTexts(f"{path} cannot be read as Parquet: {error}") from error
    with file:
        columns = [name for name in ("id", "text", "token_ids") if name in file.schema_arrow.names]
        if not {"text", "token_ids"} & set(columns):
            raise NoTexts(f'{path} has neither a column "text" nor a column "token_ids"')
        number = 0
        for place in range(file.num_row_groups):
            group = file.metadata.row_group(place)
            if bomb := _bomb(group, columns):
                yield BadRow(f"{path}:{number + 1}", bomb)
                number += group.num_rows
                continue
            batches = file.iter_batches(batch_size=_PARQUET_BATCH, row_groups=[place], columns=columns)
            while True:
                try:
                    batch = next(batches, None)
                except (OSError, arrow.ArrowException) as error:
                    raise NoTexts(f"{path} cannot be read as Parquet after row {number}: {error}") from error
                if batch is None:
                    break
                for at in range(len(batch)):
                    number += 1
                    name = f"{path}:{number}"
                    try:
                        (row,) = batch.slice(at, 1).to_pylist()
                    except (ValueError, OverflowError) as error:  # bytes that are not text; includes Arrow's errors
                        yield BadRow(name, f"not readable: {error}")
                        continue
                    yield {**row, "id": str(row["id"]) if row.get("id") is not None else name}


def _bomb(group: "RowGroupMetaData", columns: list[str]) -> str | None:
    """What is wrong with a row group that is far larger in memory than in the file; None for any other."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema.partition(".")[0] in columns:
            unpacked = max(column.total_uncompressed_size, 8 * column.num_values)
            if unpacked > max(_LARGE_GROUP, _DENSE_GROUP * column.total_compressed_size):
                return (
                    f"this and the next {group.num_rows - 1} rows unpack from {column.total_compressed_size} bytes to "
                    f"{unpacked}, which no text does: they are not read"
                )
    return None


def _text_of(name: str, content: bytes, max_chars: int) -> Item | BadRow:
    """The text of a file's bytes."""
    if len(content) > 4 * max_chars:
        return _too_long(name, f"the text is longer than {max_chars} characters")
    try:
        return _text(name, decode(content, name), max_chars)
    except InputError as error:
        return unreadable(name, error)


def _text(name: str, text: str, max_chars: int) -> Item | BadRow:
    if len(text) > max_chars:
        return _too_long(name, f"the text has {len(text)} characters, and {max_chars} are allowed")
    return Item(name, text) if text.strip() else BadRow(name, _EMPTY, EmptyInput)


def _too_long(name: str, what: str) -> BadRow:
    return BadRow(name, f"{what}: cut it into parts, or allow more (max_chars, --max-chars)")


def _item(row: Row | BadRow, prefer_ids: bool, max_chars: int) -> Item | BadRow:
    """The text or the ids of a row."""
    if isinstance(row, BadRow):
        return row
    text, ids = row.get("text"), row.get("token_ids")
    if isinstance(ids, list) and (prefer_ids or text is None):
        if len(ids) > max_chars:
            return _too_long(row["id"], f"the row has {len(ids)} token ids, and {max_chars} are allowed")
        if not all(type(i) is int and abs(i) < 2**31 for i in ids):
            return BadRow(row["id"], '"token_ids" are not all whole numbers')
        return Item(row["id"], ids) if ids else BadRow(row["id"], _EMPTY, EmptyInput)
    if not isinstance(text, str):
        return BadRow(row["id"], str(row.get("error") or 'no "text" and no "token_ids"'))
    return _text(row["id"], text, max_chars)
