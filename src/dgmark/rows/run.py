"""One run over rows: what a file lacks is made, in batches, on one process or several, and kept before the next batch.

Knows nothing about the meaning of the rows.
"""

from collections.abc import Callable, Iterable, Sequence, Sized
from contextlib import closing, nullcontext
from itertools import islice
from typing import Any

from dgmark.errors import DgmarkError, together
from dgmark.rows.item import Item, Tally
from dgmark.rows.sinks import Result, RowFile
from dgmark.rows.workers import CHUNK, map_in_order

# makes a result or an error of each of some items
Work = Callable[[list[Item]], Sequence[Any]]


def run(
    items: Iterable[Item],
    work: Work,
    sink: RowFile | None = None,
    *,
    tally: Tally | None = None,
    workers: int = 1,
    batch_size: int = CHUNK,
    on_start: Callable[[int | None], object] = lambda _: None,
    on_results: Callable[[list[Result]], object] = lambda _: None,
) -> Tally:
    """Work on the items that a file has no row of, and return the counts of all.

    Args:
        items: the items; one with an error keeps its place, and is not worked on.
        work: makes a result of each of some items, or an error that takes its place. With several workers it must be
            picklable.
        sink: the file that the results go to, which is closed at the end; None for none, so that all are made.
        tally: what counts the results; by default a new one.
        workers: number of processes; 1 works in this process.
        batch_size: largest number of items that are worked on together, and kept together.
        on_start: called with the number of items to work on; None if that is unknown.
        on_results: called with the results of each batch, once they are kept.

    Raises:
        ResumeMismatch: the file holds results of other items.
        InputError: the file cannot be written, or a worker was killed.
    """
    tally = Tally() if tally is None else tally
    with sink or nullcontext():
        left = items if sink is None else sink.missing(items, tally.count_row)
        on_start(len(left) if isinstance(left, Sized) else None)
        made = map_in_order(_outcomes, left, workers=workers, shared=(work,), size=_length, chunk=batch_size)
        with closing(made):
            while results := [_result(item, outcome) for item, outcome in islice(made, batch_size)]:
                for result in results:
                    tally.count(*result)
                if sink is not None:
                    sink.append(results)
                on_results(results)
        if sink is not None:
            sink.finish()
    return tally


def _length(item: Item) -> int:
    """How much of a chunk an item fills: few long texts are in memory at a time."""
    return len(item.content) if isinstance(item.content, str | list) else 0


def _outcomes(work: Work, chunk: list[Item]) -> list[Any]:
    """What is made of the items that can be worked on; the errors of the others."""
    items = [item if item.error is None else item.error for item in chunk]
    return together(lambda good: work(good) if good else [], items)


def _result(item: Item, outcome: Any) -> Result:
    return (item.failed(outcome), None) if isinstance(outcome, DgmarkError) else (item, outcome)
