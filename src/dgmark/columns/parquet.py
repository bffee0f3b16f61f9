"""A Parquet file in, the same rows with more columns in another one out, part by part; a later run goes on.

Finished parts stand in a folder beside the target, `TARGET.parts`, until the target is written whole from them. Places
are paths, or URLs of fsspec (`s3://`, `gs://`, `memory://`). The source is only read. Knows nothing of the added
columns.
"""

import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from dgmark.arguments import shown
from dgmark.columns.own_ids import check_own_ids
from dgmark.errors import InputError, MissingExtra, NoTexts, ResumeMismatch
from dgmark.extras import needed_extra
from dgmark.files.outputs import check_output
from dgmark.rows.row_file import lock

# rows of a part, which is lost if a run is stopped, and is in memory at a time
PART_ROWS = 1024
# rows of a row group of the target, and bytes of these in memory, of which the first that is reached counts
_GROUP_ROWS, _GROUP_BYTES = 65_536, 2**25
# bytes of a column that are read at a time, if its pages are no larger
_BUFFER = 2**20
_SUFFIXES = (".parquet", ".pq")
# the field of the target's metadata that holds what it was made with
_METADATA = b"dgmark"
_STATE = "state.json"


def is_parquet(place: str | os.PathLike[str]) -> bool:
    """Whether a path or URL names a Parquet file, by its ending."""
    return str(place).lower().endswith(_SUFFIXES)


@dataclass(frozen=True)
class ParquetRun:
    """What to make of a Parquet file.

    Attributes:
        source: the file, which is only read.
        target: the file to write.
        made_with: everything that the added columns depend on except the rows, as plain JSON values. A target or parts
            that were made with anything else are refused.
        error: the name of the added column that holds the error of a row.
        part_rows: rows of a part.
    """

    source: str
    target: str
    made_with: dict[str, Any]
    error: str = "error"
    part_rows: int = PART_ROWS

    def write(self, work: Callable[[Iterator[Any]], Iterator[Any]], on_part: Callable[[Any, int], object]) -> bool:
        """Write the target, unless it is there.

        Args:
            work: turns the batches of rows (RecordBatches of pyarrow) that are still to be done into those of the
                target, in order.
            on_part: called with each batch of the target, finished before or now, and the number of all rows.

        Returns:
            Whether anything was left to do.

        Raises:
            NoTexts: the source cannot be read, or is no Parquet file.
            ResumeMismatch: the target, or its parts, were made from another file or with other settings.
            InputError: the target cannot be written any further; finished parts are kept.
            MissingExtra: pyarrow, or what reads such URLs, is not installed.
        """
        if "://" not in self.target:
            check_output(Path(self.target), [self.source])
        with self._read_source() as file:
            rows = file.metadata.num_rows
            state = {**self.made_with, "rows": rows, "columns": str(file.schema_arrow)}
            filesystem, target = located(self.target)
            if filesystem.exists(target):
                self._check_target(state, on_part)
                return False
            with _writing(self.target), self._parts(filesystem, target, state) as folder:
                self._make_parts(file, filesystem, folder, work, lambda batch: on_part(batch, rows))
                self._join_parts(filesystem, folder, target, state)
        return True

    def check_ids(self, column: str) -> None:
        """Refuse a source of which two rows have the same id, see `check_own_ids`.

        Raises:
            NoTexts: the source cannot be read, or is no Parquet file.
            InputError: two rows have the same id.
        """
        with self._read_source() as file:
            if column in file.schema_arrow.names:  # else the first batch says so, and which columns there are
                check_own_ids(lambda: (batch.column(column) for batch in self._batches(file, 2**16, [column])))

    @contextmanager
    def _read_source(self) -> Iterator[Any]:
        """Open the source.

        Raises:
            NoTexts: it cannot be read, or is no Parquet file.
        """
        with needed_extra("columns", "reading Parquet files", "pyarrow"):
            import pyarrow.parquet  # noqa: F401
        with _opened(self.source) as source:
            try:
                file = parquet_file(source)
            except Exception as error:  # pyarrow has several, and those of file systems
                raise NoTexts(f"{self.source} is no Parquet file that can be read: {error}") from None
            yield file

    def _batches(self, file: Any, rows: int, columns: list[str] | None = None) -> Iterator[Any]:
        """The rows of the source, so many at a time at most.

        Raises:
            NoTexts: the file is damaged, or cannot be read any further.
        """
        import pyarrow as pa

        batches = file.iter_batches(rows, columns=columns, use_threads=False)
        try:
            yield from batches
        except (pa.ArrowException, OSError) as error:
            raise NoTexts(f"{self.source} cannot be read any further: {error}") from error

    def _check_target(self, state: dict[str, Any], on_part: Callable[[Any, int], object]) -> None:
        """Refuse a target that was made with anything else, and count the rows of one that was not."""
        with _opened(self.target) as there:
            try:
                file = parquet_file(there)
                found = json.loads((file.schema_arrow.metadata or {}).get(_METADATA, b"null"))
            except Exception:
                found, file = None, None
            self._check_state(found, state, self.target)
            assert file is not None
            for batch in file.iter_batches(self.part_rows, use_threads=False):
                on_part(batch, file.metadata.num_rows)

    def _check_state(self, found: Any, state: dict[str, Any], place: str) -> None:
        if not isinstance(found, dict):
            raise ResumeMismatch(f"{place} exists, and dgmark did not write it: choose another --out, or delete it")
        different = [name for name in state if found.get(name) != state[name]]
        if different:
            raise ResumeMismatch(
                f"{place} was made by another run, which differs in {', '.join(different)}; choose another --out, or "
                "delete it to start again"
            )

    @contextmanager
    def _parts(self, filesystem: Any, target: str, state: dict[str, Any]) -> Iterator[str]:
        """The folder of the parts, of this run or of an earlier one that was stopped; locked where files can be."""
        folder = f"{target}.parts"
        filesystem.makedirs(folder, exist_ok=True)
        local = "://" not in self.target
        with open(os.path.join(folder, ".lock"), "ab") if local else nullcontext() as held:
            if held is not None:
                lock(held, Path(self.target))
            file = f"{folder}/{_STATE}"
            if _finished(filesystem, folder):
                self._check_state(json.loads(filesystem.cat_file(file)), state, folder)
            else:
                filesystem.pipe_file(file, json.dumps(state).encode())
            joined = False
            try:
                yield folder
                joined = True
            finally:
                if joined or not _finished(filesystem, folder):
                    filesystem.rm(folder, recursive=True)

    def _make_parts(
        self,
        file: Any,
        filesystem: Any,
        folder: str,
        work: Callable[[Iterator[Any]], Iterator[Any]],
        on_part: Callable[[Any], object],
    ) -> None:
        """Make the parts that are not there yet."""
        import pyarrow as pa

        finished = _finished(filesystem, folder)
        names = set(map(os.path.basename, finished))
        missing: list[str] = []

        def still_to_do() -> Iterator[Any]:
            # one part of no rows has the columns
            empty = [] if file.metadata.num_rows else [pa.RecordBatch.from_pylist([], file.schema_arrow)]
            for number, batch in enumerate(chain(self._batches(file, self.part_rows), empty)):
                if _part(number) not in names:
                    missing.append(_part(number))
                    yield batch

        for name in finished:
            with filesystem.open(name, "rb") as there:
                on_part(read_whole(there))
        for batch in work(still_to_do()):
            _put(filesystem, f"{folder}/{missing.pop(0)}", batch)
            on_part(batch)

    def _join_parts(self, filesystem: Any, folder: str, target: str, state: dict[str, Any]) -> None:
        """Write the target from its parts, whole or not at all."""
        import pyarrow.parquet as pq

        whole = f"{folder}/.whole.{secrets.token_hex(4)}"
        with filesystem.open(whole, "wb") as out:
            writer = None
            for rows in self._row_groups(filesystem, folder):
                if writer is None:
                    metadata = {**(rows.schema.metadata or {}), _METADATA: json.dumps(state).encode()}
                    writer = pq.ParquetWriter(out, rows.schema.with_metadata(metadata))
                writer.write_table(rows.replace_schema_metadata(metadata))
            if writer is not None:
                writer.close()
        filesystem.mv(whole, target)

    def _row_groups(self, filesystem: Any, folder: str) -> Iterator[Any]:
        """The parts in order, several together."""
        import pyarrow as pa

        waiting, rows, size = list[Any](), 0, 0
        for name in _finished(filesystem, folder):
            with filesystem.open(name, "rb") as file:
                waiting.append(part := read_whole(file))
            rows, size = rows + len(part), size + part.nbytes
            if rows >= _GROUP_ROWS or size >= _GROUP_BYTES:
                yield pa.concat_tables(waiting)
                waiting, rows, size = [], 0, 0
        if waiting:
            yield pa.concat_tables(waiting)


