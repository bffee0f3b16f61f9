"""A table of texts through `DetectColumns` or `GenerateColumns` on Ray Data: read, map by actors, write Parquet.

Reading, scheduling, retries, files, and which rows are finished (its checkpoint) are Ray Data's own. Beside the folder
TARGET stands TARGET.dgmark with that checkpoint, and with `state.json`, what the target is made with. This module
imports Ray.
"""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray
from ray.data.checkpoint import CheckpointConfig

from dgmark.arguments.checks import shown
from dgmark.arguments.column_names import check_added
from dgmark.arguments.contents import check_texts
from dgmark.checkpoint.folder import first_line
from dgmark.columns.batch import open_batch
from dgmark.columns.detect_columns import DetectColumns
from dgmark.columns.generate_columns import GenerateColumns
from dgmark.errors import DgmarkError, InputError, NoTexts, ResumeMismatch, SettingsError
from dgmark.rows.item import Row
from dgmark.rows.jsonl import SUFFIXES, read_good_rows
from dgmark.rows.parquet import is_parquet, is_url, located, open_parquet, version_of
from dgmark.rows.sinks import lock

# CPUs of Ray besides those of actors: of a reader or a writer, of what cuts blocks, and of the filter of finished rows.
# A pool of actors that takes all never begins.
_OTHER_CPUS = 3
# What Ray is told where it is started for a run: to report nothing to its makers, and to read the footers of Parquet
# files in one process; 32, as on a cluster with files far away, take gigabytes.
OF_ONE_MACHINE = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DATA_PARQUET_FOOTER_NUM_ACTORS": "1"}


