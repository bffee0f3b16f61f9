"""A Ray cluster: connect to it or start it on this machine, what it has room for, and what its errors mean."""

import logging
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ray
from ray.data import DataContext
from ray.data.checkpoint import CheckpointConfig
from ray.exceptions import RayTaskError

from dgmark.errors import DgmarkError, InputError, SettingsError
from dgmark.rows.workers import processors

# processors that a run takes besides its workers: to read, to skip finished rows, and to write
_OTHER_PROCESSORS = 3
_CONNECT_SECONDS = 10.0


@contextmanager
def cluster(address: str, checkpoint: CheckpointConfig, block_bytes: int) -> Iterator[None]:
    """Connect to a cluster, or start Ray on this machine, with checkpoints; leave Ray as it was.

    Args:
        address: "local" for this machine alone, "auto" for the cluster that this machine is a node of, or the address
            of a cluster, `host:port` or `ray://host:port`. Where Ray is connected already, that cluster is used.
        checkpoint: where finished rows are kept.
        block_bytes: what one worker gets at a time; smaller blocks spread a file over more workers.

    Raises:
        SettingsError: there is no such cluster.
    """
    started = not ray.is_initialized()
    if started:
        connect(address)
    context = DataContext.get_current().copy()
    context.checkpoint_config = checkpoint
    context.target_max_block_size = block_bytes
    context.enable_progress_bars = context.enable_progress_bars and sys.stderr.isatty()
    context.raise_original_map_exception = True
    # Ray's newer reader starts 32 processes to look up which rows are finished, however few files tell it
    context.use_datasource_v2 = False
    try:
        with DataContext.current(context):
            yield
    finally:
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
            socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            include_dashboard=False,
            # reading, skipping and writing take places of their own, as they hardly use a processor
            num_cpus=processors() + _OTHER_PROCESSORS if address == "local" else None,
        )
    except Exception as error:  # Ray raises all kinds, Exception itself among them
        raise SettingsError(
            f"no Ray cluster answers at {address!r} ({error}): give its address, or local for this machine alone"
        ) from error


def workers_of(workers: int | None, *, on_gpu: bool) -> dict[str, Any]:
    """Arguments of `map_batches` for so many processes, or as many as the cluster has room for.

    Args:
        workers: the number of processes.
        on_gpu: one GPU for each if the cluster has any.

    Raises:
        SettingsError: the cluster has not so many.
    """
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    most = int(resources.get("CPU", 0)) - _OTHER_PROCESSORS
    gpus = int(resources.get("GPU", 0)) if on_gpu else 0
    if gpus:
        most = min(most, gpus)
    if not 1 <= (workers or 1) <= most:
        raise SettingsError(
            f"the Ray cluster has room for {max(most, 0)} workers, not for {workers or 1}, beside the "
            f"{_OTHER_PROCESSORS} processors that read, skip finished rows and write: ask for fewer, add nodes, or "
            "state more with `ray start --num-cpus`"
        )
    return {"concurrency": workers or (1, most), "num_gpus": 1 if gpus else 0}


def error_of(error: BaseException) -> DgmarkError:
    """The error of dgmark that a worker raised; else one that says what else was raised."""
    while isinstance(error, RayTaskError):
        error = error.cause
    if isinstance(error, DgmarkError):
        return error
    lines = str(error).strip().splitlines()
    what = f"{type(error).__name__}: {lines[-1]}" if lines else repr(error)
    return InputError(
        f"the run ended early ({what}); the rows written so far are kept, and the same command goes on from there"
    )
