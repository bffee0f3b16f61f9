"""The folder that a run on a cluster writes: its rows, its errors, and which rows are finished.

    OUT/run.json              what the run is; another run in the same folder is refused
    OUT/rows/kind=done/       finished rows, as Parquet
    OUT/rows/kind=error/      rows that could not be read, scored or made
    OUT/finished/             Ray's checkpoint: the rows that a later run skips

Ray writes each part in two phases, so that a part is either whole and in the checkpoint, or made again.
"""

import json
import logging
import os
import re
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import pyarrow as arrow
import pyarrow.dataset as parquet_files
import ray
from pyarrow import compute, fs, parquet
from ray.data import ActorPoolStrategy, DataContext, Dataset
from ray.data.checkpoint import CheckpointConfig
from ray.exceptions import RayError

from dgmark import errors
from dgmark.errors import DgmarkError, InputError, ResumeMismatch, SettingsError
from dgmark.rows.jsonl import BadRow
from dgmark.rows.row_file import lock
from dgmark.rows.workers import processors
from dgmark.scale.source import located

RUN_VERSION = 1
KIND, DONE, ERROR = "kind", "done", "error"
ROW = "row"
# processors that a run takes besides its workers: to read, to skip finished rows, and to write
_BESIDE = 3
_PATIENCE = 10.0  # seconds


class Folder:
    """The output folder of one run.

    Attributes:
        name: the folder as given: a path that all nodes see, or an address such as `s3://bucket/folder`.
    """

    def __init__(self, name: str, run: dict[str, Any]) -> None:
        """Name a folder and what is to be in it.

        Args:
            name: the folder.
            run: what the run is: plain JSON values that its rows depend on.

        Raises:
            InputError: there is no such file system.
        """
        self.name = name.rstrip("/")
        self._system, self._path = located(self.name)
        self._run = {"version": RUN_VERSION, **run}

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take the folder up, new or begun, and keep other runs out of it as long as the block runs.

        Object stores cannot lock, so there other runs are kept out only if they are of other settings.

        Raises:
            ResumeMismatch: the folder holds another run, or files of others.
            InputError: another run is writing the folder.
            InputError: the folder cannot be written.
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
                raise InputError(f"{self.name} cannot be written: {error}; choose another --out") from error
            yield

    def _check_own(self) -> None:
        """Refuse files of others, before anything is written."""
        inside = {file.base_name for file in self._files("")}
        if inside and "run.json" not in inside:
            raise ResumeMismatch(f"{self.name} holds files, but no run of dgmark: choose another --out")
        if inside:
            self._held()

    def _take_up(self) -> None:
        """Check that the rows are of this run; a run that has no rows yet gives way."""
        if self._files("rows"):
            held = self._held()
            different = sorted(name for name in {*held, *self._run} if held.get(name) != self._run.get(name))
            if different:
                raise ResumeMismatch(
                    f"{self.name} holds another run, which differs in {', '.join(different)}; "
                    "choose another --out, or delete the folder to start again"
                )
            self._forget_errors()
        else:
            with self._system.open_output_stream(f"{self._path}/run.json") as file:
                file.write(json.dumps(self._run, indent=2).encode() + b"\n")

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
            raise ResumeMismatch(f"{self.name}/run.json is no file of dgmark: choose another --out")
        return held

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
            raise told(error) from None

    def checkpoint(self) -> CheckpointConfig:
        """Where Ray keeps which rows are finished."""
        return CheckpointConfig(
            ROW,
            f"{self._path}/finished",
            delete_checkpoint_on_success=False,
            override_filesystem=self._system,
        )

    def rows(self) -> int:
        """The number of rows that the folder holds."""
        return self._dataset().count_rows() if self._holds_rows() else 0

    def counts(self, column: str) -> tuple[Counter[str], int, BadRow | None]:
        """Count the finished rows by a column's values, and the errors; the last is one of the errors."""
        values: Counter[str] = Counter()
        unusable, first = 0, None
        if self._holds_rows():
            for batch in self._dataset().scanner(columns=[column, "id", ERROR]).to_batches():
                for value in batch.column(0).drop_null().value_counts():
                    values[str(value["values"])] += value["counts"].as_py()
                bad = batch.filter(batch.column(2).is_valid())
                unusable += len(bad)
                if first is None and len(bad):
                    first = BadRow(bad.column(1)[0].as_py(), bad.column(2)[0].as_py())
        return values, unusable, first

    def _holds_rows(self) -> bool:
        return any(file.is_file for file in self._files("rows", recursive=True))

    def _dataset(self) -> parquet_files.Dataset:
        return parquet_files.dataset(
            f"{self._path}/rows", filesystem=self._system, format="parquet", partitioning="hive"
        )