@dataclass(frozen=True)
class RayRun:
    """What to make of a table, and on what.

    Attributes:
        work: what each actor does with a batch. It names a column of ids.
        source: Parquet or JSON Lines: a file, a folder, or a URL, which all machines can read.
        target: the folder to write, as a path or a URL.
        made_with: everything that the added columns depend on except the rows, as plain JSON values.
        batch_size: largest number of rows that an actor takes at a time.
        part_rows: rows of a file of the target, after which they are finished.
        actors: number of processes; None for as many as there are CPUs, or GPUs, for them.
        gpus: GPUs of each process.
        address: address of a cluster; None for a new one of this machine.
    """

    work: DetectColumns | GenerateColumns
    source: str
    target: str
    made_with: dict[str, Any]
    batch_size: int
    part_rows: int
    actors: int | None = None
    gpus: float = 0
    address: str | None = None

    def write(self) -> int:
        """Write the rows that are not finished, and return how many were.

        Raises:
            NoTexts: the source cannot be read.
            InputError: the source has no such columns, columns of other types, or rows without an id of their own; or
                the target cannot be written any further. What is finished is kept.
            SettingsError: there is no such cluster, or it has too few CPUs or GPUs.
            ResumeMismatch: the target was made from other files or with other settings, or not by dgmark.
            DgmarkError: Ray did not start, or stopped. What is finished is kept.
        """
        read, sources = _sources_in(self.source)
        with self._state(sources), self._cluster() as actors, _plain_errors(self.target, sources):
            table = read(self.source)
            rows = self._check(table)
            finished = self._rows_written()
            self._write(table, actors)
        written = self._rows_written()
        if written != rows:
            raise InputError(
                f"{self.target} holds {written} rows, and the source {rows}, as where somebody deleted a file of the "
                f"target: delete it and {self._beside} to start again"
            )
        return finished

    def _write(self, table: "ray.data.Dataset", actors: int) -> None:
        table.context.checkpoint_config = CheckpointConfig(
            self.work.id_column, f"{self._beside}/checkpoint", delete_checkpoint_on_success=False
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
        ).write_parquet(self.target)

    # ---- what the target is held to ----

    @property
    def _beside(self) -> str:
        return f"{self.target.rstrip('/')}.dgmark"

    @contextmanager
    def _state(self, sources: list[str]) -> Iterator[None]:
        """Hold the target to what it is made with; lock it, where files can be.

        Raises:
            ResumeMismatch: it was made with anything else, or not by dgmark.
            InputError: another run writes it, or it is a file.
        """
        filesystem, beside = located(self._beside)
        if filesystem.isfile(located(self.target)[1]):
            raise InputError(f"{self.target} is a file: give a folder, into which Parquet files are written")
        files = {source: version_of(source) for source in sources}
        wanted = json.loads(json.dumps({**self.made_with, "source": files}))
        filesystem.makedirs(f"{beside}/checkpoint", exist_ok=True)
        with nullcontext() if is_url(self.target) else open(os.path.join(beside, ".lock"), "ab") as locked:
            if locked is not None:
                lock(locked, Path(self.target))
            if files_in(self.target):
                self._check_state(filesystem, f"{beside}/state.json", wanted)
            else:
                filesystem.pipe_file(f"{beside}/state.json", json.dumps(wanted).encode())
            yield

    def _check_state(self, filesystem: Any, place: str, wanted: dict[str, Any]) -> None:
        try:
            found = json.loads(filesystem.cat_file(place))
        except (FileNotFoundError, ValueError):
            raise ResumeMismatch(
                f"{self.target} exists, and dgmark-ray did not write it, or {self._beside} is missing or damaged: "
                "choose another target, or delete it"
            ) from None
        different = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
        if different:
            raise ResumeMismatch(
                f"{self.target} was made by another run, which differs in {', '.join(different)}; choose another "
                f"target, or delete it and {self._beside} to start again"
            )

    def _rows_written(self) -> int:
        rows = 0
        for place in files_in(self.target):
            with open_parquet(place) as file:
                rows += file.metadata.num_rows
        return rows

    # ---- the table ----

    def _check(self, table: "ray.data.Dataset") -> int:
        """Refuse a source without the columns, or whose rows have no ids of their own, and return the number of rows.

        All ids are in memory, as those of finished rows are in each process that leaves rows out.
        """
        schema, id_column = table.schema(), str(self.work.id_column)
        assert schema is not None
        empty = open_batch(pa.schema(list(zip(schema.names, schema.types, strict=True))).empty_table(), {}, "")
        check_texts(empty.column(self.work.column), self.work.column)
        kind = empty.column(id_column).type
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)):
            raise InputError(
                f"column {shown(id_column)} holds {kind}: name a column of texts or whole numbers, each row's own, as "
                "--id-column"
            )
        check_added(schema.names, self.work.schema.names)
        batches: Any = table.select_columns([id_column]).iter_batches(batch_size=None, batch_format="pyarrow")
        ids = pa.chunked_array([chunk for batch in batches for chunk in batch.column(0).chunks], kind)
        if ids.null_count:
            raise InputError(f"{ids.null_count} rows have no id in column {shown(id_column)}: give each row its own")
        counts = ids.value_counts()
        twice = counts.filter(pc.greater(counts.field("counts"), 1))
        if len(twice):
            first = twice[0].as_py()
            raise InputError(f"{first['counts']} rows have the id {shown(first['values'])}: give each row its own id")
        return len(ids)

    # ---- the cluster ----

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
                problem = SettingsError(f"{self.address} is not a Ray cluster that can be reached: {why}", "address")
            raise problem from None

    def _number_of_actors(self, resources: dict[str, float]) -> int:
        """How many actors to start; a SettingsError if the cluster has too little for one, or for those wanted."""
        if self.gpus > 1 and self.gpus % 1:
            raise SettingsError("is a whole number, or below 1 for processes that share a GPU", field="gpus_per_actor")
        fit = resources.get("GPU", 0) // self.gpus if self.gpus else resources.get("CPU", 0) - _OTHER_CPUS
        actors = self.actors or max(1, int(fit))
        # without memory for it, the filter of finished rows waits for ever
        memory = CheckpointConfig.CHECKPOINT_ACTOR_MEMORY_BYTES
        needed = {"CPU": _OTHER_CPUS + (0 if self.gpus else actors), "GPU": actors * self.gpus, "memory": memory}
        for name, amount in needed.items():
            if resources.get(name, 0) < amount:
                raise SettingsError(
                    f"{actors} actors, with reading, writing and leaving out finished rows, need {amount:g} of {name}, "
                    f"and the cluster has {resources.get(name, 0):g}: give fewer --actors, or start Ray with more"
                )
        return actors


