"""A run over files on a cluster, and the folder that it writes: its rows, its errors, and which rows are finished.

    OUT/run.json              what the run is; another run in the same folder is refused
    OUT/rows/kind=done/       finished rows, as Parquet
    OUT/rows/kind=error/      rows that could not be read, scored or made; a later run makes them again
    OUT/finished/             Ray's checkpoint: the rows that a later run skips

Ray writes each part in two phases, so that a part is either whole and in the checkpoint, or made again. Knows nothing
of how a text is scored or made.
"""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.dataset as parquet_files
import ray
from pyarrow import fs
from ray.data.checkpoint import CheckpointConfig
from ray.data.datasource import FileBasedDatasource
from ray.exceptions import RayError

from dgmark.detection.detect_files import Tally
from dgmark.errors import InputError, NoTexts, ResumeMismatch, SettingsError
from dgmark.rows.inputs import bounded_lines, names_of
from dgmark.rows.jsonl import BadRow, Row, parse_rows
from dgmark.rows.row_file import lock
from dgmark.rows.texts import MAX_CHARS, Item, max_line_bytes, parquet_rows, unreadable
from dgmark.rows.workers import chunks_of
from dgmark.scale.cluster import cluster, error_of, workers_of

SUFFIXES = (".jsonl", ".parquet")
_READ_BYTES = 2**20


@dataclass(frozen=True)
class Work:
    """What a run does with texts or prompts.

    Attributes:
        run: what the run is: plain JSON values that its rows depend on.
        item_of: the text, ids or prompt of a row of a file.
        rows_of: the results of items, whose places in their files it also gets; a result without success has an
            `error`. Each process of the cluster has a copy.
        columns: the columns of a result.
        counted: the column whose values are counted.
        batch_size: items that a process works on at a time.
        block_bytes: what a process is given at a time; smaller blocks spread a file over more processes.
        file_rows: rows of a file of results, of which a crash loses one for each writer.
        column: the column or field that holds the texts or prompts.
        max_chars: characters of the longest of them.
        on_gpu: give each process a GPU if the cluster has any.
    """

    run: Row
    item_of: Callable[[Row | BadRow], Item | BadRow]
    rows_of: Callable[[list[Item | BadRow], list[int]], list[Row]]
    columns: dict[str, arrow.DataType]
    counted: str
    batch_size: int
    block_bytes: int
    file_rows: int
    column: str
    max_chars: int = MAX_CHARS
    on_gpu: bool = False


class _FileRows(FileBasedDatasource):
    """The rows of files; a line or file that cannot be read becomes a row with an error.

    `row` names a row of this run, `place` counts the rows of a file from 0, `item` is JSON of an `Item` or a `BadRow`.
    """

    def __init__(self, paths: list[str], work: Work) -> None:
        super().__init__(paths, file_extensions=[*SUFFIXES])
        self.files: list[str] = self._paths()
        self._work = work
        self._settings = json.dumps(work.run, sort_keys=True)

    def _open_input_source(self, filesystem: fs.FileSystem, path: str, **_: Any) -> arrow.NativeFile:
        return filesystem.open_input_file(path)  # Parquet is read from its end

    def _read_stream(self, f: arrow.NativeFile, path: str) -> Iterator[arrow.Table]:
        items = map(self._work.item_of, self._rows(f, path))
        rows = (self._row(path, place, item) for place, item in enumerate(items))
        for chunk in chunks_of(rows, lambda row: len(row["item"])):
            yield arrow.Table.from_pylist(chunk)

    def _rows(self, file: arrow.NativeFile, path: str) -> Iterator[Row | BadRow]:
        try:
            if path.lower().endswith(".parquet"):
                yield from parquet_rows(file, path, self._work.column)
            else:
                lines = bounded_lines(io.BufferedReader(file, _READ_BYTES), max_line_bytes(self._work.max_chars))
                yield from parse_rows(lines, path)
        except InputError as error:
            yield unreadable(path, error)

    def _row(self, path: str, place: int, item: Item | BadRow) -> Row:
        held = {"content": item.content} if isinstance(item, Item) else {"error": item.error}
        # the same for the same text in the same place of the same file under the same settings, in each run
        known_by = json.dumps([held.get("content"), self._settings, path, place])
        row = hashlib.sha256(known_by.encode()).hexdigest()[:32]
        return {"row": row, "place": place, "item": json.dumps({"row_id": item.row_id, **held})}


class Worker:
    """Works on batches in one process of the cluster."""

    def __init__(self, work: "ray.ObjectRef[Work]") -> None:
        self._work: Work = ray.get(work)
        self._schema = arrow.schema(self._work.columns | dict.fromkeys(("row", "kind", "error"), arrow.string()))

    def __call__(self, batch: arrow.Table) -> arrow.Table:
        """Work on a table of `_FileRows`."""
        given = batch.to_pylist()
        fields = [json.loads(row["item"]) for row in given]
        items = [Item(**one) if "content" in one else BadRow(**one) for one in fields]
        made = self._work.rows_of(items, [row["place"] for row in given])
        for source, row in zip(given, made, strict=True):
            row |= {"row": source["row"], "kind": "done"}
            if "error" in row:  # under this name no row of a file is finished
                row |= {"row": f"error:{source['row']}", "kind": "error"}
        printable = [{name: _printable(value) for name, value in row.items()} for row in made]
        return arrow.Table.from_pylist(printable, schema=self._schema)


