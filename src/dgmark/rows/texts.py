"""Texts to score, from files, folders, JSON Lines and standard input. An unusable row or text becomes a bad row.

Knows nothing of tokens and keys.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from dgmark.errors import EmptyInput, MissingExtra, NoTexts, install_hint
from dgmark.rows.jsonl import STDIN, BadRow, Row, parse_rows, read_rows

TEXT_SUFFIXES = (".txt", ".md", ".jsonl", ".parquet")
_PARQUET_BATCH = 256
_EMPTY = "the text is empty"


@dataclass(frozen=True)
class Item:
    """One text, or the token ids of one response, to score."""

    row_id: str
    content: str | list[int]


def read_texts(source: str, *, prefer_ids: bool = False) -> Iterator[Item | BadRow]:
    """Read the texts of one source.

    Args:
        source: a text file, a `.jsonl` or `.parquet` file, a folder (its `.txt`, `.md`, `.jsonl` and `.parquet` files,
            in order of name), or "-" for standard input.
        prefer_ids: take the ids of a row that holds both "text" and "token_ids".

    Raises:
        NoTexts: the file cannot be read, or the folder holds no text.
    """
    if source == STDIN:
        yield from _from_lines(iter(sys.stdin.buffer), "stdin", prefer_ids)
        return
    path = Path(source)
    if path.is_dir():
        files = sorted(file for file in path.rglob("*") if file.suffix.lower() in TEXT_SUFFIXES and file.is_file())
        if not files:
            raise NoTexts(f"the folder {source} holds no text: looked for {', '.join(TEXT_SUFFIXES)}")
        for file in files:
            yield from read_texts(str(file), prefer_ids=prefer_ids)
    elif path.suffix.lower() == ".jsonl":
        for row in read_rows(source):
            yield _item(row, prefer_ids)
    elif path.suffix.lower() == ".parquet":
        for row in read_parquet(source):
            yield _item(row, prefer_ids)
    else:
        try:
            content = path.read_bytes()
        except OSError as error:
            raise NoTexts(f"{source} cannot be read: {error.strerror}; give a text file, a folder, or -") from error
        yield _text(source, content.decode("utf-8", "replace"))


def read_parquet(path: str) -> Iterator[Row | BadRow]:
    """Read the columns id, text and token_ids of a Parquet file, row by row; a batch is in memory at a time.

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
    try:
        file = parquet.ParquetFile(path)
    except (OSError, arrow.ArrowException) as error:
        raise NoTexts(f"{path} cannot be read as Parquet: {error}") from error
    with file:
        columns = [name for name in ("id", "text", "token_ids") if name in file.schema_arrow.names]
        if not {"text", "token_ids"} & set(columns):
            raise NoTexts(f'{path} has neither a column "text" nor a column "token_ids"')
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


def _from_lines(lines: Iterator[bytes], name: str, prefer_ids: bool) -> Iterator[Item | BadRow]:
    """Read rows as they arrive, or one whole text. The first line that is not blank decides which."""
    head = []
    for line in lines:
        head.append(line)
        if line.strip():
            break
    if head and is_rows(head[-1]):
        for row in parse_rows(chain(head, lines), name):
            yield _item(row, prefer_ids)
    else:
        yield _text(name, b"".join(chain(head, lines)).decode("utf-8", "replace"))


def _text(name: str, text: str) -> Item | BadRow:
    return Item(name, text) if text.strip() else BadRow(name, _EMPTY, EmptyInput)


def _item(row: Row | BadRow, prefer_ids: bool) -> Item | BadRow:
    if isinstance(row, BadRow):
        return row
    text, ids = row.get("text"), row.get("token_ids")
    if isinstance(ids, list) and (prefer_ids or text is None):
        if not all(type(i) is int and abs(i) < 2**31 for i in ids):
            return BadRow(row["id"], '"token_ids" are not all whole numbers')
        return Item(row["id"], ids) if ids else BadRow(row["id"], _EMPTY, EmptyInput)
    if not isinstance(text, str):
        return BadRow(row["id"], str(row.get("error") or 'no "text" and no "token_ids"'))
    return _text(row["id"], text)
