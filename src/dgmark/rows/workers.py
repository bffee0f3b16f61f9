"""Work on many items, in order, on several processes. Memory does not grow with the number of items.

No worker outlives the process that started it, however that one ends.
"""

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, TypeVar

from dgmark.arguments import shown
from dgmark.errors import InputError, SettingsError

Input = TypeVar("Input")
Output = TypeVar("Output")

CHUNK = 64
# a chunk with this much in it holds no further item
FULL = 2**20
MAX_WORKERS = 256
# chunks in progress or queued for each process
_AHEAD = 3


def check_workers(workers: int) -> None:
    """Refuse a number of processes that no machine is helped by.

    Raises:
        SettingsError: `workers` is not a whole number from 1 to 256.
    """
    if type(workers) is not int or not 1 <= workers <= MAX_WORKERS:
        raise SettingsError(f"workers {shown(workers)} is not a whole number from 1 to {MAX_WORKERS}")


def map_in_order(
    work: Callable[..., list[Output]],
    items: Iterable[Input],
    *,
    workers: int = 1,
    shared: tuple[Any, ...] = (),
    size: Callable[[Input], int] = lambda _: 0,
) -> Iterator[tuple[Input, Output]]:
    """Yield each item with its result, in the items' order.

    Args:
        work: called as `work(chunk, *shared)`; returns one result for each item of the chunk. With several workers it
            must be a module-level function.
        items: read as they are needed.
        workers: number of processes; 1 works in this process.
        shared: further arguments of `work`, sent to each process once.
        size: how much an item holds; `FULL` of it fills a chunk, so that few large items are in memory at a time.

    Raises:
        InputError: a worker was killed.
    """
    chunks = _chunks(items, size)
    if workers == 1:
        for chunk in chunks:
            yield from zip(chunk, work(chunk, *shared), strict=True)
        return
    with _pool(workers, work, shared) as submit:
        waiting: deque[tuple[list[Input], Future[list[Output]]]] = deque()
        for chunk in chunks:
            waiting.append((chunk, submit(chunk)))
            if len(waiting) >= _AHEAD * workers:
                first, future = waiting.popleft()
                yield from zip(first, future.result(), strict=True)
        while waiting:
            first, future = waiting.popleft()
            yield from zip(first, future.result(), strict=True)


def _chunks(items: Iterable[Input], size: Callable[[Input], int]) -> Iterator[list[Input]]:
    """The items in lists of `CHUNK`, or of fewer that hold `FULL` by their size."""
    chunk: list[Input] = []
    held = 0
    for item in items:
        chunk.append(item)
        held += size(item)
        if len(chunk) == CHUNK or held >= FULL:
            yield chunk
            chunk, held = [], 0
    if chunk:
        yield chunk


@contextmanager
def _pool(
    workers: int, work: Callable[..., Any], shared: tuple[Any, ...]
) -> Iterator[Callable[[list[Any]], Future[list[Any]]]]:
    """Processes that end when this block is left, or when this process ends; gives a function that hands them a chunk.

    Each of them holds the reading end of a pipe, of which only this process holds the other end. The system closes it
    whatever happens to this process, SIGKILL included.
    """
    # spawned, not forked, as a forked tokenizer may hang on its threads
    context = get_context("spawn")
    held_by_workers, lifeline = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_set_work, initargs=(held_by_workers, work, shared)
    )
    # Processes start when chunks are submitted. Signals interrupt the main thread only, so in another one no process
    # is left half started.
    starter = ThreadPoolExecutor(1)
    try:
        yield lambda chunk: starter.submit(pool.submit, _work_on, chunk).result()
        pool.shutdown()
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process was killed, perhaps because memory ran out (in a script, the calls need "
            '`if __name__ == "__main__":` around them): rows that were written are kept; go on with fewer workers'
        ) from error
    finally:
        starter.shutdown()
        lifeline.close()  # nobody waits for work that was interrupted
        stop_writing(pool)
        pool.shutdown(cancel_futures=True)
        held_by_workers.close()


def stop_writing(pool: ProcessPoolExecutor) -> None:
    """Let a pool forget the work that it is writing to its processes, which have ended or are about to.

    Python before 3.11.5 waits for ever until somebody reads work that is half written, also when the program ends
    (https://github.com/python/cpython/issues/94777). Later versions do the same as this on their own.
    """
    queue = getattr(pool, "_call_queue", None)  # None after an orderly shutdown
    if queue is not None and sys.version_info < (3, 11, 5):
        with suppress(OSError):  # the pool's own threads may close it in the same moment
            queue._reader.close()  # there is no public way


# the work of a process of the pool and its shared arguments; empty in the process that started the pool
_WORK: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def _set_work(lifeline: Connection, work: Callable[..., Any], shared: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the first one ends the others
    end_with(lifeline)
    _WORK[:] = [(work, shared)]


def end_with(lifeline: Connection) -> None:
    """End this process as soon as the other end of a pipe is closed, as the system does when its holder ends."""
    Thread(target=_wait_for, args=(lifeline,), daemon=True).start()


def _wait_for(lifeline: Connection) -> None:
    lifeline.poll(None)
    os._exit(1)


def _work_on(chunk: list[Any]) -> Any:
    ((work, shared),) = _WORK
    return work(chunk, *shared)
