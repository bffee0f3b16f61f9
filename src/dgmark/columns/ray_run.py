"""A table of texts through `DetectColumns` or `GenerateColumns` on Ray Data: read, map by actors, write Parquet.

Reading, scheduling, retries, files and the filter of finished rows are Ray Data's own. This module imports Ray.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray
from ray.data.checkpoint import CheckpointConfig, NumpyArrayBasedCheckpointFilter

from dgmark.arguments import shown
from dgmark.checkpoint.folder import first_line
from dgmark.columns.batch import check_not_taken, check_texts, column_of
from dgmark.columns.detect_columns import DetectColumns
from dgmark.columns.generate_columns import GenerateColumns
from dgmark.columns.own_ids import check_own_ids
from dgmark.columns.parquet import is_parquet, located
from dgmark.columns.ray_target import RayTarget
from dgmark.errors import DgmarkError, InputError, NoTexts, SettingsError

_JSON = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
# CPUs of Ray besides those of actors: of a reader or a writer, of what cuts blocks, and of the filter of finished rows.
# A pool of actors that takes all never begins.
_OTHER_CPUS = 3
# what Ray Data sets aside for that filter
FILTER_MEMORY = CheckpointConfig.CHECKPOINT_ACTOR_MEMORY_BYTES
# What Ray is told where it is started for a run: to report nothing to its makers, and to read the footers of Parquet
# files in one process; 32, as on a cluster with files far away, take gigabytes.
OF_ONE_MACHINE = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_PARQUET_FOOTER_NUM_ACTORS": "1"}


@dataclass(frozen=True)
class RayRun:
    """What to make of a table, and on what.

    Attributes:
        work: what each actor does with a batch. It names a column of ids.
        source: Parquet or JSON Lines: a file, a folder, or a URL, which all machines can read.
        target: the folder to write.
        batch_size: largest number of rows that an actor takes at a time.
        part_rows: rows of a file of the target, after which they are finished.
        actors: number of processes; None for as many as there are CPUs, or GPUs, for them.
        gpus: GPUs of each process.
        address: address of a cluster; None for a new one of this machine.
    """

    work: DetectColumns | GenerateColumns
    source: str
    target: RayTarget
    batch_size: int
    part_rows: int
    actors: int | None = None
    gpus: float = 0
    address: str | None = None

    def write(self) -> int:
        """Write the rows that are not finished, and return how many were.

        Raises:
            NoTexts: the source cannot be read.
            InputError: the source has no such columns, columns of other types, or two rows of one id; or the target
                cannot be written any further. What is finished is kept.
            SettingsError: there is no such cluster, or it has too few CPUs or GPUs.
            ResumeMismatch: see `RayTarget.open`.
            DgmarkError: Ray did not start, or stopped. What is finished is kept.
        """
        reader = _reader(self.source)
        with self.target.open() as finished, self._cluster() as actors, _plain_errors(self.target.place):
            table = reader(self.source)
            schema = table.schema()
            assert schema is not None
            self._check_columns(pa.schema(list(zip(schema.names, schema.types, strict=True))))
            ids = table.select_columns([self.target.id_column])
            check_own_ids(
                lambda: (batch.column(0) for batch in ids.iter_batches(batch_size=None, batch_format="pyarrow"))
            )
            self._write(table, actors)
        return finished

    def _write(self, table: "ray.data.Dataset", actors: int) -> None:
        table.context.checkpoint_config = CheckpointConfig(
            self.target.id_column,
            self.target.checkpoint,
            delete_checkpoint_on_success=False,
            checkpoint_filter_cls=UnfinishedRows,
        )
        # a block is a task, and a file: one of all rows of a large file would be finished at the end alone
        table.repartition(target_num_rows_per_block=self.part_rows).map_batches(
            Worker,
            fn_constructor_args=(self.work,),
            batch_format="pyarrow",
            batch_size=min(self.batch_size, self.part_rows),  # or a task would wait for the rows of several blocks
            compute=ray.data.ActorPoolStrategy(size=actors),
            num_cpus=0 if self.gpus else 1,
            num_gpus=self.gpus or None,
            udf_modifying_row_count=False,
        ).write_parquet(self.target.place)

    @contextmanager
    def _cluster(self) -> Iterator[int]:
        """Connect to the cluster, or start one, and give the number of actors for it."""
        own = not ray.is_initialized()
        terminate = signal.getsignal(signal.SIGTERM)
        if own:
            self._start()
        if own and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate)  # Ray's own prints a trace of its calls and says nothing
        try:
            yield self._number_of_actors(ray.cluster_resources())  # type: ignore[no-untyped-call]
        finally:
            if own:
                ray.shutdown()

    def _start(self) -> None:
        """Connect to the cluster of the address, or start one on this machine.

        Raises:
            SettingsError: there is no such cluster.
            DgmarkError: Ray does not start.
        """
        here = self.address in (None, "local")
        try:
            if not here:
                ray.init(self.address, log_to_driver=False)
                return
            cores = os.cpu_count() or 1
            actors = self.actors or max(1, cores - 1)
            for name, value in OF_ONE_MACHINE.items():
                os.environ.setdefault(name, value)
            # of more processors than there are, as what is not an actor has little to do
            ray.init("local", num_cpus=max(cores, actors + _OTHER_CPUS), include_dashboard=False, log_to_driver=False)
        except Exception as error:  # Ray has no type of its own for this
            why = first_line(error).rstrip(".")
            if here:
                problem = DgmarkError(f"Ray did not start: {why}; try again when the machine is less busy")
            else:
                problem = SettingsError(f"{self.address} is no Ray cluster that can be reached: {why}", field="address")
            raise problem from None

    def _number_of_actors(self, there: dict[str, float]) -> int:
        cpus, gpus = int(there.get("CPU", 0)), there.get("GPU", 0)
        if self.gpus > 1 and self.gpus % 1:
            raise SettingsError("is a whole number, or below 1 for processes that share a GPU", field="gpus_per_actor")
        if self.gpus:
            actors = self.actors or max(1, int(gpus // self.gpus))
            if actors * self.gpus > gpus:
                raise SettingsError(
                    f"{actors} actors of {self.gpus:g} GPUs need {actors * self.gpus:g} GPUs, and the cluster has "
                    f"{gpus:g}: give fewer --actors or a smaller --gpus-per-actor, or start Ray with more"
                )
        else:
            actors = self.actors or max(1, cpus - _OTHER_CPUS)
        needed = _OTHER_CPUS + (0 if self.gpus else actors)
        if needed > cpus:
            raise SettingsError(
                f"{actors} actors need {needed} CPUs, {_OTHER_CPUS} of them for reading, writing and leaving out "
                f"finished rows, and the cluster has {cpus}: give fewer --actors, or start Ray with --num-cpus {needed}"
            )
        if there.get("memory", FILTER_MEMORY) < FILTER_MEMORY:
            raise SettingsError(
                f"leaving out finished rows takes {FILTER_MEMORY / 1e9:.1f} GB of memory, and the cluster has "
                f"{there['memory'] / 1e9:.1f}: run on a machine with more"
            )
        return actors

    def _check_columns(self, schema: pa.Schema) -> None:
        """Refuse a source without the columns, before the cluster works."""
        table = schema.empty_table()
        check_texts(column_of(table, self.work.column), self.work.column)
        ids = column_of(table, self.target.id_column).type
        if not (pa.types.is_string(ids) or pa.types.is_large_string(ids) or pa.types.is_integer(ids)):
            raise InputError(
                f"column {shown(self.target.id_column)} holds {ids}: name a column of texts or whole numbers, each "
                "row's own, as --id-column"
            )
        check_not_taken(table, self.work.schema.names)


class Worker:
    """An actor. It never writes into its batches, which are memory that others read."""

    def __init__(self, work: DetectColumns | GenerateColumns) -> None:
        self.work = work

    def __call__(self, batch: Any) -> Any:
        """The batch with the added columns."""
        return self.work(batch)


class UnfinishedRows(NumpyArrayBasedCheckpointFilter):
    """Leaves out rows whose ids are in the checkpoint; rows without an id, which numpy cannot look up, stay."""

    def filter_rows_for_block(self, block: Any) -> Any:
        """The block without finished rows."""
        missing = pc.is_null(block.column(self.id_column))
        if not pc.any(missing).as_py():
            return super().filter_rows_for_block(block)
        named = super().filter_rows_for_block(block.filter(pc.invert(missing)))
        return pa.concat_tables([named, block.filter(missing)])


def _reader(source: str) -> Any:
    """What reads a source: a function of Ray Data.

    Raises:
        NoTexts: it is not there, or holds neither Parquet nor JSON Lines.
    """
    filesystem, path = located(source)
    names = [path] if filesystem.isfile(path) else filesystem.find(path)
    if any(map(is_parquet, names)):
        return ray.data.read_parquet
    if any(name.lower().endswith(_JSON) for name in names):
        return ray.data.read_json
    why = "holds no file that ends in .parquet or .jsonl" if names else "is not there, or empty"
    raise NoTexts(f"{source} {why}: give Parquet or JSON Lines, a file or a folder of them")


@contextmanager
def _plain_errors(target: str) -> Iterator[None]:
    """Raise an error of dgmark in a process of Ray as it was there, and say of others what stays."""
    try:
        yield
    except (DgmarkError, OSError, RuntimeError, ValueError) as error:
        cause = _cause_of(error)
        if isinstance(cause, DgmarkError):
            raise cause from None
        kind = InputError if isinstance(cause, OSError) else DgmarkError
        said = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
        what = said.strip().splitlines() or [type(cause).__name__]
        raise kind(
            f"{target} cannot be written any further: {what[0]}; the files that are finished are kept: mend what is "
            "wrong, and run the same command again"
        ) from error


def _cause_of(error: BaseException) -> BaseException:
    """What an error of Ray was raised for, in whichever process."""
    cause = getattr(error, "cause", None) or error.__cause__
    return _cause_of(cause) if isinstance(cause, BaseException) else error
