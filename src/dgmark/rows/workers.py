"""Many texts: in order, over several processes, taken up again where they stopped. Memory does not grow with them."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from typing import Any, TypeVar

Given = TypeVar("Given")
Made = TypeVar("Made")

CHUNK = 64
# chunks at work or waiting for each process
_AHEAD = 3


def in_order(
    work: Callable[[list[Given]], list[Made]],
    items: Iterable[Given],
    *,
    workers: int = 1,
    prepare: Callable[..., None] | None = None,
    given: tuple[Any, ...] = (),
) -> Iterator[tuple[Given, Made]]:
    """Each item with what `work` makes of it, in the items' order.

    Args:
        work: makes one result for each item of a chunk; with several workers a function of a module.
        items: read as they are needed.
        workers: processes; 1 is this one.
        prepare: called once in each process, with `given`.
        given: what `prepare` gets.
    """
    items = iter(items)
    chunks = iter(lambda: list(islice(items, CHUNK)), [])
    if workers == 1:
        if prepare:
            prepare(*given)
        for chunk in chunks:
            yield from zip(chunk, work(chunk), strict=True)
        return
    # spawned, as a forked tokenizer may hang on its threads
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=prepare, initargs=given)
    waiting: deque[tuple[list[Given], Future[list[Made]]]] = deque()
    try:
        for chunk in chunks:
            waiting.append((chunk, pool.submit(work, chunk)))
            if len(waiting) >= _AHEAD * workers:
                first, future = waiting.popleft()
                yield from zip(first, future.result(), strict=True)
        while waiting:
            first, future = waiting.popleft()
            yield from zip(first, future.result(), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)
