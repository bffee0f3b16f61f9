"""A run over files on a cluster, and the folder that it writes: its rows, its errors, and which rows are finished.

    OUT/run.json              what the run is; another run in the same folder is refused
    OUT/rows/kind=done/       finished rows, as Parquet
    OUT/rows/kind=error/      rows that could not be read, scored or made; a later run makes them again
    OUT/finished/             Ray's checkpoint: the rows that a later run skips

Ray writes each part in two phases, so that a part is either whole and in the checkpoint, or made again.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.dataset as parquet_files
import ray
from pyarrow import fs
from ray.exceptions import RayError

from dgmark.detection.detect_files import Tally
from dgmark.errors import InputError, ResumeMismatch
from dgmark.rows.inputs import names_of
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.row_file import lock
from dgmark.rows.texts import Item
from dgmark.scale.cluster import cluster, error_of, workers_of
from dgmark.scale.source import Reading, TextSource, item_in, located, sources_of


@dataclass(frozen=True)
class Work:
    """What a run does with texts or prompts.

    Attributes:
        reading: how they are read.
        rows_of: makes the results of items from these and their places in their files; one without success has an
            `error`. Each process of the cluster has a copy.
        columns: the columns of a result.
        counted: the column whose values are counted.
        batch_size: items that a process works on at a time.
        block_bytes: what a process is given at a time; smaller blocks spread a file over more processes.
        file_rows: rows of a file of results, of which a crash loses one for each writer.
        on_gpu: give each process a GPU if the cluster has any.
    """

    reading: Reading
    rows_of: Callable[[list[Item | BadRow], list[int]], list[Row]]
    columns: dict[str, arrow.DataType]
    counted: str
    batch_size: int
    block_bytes: int
    file_rows: int
    on_gpu: bool = False


class Worker:
    """Works on batches in one process of the cluster. Its name is what Ray's bars and logs show."""

    def __init__(self, work: "ray.ObjectRef[Work]") -> None:
        self._work: Work = ray.get(work)
        # and those by which a later run knows whether a row is finished
        self._schema = arrow.schema(self._work.columns | dict.fromkeys(("row", "kind", "error"), arrow.string()))

    def __call__(self, batch: arrow.Table) -> arrow.Table:
        """The results of a table of `ITEMS`, in its order."""
        given = batch.to_pylist()
        made = self._work.rows_of([item_in(row) for row in given], [row["place"] for row in given])
        for row, source in zip(made, given, strict=True):
            if "error" in row:  # under this name no row of `ITEMS` is finished
                row |= {"row": f"error:{source['row']}", "kind": "error"}
            else:
                row |= {"row": source["row"], "kind": "done"}
        printable = [{name: _printable(value) for name, value in row.items()} for row in made]
        return arrow.Table.from_pylist(printable, schema=self._schema)


def _printable(value: Any) -> Any:
    """A text with halves of surrogate pairs, which Arrow's tables cannot hold, escaped; any other value as it is."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


@contextmanager
def taken(out: str, run: dict[str, Any]) -> Iterator[tuple[fs.FileSystem, str]]:
    """Take an output folder up, new or begun, and keep other runs out of it as long as the block runs.

    Rows with an error are removed, to be made again. A run that has no rows yet gives way to another one. Object stores
    cannot lock, so there other runs are kept out only if they are of other settings.

    Args:
        out: the folder: a path that all nodes see, or an address such as `s3://bucket/folder`.
        run: what the run is: plain JSON values that its rows depend on.

    Yields:
        The file system of the folder, and its path there.

    Raises:
        ResumeMismatch: the folder holds another run, or files of others.
        InputError: another run is writing the folder, or it cannot be written.
    """
    system, path = located(out)
    file, run = f"{path}/run.json", {"version": 1, **run}
    with ExitStack() as locks:
        try:
            inside = {one.base_name for one in system.get_file_info(fs.FileSelector(path, allow_not_found=True))}
            if inside and "run.json" not in inside:
                raise ResumeMismatch(f"{out} holds files, but no run of dgmark: choose another folder")
            system.create_dir(path, recursive=True)
            if isinstance(system, fs.LocalFileSystem):
                lock(locks.enter_context(open(file, "a+b", buffering=0)), Path(file))
            content = system.open_input_stream(file).read() if inside else b""
            different = _differences(out, content, run)
            if different and _has_rows(system, path):
                raise ResumeMismatch(
                    f"{out} holds another run, which differs in {', '.join(different)}; "
                    "choose another folder, or delete the folder to start again"
                )
            with system.open_output_stream(file) as written:
                written.write(json.dumps(run, indent=2).encode() + b"\n")
            system.delete_dir_contents(f"{path}/rows/kind=error", missing_dir_ok=True)
        except (OSError, arrow.ArrowException) as error:
            raise InputError(f"{out} cannot be written: {error}; choose another folder") from error
        yield system, path


def _differences(out: str, content: bytes, run: dict[str, Any]) -> list[str]:
    """In what the run of a `run.json` differs from this one; a run that ended before it wrote leaves an empty file.

    Raises:
        ResumeMismatch: another program wrote it.
    """
    try:
        held = json.loads(content) if content else run
    except ValueError:
        held = None
    if not isinstance(held, dict) or not {"version", "command"} <= held.keys():
        raise ResumeMismatch(f"{out}/run.json is no file of dgmark: choose another folder")
    return sorted(name for name in {*held, *run} if held.get(name) != run.get(name))


def _has_rows(system: fs.FileSystem, path: str) -> bool:
    inside = system.get_file_info(fs.FileSelector(f"{path}/rows", allow_not_found=True, recursive=True))
    return any(file.is_file for file in inside)


def rows_in(system: fs.FileSystem, path: str) -> parquet_files.Dataset | None:
    """The rows that a folder holds; None if there are none."""
    if not _has_rows(system, path):
        return None
    return parquet_files.dataset(f"{path}/rows", filesystem=system, format="parquet", partitioning="hive")


def run_files(work: Work, inputs: str | Iterable[str], out: str, address: str, workers: int | None) -> Tally:
    """Do the work that is missing in a folder.

    Args:
        work: what is done with each row.
        inputs: .jsonl and .parquet files, and folders of these: paths that all nodes see, or addresses such as
            `s3://bucket/folder`.
        out: the folder to write, a path that all nodes see or an address.
        address: of the Ray cluster; see `cluster`.
        workers: number of processes; by default as many as the cluster has room for.

    Returns:
        The counts of all rows of the folder, including those of earlier runs.

    Raises:
        SettingsError: an input is of another kind, or no cluster answers.
        InputError: an input does not exist, the folder cannot be written, another run is writing it, or Ray gave up.
        ResumeMismatch: the folder holds another run.
        DgmarkError: the work raised it.
    """
    tally = Tally()
    sources = sources_of(names_of(inputs), out, tally.skipped.append)
    with taken(out, work.reading.run) as (system, path), cluster(address, system, f"{path}/finished", work.block_bytes):
        held = rows_in(system, path)
        tally.resumed = held.count_rows() if held else 0
        items = ray.data.read_datasource(TextSource(sources, work.reading), override_num_blocks=len(sources))
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
    written = rows_in(system, path)
    for batch in written.to_batches(columns=[work.counted, "id", "error"]) if written else ():
        for value, row_id, problem in zip(*batch.to_pydict().values(), strict=True):
            tally.count_row({"verdict": value} if problem is None else {"id": row_id, "error": problem})
    return tally
