"""Work on many items, in order, on several processes. Memory does not grow with the number of items."""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, local
from typing import Any, TypeVar

from dgmark.arguments.checks import shown
from dgmark.errors import InputError, SettingsError
from dgmark.rows.processes import Worker, WorkerLost

Input = TypeVar("Input")
Output = TypeVar("Output")

CHUNK = 64
# a chunk with this much in it holds no further item
FULL = 2**20
MAX_WORKERS = 256
# chunks in progress or queued for each process
_AHEAD = 3


def check_workers(workers: int) -> None:
    """Refuse a number of processes that is not a whole number from 1 to 256 with a SettingsError."""
    if type(workers) is not int or not 1 <= workers <= MAX_WORKERS:
        raise SettingsError(f"workers {shown(workers)} is not a whole number from 1 to {MAX_WORKERS}")


def map_in_order(
    work: Callable[..., list[Output]],
    items: Iterable[Input],
    *,
    workers: int = 1,
    shared: tuple[Any, ...] = (),
    size: Callable[[Input], int] = lambda _: 0,
    chunk: int = CHUNK,
) -> Generator[tuple[Input, Output]]:
    """Yield each item with its result, in the items' order.

    Args:
        work: called as `work(*shared, chunk)`; returns one result for each item of the chunk. With several workers it
            must be a module-level function.
        items: read as they are needed.
        workers: number of processes; 1 works in this process.
        shared: the first arguments of `work`, sent to each process once.
        size: how much an item holds; `FULL` of it fills a chunk, so that few large items are in memory at a time.
        chunk: largest number of items in a chunk.

    Raises:
        InputError: a worker was killed, or could not be started.
    """
    of_workers = chunks(items, (lambda _: 1, chunk), (size, FULL))
    if workers == 1:
        for inputs in of_workers:
            yield from zip(inputs, work(*shared, inputs), strict=True)
        return
    with _pool(workers, work, shared) as submit:
        waiting: deque[tuple[list[Input], Future[list[Output]]]] = deque()
        for inputs in of_workers:
            waiting.append((inputs, submit(inputs)))
            if len(waiting) >= _AHEAD * workers:
                first, future = waiting.popleft()
                yield from zip(first, future.result(), strict=True)
        while waiting:
            first, future = waiting.popleft()
            yield from zip(first, future.result(), strict=True)


def chunks(items: Iterable[Input], *limits: tuple[Callable[[Input], int], int]) -> Iterator[list[Input]]:
    """The items in lists, each of which ends where the sum of a measure of its items reaches the limit."""
    chunk, totals = list[Input](), [0] * len(limits)
    for item in items:
        chunk.append(item)
        totals = [total + measure(item) for total, (measure, _) in zip(totals, limits, strict=True)]
        if any(total >= limit for total, (_, limit) in zip(totals, limits, strict=True)):
            yield chunk
            chunk, totals = [], [0] * len(limits)
    if chunk:
        yield chunk


@contextmanager
def _pool(
    workers: int, work: Callable[..., Any], shared: tuple[Any, ...]
) -> Iterator[Callable[[list[Any]], Future[list[Any]]]]:
    """Processes that end when this block is left; gives a function that hands them a chunk.

    Raises:
        InputError: a process ended before its work did, or could not be started.
    """
    threads, own, started, closed = ThreadPoolExecutor(workers), local(), list[Worker](), Event()

    def work_on(chunk: list[Any]) -> list[Any]:
        """Let the process of this thread work on a chunk."""
        if not hasattr(own, "worker"):
            own.worker = Worker(*shared)
            started.append(own.worker)
        if closed.is_set():
            own.worker.kill()
        result: list[Any] = own.worker.call(work, chunk)
        return result

    try:
        yield lambda chunk: threads.submit(work_on, chunk)
    except WorkerLost as error:
        raise InputError(
            f"{error}; rows that were written are kept: go on with fewer workers (one starts no process)"
        ) from error
    finally:
        closed.set()
        threads.shutdown(wait=False, cancel_futures=True)  # nobody waits for work that was interrupted
        for worker in started:
            worker.kill()
        for worker in started:
            worker.wait_started()
        threads.shutdown()
