"""Work on many items: in order, over several processes. Memory does not grow with their number."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar

Input = TypeVar("Input")
Output = TypeVar("Output")

CHUNK = 64
# chunks at work or waiting for each process
_AHEAD = 3


def in_order(
    work: Callable[..., list[Output]], items: Iterable[Input], *, workers: int = 1, shared: tuple[Any, ...] = ()
) -> Iterator[tuple[Input, Output]]:
    """Each item with what `work` makes of it, in the items' order.

    Args:
        work: called as `work(chunk, *shared)`, makes one result for each item of the chunk; with several workers a
            function of a module.
        items: read as they are needed.
        workers: processes; 1 is this one.
        shared: further arguments of `work`, sent to each process once.
    """
    items = iter(items)
    chunks = iter(lambda: list(islice(items, CHUNK)), [])
    if workers == 1:
        for chunk in chunks:
            yield from zip(chunk, work(chunk, *shared), strict=True)
        return
    # spawned, as a forked tokenizer may hang on its threads
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_keep, initargs=(work, shared))
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


# what a process of the pool works with; empty in the process that made the pool
_KEPT: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []


def _keep(work: Callable[..., Any], shared: tuple[Any, ...]) -> None:
    _KEPT[:] = [(work, shared)]


def _work_on(chunk: list[Any]) -> Any:
    ((work, shared),) = _KEPT
    return work(chunk, *shared)
