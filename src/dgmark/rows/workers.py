"""Work on many items, in order, on several processes. Memory does not grow with the number of items."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar

Input = TypeVar("Input")
Output = TypeVar("Output")

CHUNK = 64
# chunks in progress or queued for each process
_AHEAD = 3


def map_in_order(
    work: Callable[..., list[Output]], items: Iterable[Input], *, workers: int = 1, shared: tuple[Any, ...] = ()
) -> Iterator[tuple[Input, Output]]:
    """Yield each item with its result, in the items' order.

    Args:
        work: called as `work(chunk, *shared)`; returns one result for each item of the chunk. With several workers it
            must be a module-level function.
        items: read as they are needed.
        workers: number of processes; 1 works in this process.
        shared: further arguments of `work`, sent to each process once.
    """
    items = iter(items)
    chunks = iter(lambda: list(islice(items, CHUNK)), [])
    if workers == 1:
        for chunk in chunks:
            yield from zip(chunk, work(chunk, *shared), strict=True)
        return
    # spawned, not forked, as a forked tokenizer may hang on its threads
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_set_work, initargs=(work, shared))
    waiting: deque[tuple[list[Input], Future[list[Output]]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(_work_on, chunk)))
            if len(waiting) >= _AHEAD * workers:
                first, future = waiting.popleft()
                yield from zip(first, future.result(), strict=True)
        while waiting:
            first, future = waiting.popleft()
            yield from zip(first, future.result(), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)


# the work of a process of the pool and its shared arguments; empty in the process that started the pool
_WORK: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def _set_work(work: Callable[..., Any], shared: tuple[Any, ...]) -> None:
    _WORK[:] = [(work, shared)]


def _work_on(chunk: list[Any]) -> Any:
    ((work, shared),) = _WORK
    return work(chunk, *shared)
