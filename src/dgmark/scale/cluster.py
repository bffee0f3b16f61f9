"""A Ray cluster: connect to it or start it on this machine, what it has room for, and what its errors mean."""

import logging
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import ray
from ray.data import ActorPoolStrategy, DataContext
from ray.data.checkpoint import CheckpointConfig

from dgmark import errors
from dgmark.errors import DgmarkError, InputError, SettingsError
from dgmark.rows.workers import processors

# processors that a run takes besides its workers: to read, to skip finished rows, and to write
_BESIDE = 3
_PATIENCE = 10.0  # seconds


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
        connect(address)
    context = DataContext.get_current()
    options: dict[str, Any] = {
        "checkpoint_config": checkpoint,
        "target_max_block_size": block_bytes,
        "enable_progress_bars": context.enable_progress_bars and sys.stderr.isatty(),
        # Ray's newer reader starts 32 processes to look up which rows are finished, however few files tell it
        "use_datasource_v2": False,
    }
    before = {name: getattr(context, name) for name in options}
    try:
        for name, value in options.items():
            setattr(context, name, value)
        max_workers()
        yield
    finally:
        for name, value in before.items():
            setattr(context, name, value)
        if started:
            ray.shutdown()


def connect(address: str) -> None:
    """Connect to the cluster at an address, see `cluster`.

    Raises:
        SettingsError: there is no such cluster.
    """
    for quiet in ("ray", "ray.data"):
        logging.getLogger(quiet).setLevel(logging.CRITICAL)  # what ends a run is raised here, in our words
    if address == "local":  # who wants to report runs to Ray's makers can say so in this variable
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's native code writes an error to stderr for a possible loss of arguments that this process holds
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        if address not in ("local", "auto"):  # where nobody answers, Ray itself would try for minutes
            host, _, port = address.removeprefix("ray://").rpartition(":")
            socket.create_connection((host, int(port)), timeout=_PATIENCE).close()
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False,
            # reading, skipping and writing take places of their own, as they hardly use a processor
            num_cpus=processors() + _BESIDE if address == "local" else None,
        )
    except Exception as error:  # Ray raises all kinds, Exception itself among them
        raise SettingsError(
            f"no Ray cluster answers at {address!r} ({error}): give its address, or local for this machine alone"
        ) from error


def max_workers() -> int:
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


def workers_of(workers: int | None, *, on_gpu: bool) -> dict[str, Any]:
    """Arguments of `map_batches` for so many processes, or as many as the cluster has room for.

    Args:
        workers: the number of processes.
        on_gpu: one GPU for each if the cluster has any.

    Raises:
        SettingsError: the cluster has not so many.
    """
    most = max_workers()
    gpus = int(ray.cluster_resources().get("GPU", 0)) if on_gpu else 0  # type: ignore[no-untyped-call]
    if gpus:
        most = min(most, gpus)
    if not 1 <= (workers or 1) <= most:
        raise SettingsError(f"{workers or 1} workers are not in 1..{most}, for which the Ray cluster has room")
    pool = ActorPoolStrategy(size=workers) if workers else ActorPoolStrategy(min_size=1, max_size=most)
    return {"compute": pool, "num_gpus": 1 if gpus else 0}


def error_of(error: Exception) -> DgmarkError:
    """The error of dgmark in a worker, of which Ray keeps the traceback as text; else one that says what Ray said."""
    lines = [line.strip() for line in re.sub("\x1b\\[[0-9;]*m", "", str(error)).splitlines() if line.strip()]
    found = [match for line in lines if (match := re.match(r"dgmark\.errors\.(\w+): (.*)", line))]
    if found:
        return cast(DgmarkError, getattr(errors, found[-1][1])(found[-1][2]))
    what = next((line for line in reversed(lines) if re.match(r"[\w.]+: ", line)), lines[-1] if lines else repr(error))
    return InputError(
        f"the run ended early ({what}); the rows written so far are kept, and the same command goes on from there"
    )
