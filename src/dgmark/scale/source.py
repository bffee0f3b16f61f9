"""Files of rows as a Ray dataset: JSON Lines and Parquet, on any file system that pyarrow reads.

A line or file that cannot be read becomes a row with an `error`, so that one bad file does not end a run over many.
"""

import hashlib
import io
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
from dgmark.rows.jsonl import BadRow, Row, parse_rows, sha256_of
from dgmark.rows.texts import Item, max_line_bytes, parquet_rows, unreadable

SUFFIXES = (".jsonl", ".parquet")
# what a dataset of texts or prompts holds: `row` names a row of this run, `place` counts the rows of a file from 0
ITEMS = arrow.schema(
    [
        ("row", arrow.string()),
        ("id", arrow.string()),
        ("place", arrow.int64()),
        ("text", arrow.large_string()),
        ("token_ids", arrow.large_list(arrow.int64())),
        ("error", arrow.string()),
    ]
)
_ROWS, _BLOCK_BYTES, _READ_BYTES = 64, 2**24, 2**20


@dataclass(frozen=True)
class Source:
    """One file of rows: its name in messages and ids, and where pyarrow finds it."""

    name: str
    path: str
    system: fs.FileSystem

    @property
    def place(self) -> str:
        """Where the file is, however it was named."""
        return _place(self.system, self.path)


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
    written = _place(*located(out)) + "/"
    found: dict[str, Source] = {}
    for name in names:
        read = _place(*located(name)) + "/"
        if written.startswith(read) or read.startswith(written):
            raise SettingsError(
                f"one of the output {out} and the input {name} lies in the other, so that a run would read its own "
                "rows: choose another folder"
            )
        found |= {source.place: source for source in _sources_in(name, on_skip)}
    if not found:
        raise InputError("there is no input: give files or folders")
    return list(found.values())


def _place(system: fs.FileSystem, path: str) -> str:
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


def _sources_in(name: str, on_skip: Callable[[str], object]) -> Iterator[Source]:
    system, path = located(name)
    try:
        about = system.get_file_info(path)
        inside = (
            system.get_file_info(fs.FileSelector(path, recursive=True)) if about.type == fs.FileType.Directory else []
        )
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{name} cannot be looked up: {error}") from error
    if about.type == fs.FileType.NotFound:
        raise NoTexts(f"{name} does not exist")
    if about.type != fs.FileType.Directory:
        if not path.lower().endswith(SUFFIXES):
            raise SettingsError(
                f"{name} is neither a .jsonl nor a .parquet file, which a run on a cluster reads: "
                "use dgmark.detect_file for documents"
            )
        yield Source(name, path, system)
        return
    files = sorted(one.path for one in inside if one.is_file)
    named = {file: name.rstrip("/") + file[len(path.rstrip("/")) :] for file in files}
    read = [file for file in files if file.lower().endswith(SUFFIXES)]
    if not read:
        raise NoTexts(f"the folder {name} holds no {' or '.join(SUFFIXES)} file")
    for file in sorted({*files} - {*read}):
        on_skip(named[file])
    for file in read:
        yield Source(named[file], file, system)


class TextSource(Datasource):
    """The rows of files, one task a file: `read` gives the tables of `ITEMS` in each."""

    def __init__(self, sources: list[Source], read: Callable[[Source], Iterator[arrow.Table]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sources, self._read = sources, read

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
                partial(self._read, source),
                BlockMetadata(num_rows=None, size_bytes=None, input_files=(source.name,), exec_stats=None),
                schema=ITEMS,
                per_task_row_limit=per_task_row_limit,
            )
            for source in self._sources
        ]


def tables_of(
    source: Source, *, item: Callable[[Row | BadRow], Item | BadRow], settings: str, column: str, max_chars: int
) -> Iterator[arrow.Table]:
    """The rows of one file as tables of 64 rows, or fewer if they are long.

    Args:
        source: the file.
        item: the text, ids or prompt of a row.
        settings: hash of the run's settings, a part of `row`.
        column: the column that holds the texts.
        max_chars: characters of the longest text.
    """
    rows: list[Row] = []
    size = 0
    for place, one in enumerate(_items(source, item, column, max_chars)):
        rows.append(_row(source.place, place, one, settings))
        size += len(rows[-1]["text"] or ()) + 8 * len(rows[-1]["token_ids"] or ())
        if len(rows) == _ROWS or size > _BLOCK_BYTES:
            yield arrow.Table.from_pylist(rows, schema=ITEMS)
            rows, size = [], 0
    if rows:
        yield arrow.Table.from_pylist(rows, schema=ITEMS)


def _row(file: str, place: int, item: Item | BadRow, settings: str) -> Row:
    if isinstance(item, Item) and isinstance(item.content, str) and item.content != _printable(item.content):
        item = BadRow(
            item.row_id, "the text holds half of a surrogate pair, which Arrow's tables cannot: mend the text"
        )
    content = item.content if isinstance(item, Item) else None
    parts = ["" if content is None else sha256_of(content), settings, file, str(place)]
    return {
        # the same row of the same file with the same text under the same settings, in each run
        "row": hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32],
        "id": _printable(item.row_id),
        "place": place,
        "text": content if isinstance(content, str) else None,
        "token_ids": content if isinstance(content, list) else None,
        "error": _printable(item.error) if isinstance(item, BadRow) else None,
    }


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _items(
    source: Source, item: Callable[[Row | BadRow], Item | BadRow], column: str, max_chars: int
) -> Iterator[Item | BadRow]:
    try:
        with source.system.open_input_file(source.path) as file:
            if source.path.lower().endswith(".parquet"):
                yield from map(item, parquet_rows(file, source.name, column))
            else:
                lines = bounded_lines(io.BufferedReader(file, _READ_BYTES), max_line_bytes(max_chars))
                yield from map(item, parse_rows(lines, source.name))
    except InputError as error:
        yield unreadable(source.name, error)
    except (OSError, arrow.ArrowException) as error:
        yield BadRow(source.name, f"cannot be read: {error}")


def item_in(row: Row) -> Item | BadRow:
    """The text, ids or error of a row of `ITEMS`."""
    if row["error"] is not None:
        return BadRow(row["id"], row["error"])
    return Item(row["id"], row["text"] if row["text"] is not None else row["token_ids"])
