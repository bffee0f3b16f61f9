"""The folder that a run on a cluster writes: its rows, its errors, and which rows are finished.

    OUT/run.json              what the run is; another run in the same folder is refused
    OUT/rows/kind=done/       finished rows, as Parquet
    OUT/rows/kind=error/      rows that could not be read, scored or made
    OUT/finished/             Ray's checkpoint: the rows that a later run skips

Ray writes each part in two phases, so that a part is either whole and in the checkpoint, or made again.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.dataset as parquet_files
from pyarrow import compute, fs, parquet
from ray.data import Dataset
from ray.data.checkpoint import CheckpointConfig
from ray.exceptions import RayError

from dgmark.errors import InputError, ResumeMismatch
from dgmark.rows.row_file import lock
from dgmark.scale.cluster import error_of
from dgmark.scale.source import located

KIND, DONE, ERROR, ROW = "kind", "done", "error", "row"


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
        self._system, self._path = located(self._name)
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
                self._check_own()
                self._system.create_dir(self._path, recursive=True)
                if isinstance(self._system, fs.LocalFileSystem):
                    path = Path(self._path) / "run.json"
                    lock(locks.enter_context(open(path, "a+b", buffering=0)), path)
                self._take_up()
            except (OSError, arrow.ArrowException) as error:
                raise InputError(f"{self._name} cannot be written: {error}; choose another --out") from error
            yield

    def _check_own(self) -> None:
        """Refuse files of others, before anything is written."""
        inside = {file.base_name for file in self._files("")}
        if inside and "run.json" not in inside:
            raise ResumeMismatch(f"{self._name} holds files, but no run of dgmark: choose another --out")
        if inside:
            self._held()

    def _take_up(self) -> None:
        """Check that the rows are of this run; a run that has no rows yet gives way."""
        if not self._files("rows"):
            with self._system.open_output_stream(f"{self._path}/run.json") as file:
                file.write(json.dumps(self._run, indent=2).encode() + b"\n")
            return
        held = self._held()
        different = sorted(name for name in {*held, *self._run} if held.get(name) != self._run.get(name))
        if different:
            raise ResumeMismatch(
                f"{self._name} holds another run, which differs in {', '.join(different)}; "
                "choose another --out, or delete the folder to start again"
            )
        self._forget_errors()

    def _forget_errors(self) -> None:
        """Remove the rows with errors, and their ids from the finished ones, so that they are made again."""
        bad = [file.path for file in self._files(f"rows/{KIND}={ERROR}", recursive=True) if file.is_file]
        if not bad:
            return
        again = parquet_files.dataset(bad, filesystem=self._system).to_table(columns=[ROW]).column(ROW)
        for file in self._files("finished"):
            finished = parquet.read_table(file.path, filesystem=self._system)
            kept = finished.filter(compute.invert(compute.is_in(finished.column(ROW), value_set=again)))
            if len(kept) < len(finished):
                # Ray takes every file in the folder for ids, so the new one is written beside it
                parquet.write_table(kept, f"{self._path}/finished.tmp", filesystem=self._system)
                self._system.move(f"{self._path}/finished.tmp", file.path)
        for path in bad:
            self._system.delete_file(path)

    def _files(self, inside: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        selector = fs.FileSelector(f"{self._path}/{inside}".rstrip("/"), allow_not_found=True, recursive=recursive)
        found: list[fs.FileInfo] = self._system.get_file_info(selector)
        return found

    def _held(self) -> dict[str, Any]:
        """What `run.json` says; nothing if it is empty, as a run leaves it that ends before it writes.

        Raises:
            ResumeMismatch: another program wrote it.
        """
        with self._system.open_input_stream(f"{self._path}/run.json") as file:
            content = file.read()
        if not content:
            return {}
        try:
            held = json.loads(content)
        except ValueError:
            held = None
        if not isinstance(held, dict) or not {"version", "command"} <= held.keys():
            raise ResumeMismatch(f"{self._name}/run.json is no file of dgmark: choose another --out")
        return held

    def checkpoint(self) -> CheckpointConfig:
        """Where Ray keeps which rows are finished."""
        return CheckpointConfig(
            ROW, f"{self._path}/finished", delete_checkpoint_on_success=False, override_filesystem=self._system
        )

    def write(self, rows: Dataset, file_rows: int) -> None:
        """Run the dataset and write its rows; it has the columns `row` and `kind`, and was read under `checkpoint`.

        Args:
            rows: the dataset.
            file_rows: rows of a file, of which a crash loses one for each writer.

        Raises:
            DgmarkError: the work raised it.
            InputError: Ray gave up for another reason.
        """
        try:
            rows.write_parquet(
                f"{self._path}/rows", filesystem=self._system, partition_cols=[KIND], min_rows_per_file=file_rows
            )
        except (RayError, OSError, arrow.ArrowException) as error:
            raise error_of(error) from None

    def rows(self) -> parquet_files.Dataset | None:
        """The rows that the folder holds; None if there are none."""
        if not any(file.is_file for file in self._files("rows", recursive=True)):
            return None
        return parquet_files.dataset(
            f"{self._path}/rows", filesystem=self._system, format="parquet", partitioning="hive"
        )