def parquet_file(file: Any) -> Any:
    """An open file as one of Parquet. What is read from it is read in pieces.

    By default pyarrow reads all of a row group, which may be all of a file, before its first row.
    """
    import pyarrow.parquet as pq

    return pq.ParquetFile(file, pre_buffer=False, buffer_size=_BUFFER)


def read_whole(file: Any, columns: list[str] | None = None) -> Any:
    """The table in an open file, or these columns of it.

    `pyarrow.parquet.read_table` reads in threads of its own. One that lets go of the file while Python ends ends the
    process with an abort.
    """
    table = parquet_file(file).read(columns, use_threads=False)
    return table if columns is None else table.select(columns)


def _finished(filesystem: Any, folder: str) -> list[str]:
    """The parts in a folder, in order."""
    names = filesystem.ls(folder, detail=False, refresh=True)
    return sorted(name for name in names if is_parquet(name) and not os.path.basename(name).startswith("."))


def _part(number: int) -> str:
    return f"{number:09}.parquet"


def _put(filesystem: Any, name: str, batch: Any) -> None:
    """Write a part, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder, _, base = name.rpartition("/")
    unfinished = f"{folder}/.{base}"
    with filesystem.open(unfinished, "wb") as out:
        pq.write_table(batch if isinstance(batch, pa.Table) else pa.Table.from_batches([batch]), out)
    filesystem.mv(unfinished, name)


@contextmanager
def _writing(target: str) -> Iterator[None]:
    """Say of what the system refuses that finished parts are kept."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{target} cannot be written any further: {error.strerror or error}; the parts that are finished are kept "
            f"in {target}.parts: make room, and run the same command again"
        ) from error


def located(place: str) -> tuple[Any, str]:
    """The file system of a path or URL, and the path in it."""
    with needed_extra("columns", "reading and writing Parquet files", "pyarrow and fsspec"):
        import fsspec
    try:
        filesystem, path = fsspec.core.url_to_fs(place)
    except ImportError as error:
        raise MissingExtra(f"{shown(place)} needs a package that is not installed: {error}") from None
    except ValueError as error:
        raise InputError(f"{shown(place)} is no place that files can be at: {error}") from None
    return filesystem, path


def _opened(place: str) -> Any:
    filesystem, path = located(place)
    try:
        return filesystem.open(path, "rb")
    except OSError as error:
        raise NoTexts(f"{place} cannot be read: {error.strerror or error}; give a Parquet file") from error