def _printable(value: object) -> object:
    """Escape halves of surrogate pairs, which Arrow cannot hold."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _resolved(name: str) -> str:
    """An address as it is, and a path without links."""
    return name.rstrip("/") if "://" in name else os.path.realpath(name)


def _files_of(inputs: list[str], out: str, work: Work) -> _FileRows:
    for name in inputs:
        read, written = f"{_resolved(name)}/", f"{_resolved(out)}/"
        if written.startswith(read) or read.startswith(written):
            raise SettingsError(
                f"one of the output {out} and the input {name} lies in the other, so that a run would read its own "
                "rows: choose another folder"
            )
    try:
        found = _FileRows(list(map(_resolved, inputs)), work)
    except (OSError, ValueError) as error:  # Arrow's errors are either
        raise NoTexts(
            f"{', '.join(inputs)} cannot be read: {error}; give files that end in {' or '.join(SUFFIXES)}, or folders "
            "of them"
        ) from error
    if len({*found.files}) < len(found.files):
        raise SettingsError("a file is named twice, such as by itself and by its folder: name it once")
    return found


@contextmanager
def _locked(out: str, system: fs.FileSystem, path: str, run: Row) -> Iterator[None]:
    """Take an output folder up, new or begun, and keep other runs out of it as long as the block runs.

    Rows with an error are removed, to be made again. Object stores cannot lock, so there other runs are kept out only
    if they are of other settings.

    Raises:
        ResumeMismatch: the folder holds another run, or files of others.
        InputError: another run is writing the folder, or it cannot be written.
    """
    file = f"{path}/run.json"
    with ExitStack() as locks:
        try:
            inside = {one.base_name for one in system.get_file_info(fs.FileSelector(path, allow_not_found=True))}
            if inside and "run.json" not in inside:
                raise ResumeMismatch(f"{out} holds files, but no run of dgmark: choose another folder")
            system.create_dir(path, recursive=True)
            if isinstance(system, fs.LocalFileSystem):
                lock(locks.enter_context(open(file, "a+b", buffering=0)), Path(file))
            _check_run(out, system.open_input_stream(file).read() if inside else b"", run)
            with system.open_output_stream(file) as written:
                written.write(json.dumps(run, indent=2).encode() + b"\n")
            system.delete_dir_contents(f"{path}/rows/kind=error", missing_dir_ok=True)
        except (OSError, arrow.ArrowException) as error:
            raise InputError(f"{out} cannot be written: {error}; choose another folder") from error
        yield


def _check_run(out: str, content: bytes, run: Row) -> None:
    """Refuse a `run.json` of another run; one that ended before it wrote has left an empty file."""
    try:
        held = json.loads(content) if content else run
    except ValueError:
        held = None
    other = held if isinstance(held, dict) else {}
    if held != run:
        different = sorted(name for name in {*other, *run} if other.get(name) != run.get(name))
        raise ResumeMismatch(f"{out} holds another run, which differs in {', '.join(different)}; choose another folder")


def run_files(work: Work, inputs: str | Iterable[str], out: str, address: str, workers: int | None) -> Tally:
    """Do the work that is missing in a folder.

    Args:
        work: what to do.
        inputs: .jsonl and .parquet files, and folders of these: paths that all nodes see, or addresses such as
            `s3://bucket/folder`.
        out: the folder to write, a path that all nodes see or an address.
        address: of the Ray cluster; see `cluster`.
        workers: number of processes; by default as many as the cluster has room for.

    Returns:
        The counts of all rows of the folder, including those of earlier runs.

    Raises:
        SettingsError: an input lies in the output, or is named twice, or no cluster answers.
        InputError: an input cannot be read, the folder cannot be written, another run is writing it, or Ray gave up.
        ResumeMismatch: the folder holds another run.
        DgmarkError: the work raised it.
    """
    try:
        system, path = fs.FileSystem.from_uri(_resolved(out))
    except (OSError, arrow.ArrowException) as error:
        raise InputError(f"{out} cannot be reached: {error}") from error
    checkpoint = CheckpointConfig(
        "row", f"{path}/finished", delete_checkpoint_on_success=False, override_filesystem=system
    )
    run = {"version": 1, **json.loads(json.dumps(work.run))}
    tally = Tally()
    with cluster(address, checkpoint, work.block_bytes):
        files = _files_of(names_of(inputs), out, work)
        with _locked(out, system, path, run):
            tally.resumed = sum(len(batch) for batch in _written(system, path, "row"))
            items = ray.data.read_datasource(files, override_num_blocks=len(files.files))
            made = items.map_batches(
                Worker,
                fn_constructor_args=(ray.put(work),),
                batch_size=work.batch_size,
                batch_format="pyarrow",
                **workers_of(workers, on_gpu=work.on_gpu),
            )
            try:
                made.write_parquet(
                    f"{path}/rows", filesystem=system, partition_cols=["kind"], min_rows_per_file=work.file_rows
                )
            except (RayError, OSError, arrow.ArrowException) as error:
                raise error_of(error) from None
    for batch in _written(system, path, work.counted, "id", "error"):
        for value, row_id, problem in zip(*batch.to_pydict().values(), strict=True):
            tally.count_row({"verdict": value} if problem is None else {"id": row_id, "error": problem})
    return tally


def _written(system: fs.FileSystem, path: str, *columns: str) -> Iterator[arrow.RecordBatch]:
    """Some columns of the rows that a folder holds."""
    place = f"{path}/rows"
    if system.get_file_info(place).type == fs.FileType.Directory:
        rows = parquet_files.dataset(place, filesystem=system, format="parquet", partitioning="hive")
        yield from rows.to_batches(columns=list(columns))