def told(error: Exception) -> DgmarkError:
    """The error of dgmark in a worker, of which Ray keeps the traceback as text; else one that says what Ray said."""
    lines = [line.strip() for line in re.sub("\x1b\\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    found = [match for line in lines if (match := re.match(r"dgmark\.errors\.(\w+): (.*)", line))]
    if found:
        return cast(DgmarkError, getattr(errors, found[-1][1])(found[-1][2]))
    what = next((line for line in reversed(lines) if re.match(r"[\w.]+: ", line)), lines[-1] if lines else repr(error))
    return InputError(
        f"the run ended early ({what}); the rows written so far are kept, and the same command goes on from there"
    )


@contextmanager
def cluster(address: str, checkpoint: CheckpointConfig, block_bytes: int) -> Iterator[None]:
    """Connect to a cluster, or start Ray on this machine, with checkpoints; leave Ray as it was.

    Args:
        address: "local" for this machine alone, "auto" for the cluster that this machine is a node of, or the address
            of a cluster, `host:port` or `ray://host:port`. Where Ray is connected already, that cluster is used.
        checkpoint: where finished rows are kept.
        block_bytes: what one worker gets at a time; smaller blocks spread a file over more workers.

    Raises:
        SettingsError: there is no such cluster, or it has too few processors.
    """
    started = not ray.is_initialized()
    if started:
        _connect(address)
    context = DataContext.get_current()
    ours: dict[str, Any] = {
        "checkpoint_config": checkpoint,
        "target_max_block_size": block_bytes,
        "enable_progress_bars": context.enable_progress_bars and sys.stderr.isatty(),
        # Ray's newer reader starts 32 processes to look up which rows are finished, however few files tell it
        "use_datasource_v2": False,
    }
    before = {name: getattr(context, name) for name in ours}
    _set(context, ours)
    try:
        most_workers()
        yield
    finally:
        _set(context, before)
        if started:
            ray.shutdown()


def _set(context: DataContext, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(context, name, value)


def _connect(address: str) -> None:
    check_answers(address)
    for quiet in ("ray", "ray.data"):
        logging.getLogger(quiet).setLevel(logging.CRITICAL)  # what ends a run is raised here, in our words
    # on one machine reading, skipping and writing take places of their own, as they hardly use a processor
    places = processors() + _BESIDE if address == "local" else None
    if address == "local":  # who wants to report runs to Ray's makers can say so in this variable
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's native code writes an error to stderr for a possible loss of arguments that this process holds
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        ray.init(
            address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False, num_cpus=places
        )
    except Exception as error:  # Ray raises all kinds, Exception itself among them
        raise _no_cluster(address, error) from error


def check_answers(address: str) -> None:
    """Look whether anybody answers at an address; Ray itself would try for minutes.

    Raises:
        SettingsError: nobody does.
    """
    if address in ("local", "auto"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
    except (OSError, ValueError, OverflowError) as error:
        raise _no_cluster(address, error) from error


def _no_cluster(address: str, error: Exception) -> SettingsError:
    return SettingsError(
        f"no Ray cluster answers at {address!r} ({error}): give its address, or local for this machine alone"
    )


def most_workers() -> int:
    """How many processes of the cluster can work while others read, skip finished rows, and write.

    Raises:
        SettingsError: none.
    """
    places = int(ray.cluster_resources().get("CPU", 0))  # type: ignore[no-untyped-call]
    if places <= _BESIDE:
        raise SettingsError(
            f"the Ray cluster has {places} processors, and a run needs {_BESIDE + 1}, because it reads, skips "
            "finished rows, works and writes at the same time: add nodes, or state more with `ray start --num-cpus`"
        )
    return places - _BESIDE


def workers_of(workers: int | None, gpus: float = 0) -> ActorPoolStrategy:
    """So many processes, or as many as the cluster has room for.

    Args:
        workers: the number of processes.
        gpus: GPUs of each.

    Raises:
        SettingsError: the cluster has not so many.
    """
    most = most_workers()
    if gpus:
        most = min(most, int(ray.cluster_resources().get("GPU", 0) / gpus))  # type: ignore[no-untyped-call]
    if not 1 <= (workers or 1) <= most:
        raise SettingsError(f"{workers or 1} workers are not in 1..{most}, for which the Ray cluster has room")
    return ActorPoolStrategy(size=workers) if workers else ActorPoolStrategy(min_size=1, max_size=most)


def gpus_of_cluster() -> float:
    """One GPU for each process if the cluster has any, else none."""
    return 1.0 if ray.cluster_resources().get("GPU", 0) >= 1 else 0.0  # type: ignore[no-untyped-call]
