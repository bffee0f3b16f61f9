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
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.dataset as parquet_files
import ray
from pyarrow import fs
from ray.data import Dataset
from ray.data.checkpoint import CheckpointConfig
from ray.exceptions import RayError

from dgmark.detection.detect_files import Tally
from dgmark.errors import InputError, ResumeMismatch
from dgmark.rows.inputs import names_of
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.row_file import lock
from dgmark.scale.cluster import cluster, error_of
from dgmark.scale.source import Source, TextSource, located, sources_of

KIND, DONE, ERROR, ROW = "kind", "done", "error", "row"


def labels(source: Row, *, error: bool) -> Row:
    """The columns of a result by which a later run knows whether its row in `ITEMS` is finished."""
    return {ROW: f"error:{source[ROW]}" if error else source[ROW], KIND: ERROR if error else DONE}


class Folder:
    """The output folder of one run.

    Args:
        name: the folder: a path that all nodes see, or an address such as `s3://bucket/folder`.
        run: what the run is: plain JSON values that its rows depend on.

    Raises:
        InputError: there is no such file system.
    """

    def __init__(self, name: str, run: dict[str, Any]) -> None:
        self._name = name.rstrip("/")
        self.system, self.path = located(self._name)
        self._run = {"version": 1, **run}

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take the folder up, new or begun, and keep other runs out of it as long as the block runs.

        Object stores cannot lock, so there other runs are kept out only if they are of other settings.

        Raises:
            ResumeMismatch: the folder holds another run, or files of others.
            InputError: another run is writing the folder, or it cannot be written.
        """
        with ExitStack() as locks:
            try:
                inside = {file.base_name for file in self._files("")}
                if inside and "run.json" not in inside:
                    raise ResumeMismatch(f"{self._name} holds files, but no run of dgmark: choose another folder")
                self.system.create_dir(self.path, recursive=True)
                if isinstance(self.system, fs.LocalFileSystem):
                    path = Path(self.path) / "run.json"
                    lock(locks.enter_context(open(path, "a+b", buffering=0)), path)
                self._take_up(self._held() if "run.json" in inside else {})
            except (OSError, arrow.ArrowException) as error:
                raise InputError(f"{self._name} cannot be written: {error}; choose another folder") from error
            yield

    def _take_up(self, held: dict[str, Any]) -> None:
        """Check that the rows are of this run; a run that has no rows yet gives way."""
        if not self._files("rows"):
            with self.system.open_output_stream(f"{self.path}/run.json") as file:
                file.write(json.dumps(self._run, indent=2).encode() + b"\n")
            return
        different = sorted(name for name in {*held, *self._run} if held.get(name) != self._run.get(name))
        if different:
            raise ResumeMismatch(
                f"{self._name} holds another run, which differs in {', '.join(different)}; "
                "choose another folder, or delete the folder to start again"
            )
        if self._files(f"rows/{KIND}={ERROR}"):  # they are made again
            self.system.delete_dir(f"{self.path}/rows/{KIND}={ERROR}")

    def _files(self, inside: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        selector = fs.FileSelector(f"{self.path}/{inside}".rstrip("/"), allow_not_found=True, recursive=recursive)
        found: list[fs.FileInfo] = self.system.get_file_info(selector)
        return found

    def _held(self) -> dict[str, Any]:
        """What `run.json` says; nothing if it is empty, as a run leaves it that ends before it writes.

        Raises:
            ResumeMismatch: another program wrote it.
        """
        with self.system.open_input_stream(f"{self.path}/run.json") as file:
            content = file.read()
        if not content:
            return {}
        try:
            held = json.loads(content)
        except ValueError:
            held = None
        if not isinstance(held, dict) or not {"version", "command"} <= held.keys():
            raise ResumeMismatch(f"{self._name}/run.json is no file of dgmark: choose another folder")
        return held

    def checkpoint(self) -> CheckpointConfig:
        """Where Ray keeps which rows are finished."""
        return CheckpointConfig(
            ROW, f"{self.path}/finished", delete_checkpoint_on_success=False, override_filesystem=self.system
        )

    def rows(self) -> parquet_files.Dataset | None:
        """The rows that the folder holds; None if there are none."""
        if not any(file.is_file for file in self._files("rows", recursive=True)):
            return None
        return parquet_files.dataset(f"{self.path}/rows", filesystem=self.system, format="parquet", partitioning="hive")


def run_files(
    inputs: str | Iterable[str],
    out: str,
    work: Callable[[Dataset], Dataset],
    read: Callable[[Source], Iterator[arrow.Table]],
    run: dict[str, Any],
    *,
    address: str,
    counted: str,
    block_bytes: int,
    file_rows: int,
    on_resume: Callable[[int], object] | None,
) -> Tally:
    """Do the work that is missing in a folder.

    Args:
        inputs: .jsonl and .parquet files, and folders of these: paths that all nodes see, or addresses such as
            `s3://bucket/folder`.
        out: the folder to write, a path that all nodes see or an address.
        work: from a dataset of `ITEMS` to one of results.
        read: the tables of `ITEMS` in a file.
        run: what the run is: plain JSON values that its rows depend on.
        address: of the Ray cluster; see `cluster`.
        counted: the column of the results whose values are counted.
        block_bytes: what one worker gets at a time.
        file_rows: rows of a file of results, of which a crash loses one for each writer.
        on_resume: called with the number of rows that the folder holds, before any work.

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
    folder = Folder(out, run)
    with cluster(address, folder.checkpoint(), block_bytes), folder.taken():
        held = folder.rows()
        tally.resumed = held.count_rows() if held else 0
        if on_resume:
            on_resume(tally.resumed)
        items = ray.data.read_datasource(TextSource(sources, read), override_num_blocks=len(sources))
        try:
            work(items).write_parquet(
                f"{folder.path}/rows", filesystem=folder.system, partition_cols=[KIND], min_rows_per_file=file_rows
            )
        except (RayError, OSError, arrow.ArrowException) as error:
            raise error_of(error) from None
    written = folder.rows()
    if written:
        for batch in written.to_batches(columns=[counted]):
            tally.verdicts.update(batch.column(0).drop_null().to_pylist())
        bad = written.to_table(columns=["id", ERROR], filter=parquet_files.field(KIND) == ERROR)
        tally.unusable = len(bad)
        tally.first_unusable = BadRow(*bad.slice(0, 1).to_pylist()[0].values()) if len(bad) else None
    return tally
