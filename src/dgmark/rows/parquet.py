"""Read Parquet a page at a time, at paths or URLs of fsspec (`s3://`, `gs://`, `memory://`)."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dgmark.arguments.checks import shown
from dgmark.arguments.column_names import check_named
from dgmark.arguments.contents import check_texts
from dgmark.errors import InputError, MissingExtra, NoTexts, needed_extra
from dgmark.rows.item import Row
from dgmark.rows.tables import ID_COLUMN, RowReading

PARQUET_SUFFIXES = (".parquet", ".pq")
_BATCH_ROWS = 1024
# bytes of a column that are read at a time, if its pages are no larger
_BUFFER = 2**20
# what file systems know of the version of a file
_VERSION = ("size", "mtime", "etag", "ETag", "LastModified", "last_modified", "updated")


def is_parquet(place: str | os.PathLike[str]) -> bool:
    """Whether a path or URL names a Parquet file, by its ending."""
    return str(place).lower().endswith(PARQUET_SUFFIXES)


def is_url(place: str | os.PathLike[str]) -> bool:
    """Whether a place is a URL, not a path."""
    return "://" in str(place)


def located(place: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it.

    Raises:
        MissingExtra: fsspec, or what reads such URLs, is not installed.
        InputError: it is not a place that files can be at.
    """
    with needed_extra("columns", "reading and writing Parquet files", "pyarrow and fsspec"):
        import fsspec
        import pyarrow.parquet  # noqa: F401
    try:
        filesystem, path = fsspec.core.url_to_fs(place)
    except ImportError as error:
        raise MissingExtra(f"{shown(place)} needs a package that is not installed: {error}") from None
    except ValueError as error:
        raise InputError(f"{shown(place)} is not a place that files can be at: {error}") from None
    return filesystem, path


@contextmanager
def open_parquet(place: str) -> Iterator[Any]:
    """Open a file as a `ParquetFile` of pyarrow; a NoTexts if it cannot be read, or is not Parquet."""
    with opened(place) as file:
        import pyarrow.parquet as pq

        try:
            # by default pyarrow reads all of a row group, which may be all of a file, before its first row
            parquet = pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER)
        except Exception as error:  # pyarrow has several, and those of file systems
            raise NoTexts(f"{place} is not a Parquet file that can be read: {error}") from None
        yield parquet


def opened(place: str) -> Any:
    """Open a file to read its bytes; a NoTexts if it cannot be read."""
    return _asked(place, lambda filesystem, path: filesystem.open(path, "rb"))


def version_of(place: str) -> Row:
    """The size of a file, and what its file system says of its last change; a NoTexts if it cannot be read."""
    known = _asked(place, lambda filesystem, path: filesystem.info(path))
    return {name: str(known[name]) for name in _VERSION if name in known}


def _asked(place: str, ask: Callable[[Any, str], Any]) -> Any:
    filesystem, path = located(place)
    try:
        return ask(filesystem, path)
    except OSError as error:
        raise NoTexts(f"{place} cannot be read: {error.strerror or error}; give a Parquet file") from error


def batches_of(place: str, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """The rows of a file, or some columns of them, as RecordBatches of pyarrow of about a thousand rows each.

    Raises:
        NoTexts: the file is damaged, or cannot be read.
    """
    with open_parquet(place) as file:
        import pyarrow as pa

        # in threads of its own, pyarrow lets go of the file while Python ends, which aborts the process
        batches = file.iter_batches(_BATCH_ROWS, columns=columns, use_threads=False)
        try:
            yield from batches
        except (pa.ArrowException, OSError) as error:
            raise NoTexts(f"{place} cannot be read any further: {error}") from error


def values_in(places: Iterable[str], columns: Sequence[str], prefix: str = "") -> Iterator[Row]:
    """Some columns of the rows of files; of lists their lengths. The `id` of each is its place, as "row 7".

    Args:
        places: the files.
        columns: the names of the columns without the prefix.
        prefix: what their names begin with.
    """
    number = 0
    for batch in (batch for place in places for batch in batches_of(place, [prefix + name for name in columns])):
        import pyarrow.compute as pc

        values = [batch.column(prefix + name) for name in columns]
        values = [pc.list_value_length(column) if "list" in str(column.type) else column for column in values]
        for row in zip(*(column.to_pylist() for column in values), strict=True):
            yield {"id": f"row {number}"} | dict(zip(columns, row, strict=True))
            number += 1


def parquet_rows(place: str, reading: RowReading, ids_column: str | None = None) -> Iterator[Row]:
    """The rows of a file, with those of their columns that are read.

    Args:
        place: the file.
        reading: the columns of texts (or of lists of token ids), ids and keys.
        ids_column: a column of token ids that is read where the file has no column of texts, or if ids are preferred.

    Raises:
        NoTexts: the file is damaged, or cannot be read.
        InputError: there is no such column, or it holds neither texts nor ids.
    """
    column = reading.column
    with open_parquet(place) as file:
        schema = file.schema_arrow
    alone = ids_column in schema.names and column not in schema.names
    contents = [] if alone else [column]
    contents += [str(ids_column)] if alone or (reading.prefer_ids and ids_column in schema.names) else []
    of_ids = reading.id_column or (ID_COLUMN if schema.names.count(ID_COLUMN) == 1 else None)
    names = list(dict.fromkeys(name for name in (*contents, of_ids, reading.key_column) if name is not None))
    for name in names:
        check_named(schema.names, name, place)
    for name in contents:
        check_texts(schema.empty_table().column(name), name)
    for batch in batches_of(place, names):
        for row in zip(*(_values_of(batch.column(name)) for name in names), strict=True):
            yield dict(zip(names, row, strict=True))


def _values_of(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:  # Arrow does not look at the bytes of what it calls a string
        values = list(column)
    return values