class Worker:
    """An actor. It never writes into its batches, which are memory that others read."""

    def __init__(self, work: DetectColumns | GenerateColumns) -> None:
        self.work = work

    def __call__(self, batch: Any) -> Any:
        """The batch with the added columns."""
        return self.work(batch)


def files_in(place: str) -> list[str]:
    """The files at a path or URL, by name; an empty list if nothing exists there."""
    filesystem, path = located(place)
    names = [path] if filesystem.isfile(path) else filesystem.find(path)
    return [filesystem.unstrip_protocol(name) if is_url(place) else name for name in sorted(names)]


def _sources_in(place: str) -> tuple[Any, list[str]]:
    """What reads a source, a function of Ray Data, and the files that it reads.

    Raises:
        NoTexts: there is no Parquet and no JSON Lines there.
        InputError: there are both, or a file that Ray leaves out.
    """
    seen = files_in(place)
    parquet = [name for name in seen if is_parquet(name)]
    rows = [name for name in seen if name.lower().endswith((*SUFFIXES, ".json", ".json.gz"))]
    if parquet and rows:
        raise InputError(f"{place} holds Parquet and JSON Lines: give a folder of one of them")
    if not (parquet or rows):
        raise NoTexts(
            f"{place} is not there, or holds no file that ends in .parquet or .jsonl: give Parquet or JSON Lines, a "
            "file or a folder of them"
        )
    hidden = [name for name in (parquet or rows) if name.rpartition("/")[2].startswith(("_", "."))]
    if hidden:
        raise InputError(
            f"{hidden[0]} has a name that begins with _ or a dot, and Ray leaves such files out: rename it"
        )
    return partial(_read_parquet, parquet) if parquet else ray.data.read_json, parquet or rows


def _read_parquet(files: list[str], place: str) -> "ray.data.Dataset":
    """Read Parquet, of which one file may have a column in a dictionary that another has without one."""
    try:
        return ray.data.read_parquet(place)
    except pa.ArrowTypeError:
        schemas = []
        for name in files:
            with open_parquet(name) as file:
                schemas.append(pa.schema([_without_dictionary(field) for field in file.schema_arrow]))
        return ray.data.read_parquet(place, schema=pa.unify_schemas(schemas, promote_options="permissive"))


def _without_dictionary(field: pa.Field) -> pa.Field:
    return field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field


def _check_types(sources: list[str]) -> None:
    """Refuse JSON Lines of which a field has two types, as a column has one. URLs are not read for this.

    Raises:
        InputError: a field has two types, or a line is not a row.
    """
    first: dict[str, tuple[str, str]] = {}
    for source in (name for name in sources if not (is_parquet(name) or is_url(name))):
        for row in read_good_rows(source):
            for name, kind in _kinds(row).items():
                other, place = first.setdefault(name, (kind, row["id"]))
                if kind != other:
                    raise InputError(
                        f"{shown(name)} is {other} in row {place} and {kind} in row {row['id']} of {source}, and Ray "
                        "reads columns of one type: give all rows the same, or use `dgmark`, which reads each row by "
                        "itself"
                    )


def _kinds(row: Row) -> dict[str, str]:
    """What the fields of a row hold, in words; fields without a value are left out."""
    types = {name: type(value) for name, value in row.items() if value is not None}
    return {name: "a number" if kind in (int, float) else f"a {kind.__name__}" for name, kind in types.items()}


@contextmanager
def _plain_errors(target: str, sources: list[str]) -> Iterator[None]:
    """Raise an error of dgmark in a process of Ray as it was there, and say of others what stays."""
    try:
        yield
    except (DgmarkError, OSError, RuntimeError, ValueError, pa.ArrowException) as error:
        cause = _cause_of(error)
        if isinstance(cause, DgmarkError):
            raise cause from None
        _check_types(sources)
        kind = InputError if isinstance(cause, OSError | pa.ArrowException) else DgmarkError
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
