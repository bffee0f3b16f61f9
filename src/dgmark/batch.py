"""Many texts: in order, over several processes, taken up again where they stopped. Memory does not grow with them."""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from dgmark.errors import InputError, ResumeMismatch
from dgmark.records import BadRow, Row, is_torn_row, to_line
from dgmark.texts import Item

Given = TypeVar("Given")
Made = TypeVar("Made")

CHUNK = 64
# the field that all rows of one file share, error rows too
SETTINGS = "settings"
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


def take_up(
    path: Path, items: Iterator[Item | BadRow], must_agree: Row, seen: Callable[[Row], object] | None = None
) -> int:
    """Skip the items that `path` already has rows for, in the same order.

    A torn last line and error rows at the end are cut off, to be made again: what was missing may be there now.

    Args:
        path: a file of rows that `append_rows` wrote, or none yet.
        items: the inputs; advanced past those that are done.
        must_agree: fields that every finished row shares with this run, and error rows of them "settings".
        seen: called with each row that is kept.

    Returns:
        How many were skipped.

    Raises:
        ResumeMismatch: the rows are not those of the first items, or of another run, or no rows; the file is untouched.
        InputError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115 (closed by the with below)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error
    with file:
        kept = keep = end = 0
        for place, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                if not is_torn_row(line):
                    raise _foreign(path)
                break
            row = _row(path, line, must_agree)
            end += len(line)
            if "error" not in row:
                kept, keep = place, end
        file.seek(0)
        for line in islice(file, kept):
            row = _row(path, line, must_agree)
            _check_id(path, row, next(items, None))
            if seen:
                seen(row)
        file.truncate(keep)
    return kept


def _row(path: Path, line: bytes, must_agree: Row) -> Row:
    try:
        row = dict(json.loads(line))
        row["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise _foreign(path) from None
    names = [name for name in must_agree if "error" not in row or name == SETTINGS]
    different = [name for name in names if row.get(name) != must_agree[name]]
    if different:
        raise ResumeMismatch(
            f"{path} holds rows made with another {', '.join(different)}; "
            "choose another --out, or delete the file to start again"
        )
    return row


def _check_id(path: Path, row: Row, item: Item | BadRow | None) -> None:
    if item is None or row["id"] != item.row_id:
        raise ResumeMismatch(
            f"{path} holds row {row['id']!r} where the inputs have {item.row_id if item else 'no more'!r}; give the "
            "same inputs in the same order, choose another --out, or delete the file to start again"
        )


def _foreign(path: Path) -> ResumeMismatch:
    return ResumeMismatch(f"{path} holds lines that are no rows of dgmark; choose another --out")


def append_rows(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    """Append rows as they come, each chunk on disk before the next, and pass them on."""
    rows = iter(rows)
    with open(path, "ab") as file:
        while chunk := list(islice(rows, CHUNK)):
            file.write("".join(to_line(row) + "\n" for row in chunk).encode())
            file.flush()
            os.fsync(file.fileno())
            yield from chunk
