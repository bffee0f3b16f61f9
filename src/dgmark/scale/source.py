"""Files of rows as a Ray dataset: JSON Lines and Parquet, on any file system that pyarrow reads.

A line or file that cannot be read becomes a row with an error, so that one bad file does not end a run over many.
"""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as arrow
from pyarrow import fs
from ray.data import DataContext
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask

from dgmark.errors import InputError, NoTexts, SettingsError
from dgmark.rows.inputs import bounded_lines
from dgmark.rows.jsonl import BadRow, Row, parse_rows
from dgmark.rows.texts import MAX_CHARS, Item, max_line_bytes, parquet_rows, unreadable
from dgmark.rows.workers import chunks_of

SUFFIXES = (".jsonl", ".parquet")
_READ_BYTES = 2**20
# `row` names a row of this run, `place` counts the rows of a file from 0, `item` is an `Item` or a `BadRow` as JSON
ITEMS = arrow.schema({"row": arrow.string(), "place": arrow.int64(), "item": arrow.large_string()})


@dataclass(frozen=True)
class Reading:
    """How the rows of files are read. Each task that reads has a copy, so it holds no key.

    Attributes:
        run: what the run is: plain JSON values that its rows depend on.
        item_of: the text, ids or prompt of a row of a file.
        column: the column or field that holds the texts or prompts.
        max_chars: characters of the longest of them.
    """

    run: dict[str, Any]
    item_of: Callable[[Row | BadRow], Item | BadRow]
    column: str
    max_chars: int = MAX_CHARS


@dataclass(frozen=True)
class Source:
    """One file of rows: its name in messages and ids, and where pyarrow finds it."""

    name: str
    path: str
    system: fs.FileSystem


def sources_of(names: Iterable[str], out: str, on_skip: Callable[[str], object]) -> list[Source]:
    """Find the files of rows: files, folders with those in them, and addresses such as `s3://bucket/folder`.

    Args:
        names: files, folders and addresses.
        out: the output folder, which must not hold an input nor lie in one.
        on_skip: called with each file of a folder that is of another kind.

    Raises:
        InputError: a name leads nowhere, or to a folder without such files.
        SettingsError: a file is of another kind, or the output and an input lie in each other.
    """
    written = place_of(*located(out)) + "/"
    found: dict[str, Source] = {}
    for name in names:
        system, path = located(name)
        read = place_of(system, path) + "/"
        if written.startswith(read) or read.startswith(written):
            raise SettingsError(
                f"one of the output {out} and the input {name} lies in the other, so that a run would read its own "
                "rows: choose another folder"
            )
        for source in _sources_in(name, system, path, on_skip):
            found[place_of(system, source.path)] = source
    if not found:
        raise InputError("there is no input: give files or folders")
    return list(found.values())


def place_of(system: fs.FileSystem, path: str) -> str:
    """Where a file or folder is, however it was named."""
    return f"{system.type_name}:{path.rstrip('/')}"


def located(name: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or an address, and the path in it, without links.

    Raises:
        InputError: pyarrow knows no such file system, or it cannot be reached.
    """
    try:
        system, path = fs.FileSystem.from_uri(name if "://" in name else Path(os.path.realpath(name)).as_uri())
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{name} cannot be reached: {error}") from error
    return system, path


def _sources_in(name: str, system: fs.FileSystem, path: str, on_skip: Callable[[str], object]) -> Iterator[Source]:
    try:
        kind = system.get_file_info(path).type
        is_folder = kind == fs.FileType.Directory
        inside = system.get_file_info(fs.FileSelector(path, recursive=True)) if is_folder else []
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{name} cannot be looked up: {error}") from error
    if kind == fs.FileType.NotFound:
        raise NoTexts(f"{name} does not exist")
    if not is_folder and not path.lower().endswith(SUFFIXES):
        raise SettingsError(
            f"{name} is neither a .jsonl nor a .parquet file, which a run on a cluster reads: "
            "use dgmark.detect_file for documents"
        )
    files = sorted(one.path for one in inside if one.is_file) if is_folder else [path]
    if not any(file.lower().endswith(SUFFIXES) for file in files):
        raise NoTexts(f"the folder {name} holds no {' or '.join(SUFFIXES)} file")
    for file in files:
        named = name.rstrip("/") + file[len(path.rstrip("/")) :]
        if file.lower().endswith(SUFFIXES):
            yield Source(named, file, system)
        else:
            on_skip(named)


class TextSource(Datasource):
    """The rows of files as tables of `ITEMS`, one task a file."""

    def __init__(self, sources: list[Source], reading: Reading) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sources, self._reading = sources, reading

    def estimate_inmemory_data_size(self) -> int | None:
        """Unknown before the files are read."""
        return None

    def get_read_tasks(
        self,
        parallelism: int,  # noqa: ARG002 (Ray's interface)
        per_task_row_limit: int | None = None,
        data_context: DataContext | None = None,  # noqa: ARG002
    ) -> list[Any]:
        """One `ReadTask` a file."""
        return [
            ReadTask(
                partial(_tables_of, source, self._reading),
                BlockMetadata(num_rows=None, size_bytes=None, input_files=(source.name,), exec_stats=None),
                schema=ITEMS,
                per_task_row_limit=per_task_row_limit,
            )
            for source in self._sources
        ]


def _tables_of(source: Source, reading: Reading) -> Iterator[arrow.Table]:
    """The rows of one file, a chunk at a time."""
    items = map(reading.item_of, _rows_of(source, reading))
    place, settings = place_of(source.system, source.path), json.dumps(reading.run, sort_keys=True)
    rows = (_row(place, number, item, settings) for number, item in enumerate(items))
    for chunk in chunks_of(rows, lambda row: len(row["item"])):
        yield arrow.Table.from_pylist(chunk, schema=ITEMS)


def _row(file: str, place: int, item: Item | BadRow, settings: str) -> Row:
    held = {"content": item.content} if isinstance(item, Item) else {"error": item.error}
    # the same row of the same file with the same text under the same settings, in each run
    known_by = json.dumps([held.get("content"), settings, file, place])
    return {
        "row": hashlib.sha256(known_by.encode()).hexdigest()[:32],
        "place": place,
        "item": json.dumps({"row_id": item.row_id, **held}),
    }


def _rows_of(source: Source, reading: Reading) -> Iterator[Row | BadRow]:
    try:
        with source.system.open_input_file(source.path) as file:
            if source.path.lower().endswith(".parquet"):
                yield from parquet_rows(file, source.name, reading.column)
            else:
                lines = bounded_lines(io.BufferedReader(file, _READ_BYTES), max_line_bytes(reading.max_chars))
                yield from parse_rows(lines, source.name)
    except InputError as error:
        yield unreadable(source.name, error)
    except (OSError, arrow.ArrowException) as error:
        yield BadRow(source.name, f"cannot be read: {error}")


def item_in(row: Row) -> Item | BadRow:
    """The text, ids or error of a row of `ITEMS`."""
    fields = json.loads(row["item"])
    return Item(**fields) if "content" in fields else BadRow(**fields)
