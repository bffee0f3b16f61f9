"""Files of rows that grow, and that a later run continues where an earlier one stopped.

One process writes a file at a time. A file is only ever appended to, and cut back to its last good row. Knows nothing
about the meaning of the rows.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from dgmark.arguments.checks import as_path
from dgmark.errors import InputError, ResumeMismatch
from dgmark.rows.item import Item, Row
from dgmark.rows.jsonl import to_line

# the field that all rows of one file share, including error rows
SETTINGS = "settings"
# every row that dgmark writes begins like this
_ROW_START = b'{"id": '

# an item and what was made of it, which is None if the item has an error
Result = tuple[Item, Any]


class RowFile:
    """A JSON Lines file of the results of a run, which a later run continues.

    Rows are on disk when `append` returns. When a later run appends its first rows, a line that a crash cut off and
    the rows with an `error` at the end are removed, to be made again; until then the file stays as it is. The file is
    locked until it is closed; a process that ends in any way frees it.

    A file that may be another's is never changed. Each row begins with its id and the `mark`, by which it is known.

    In order, the file has a row for each item, in the order of the items, with error rows among the others: items need
    no ids of their own, and none is in memory. Otherwise a row is found by its id whatever its place, all items are in
    memory, and error rows stand last, so that the next run makes them again.

    Args:
        path: the file, or a link to it; it is created if there is none.
        shared: fields that every finished row of one file shares; rows with other values belong to another run. At
            least one.
        row_of: the row of an item and of what was made of it; by default this is the row.
        in_order: whether rows stand in the order of the items.
        source: `Item.source` in words, such as "prompt or seed".
        on_rows: called with the rows of each call of `append`.

    Attributes:
        mark: the fields that every row of the file carries, including error rows: "settings", or all shared fields if
            the rows have no settings.

    Raises:
        InputError: another process is writing the file, or it cannot be written.
        ResumeMismatch: the file holds rows of another run, or lines that may not be rows of dgmark.
    """

    def __init__(
        self,
        path: str | Path,
        shared: Row,
        row_of: Callable[[Item, Any], Row] = lambda _, row: row,
        *,
        in_order: bool = False,
        source: str = "text",
        on_rows: Callable[[list[Row]], object] = lambda _: None,
    ) -> None:
        self.path, self._row_of, self._on_rows = Path(path), row_of, on_rows
        self._in_order, self._source = in_order, source
        self._ids: list[str] = []
        self._failed: list[Row] = []
        self.mark = {SETTINGS: shared[SETTINGS]} if SETTINGS in shared else dict(shared)
        self._file = _opened(self.path)
        try:
            lock(self._file, self.path)
            self._keep = self._length_to_keep(shared)  # bytes
        except BaseException:
            self._file.close()
            raise

    def missing(self, items: Iterable[Item], count: Callable[[Row], object]) -> Iterable[Item]:
        """The items without a row.

        Args:
            items: all items of the run.
            count: called with the row of each of the others.

        Raises:
            ResumeMismatch: the file holds rows of other items.
        """
        if self._in_order:
            left = iter(items)
            for row in self.rows():
                self._check(row, next(left, None))
                count(row)
            return left
        of_ids = {item.row_id: item for item in items}
        self._ids = [*of_ids]
        finished = set()
        for row in self.rows():
            item = of_ids.get(row["id"])
            if item is not None and "error" not in row:
                self._check(row, item)
                count(row)
                finished.add(item.row_id)
        return [item for item in of_ids.values() if item.row_id not in finished]

    def _check(self, row: Row, item: Item | None) -> None:
        """Refuse a row that was not made from an item with a ResumeMismatch."""
        if item is None or row["id"] != item.row_id:
            what = repr(item.row_id) if item else "no more"
            raise ResumeMismatch(
                f"{self.path} holds row {row['id']!r} where the inputs have {what}; "
                "give the same inputs in the same order, choose another --out, or delete the file to start again"
            )
        if any(row.get(name) != value for name, value in item.source.items()):
            raise ResumeMismatch(
                f"{self.path} holds a row {row['id']!r} made from a different {self._source}; choose another --out, or "
                "delete the file to start again"
            )

    def append(self, results: Sequence[Result]) -> None:
        """Write the rows of results, and return when they are on disk; error rows that stand last are kept back.

        Raises:
            InputError: the disk is full, or the file cannot be written for another reason. The file then ends with a
                whole row, and can be resumed.
        """
        rows = [self._row_of(*result) for result in results]
        if not self._in_order:
            self._failed += [row for row in rows if "error" in row]
        self._write(row for row in rows if self._in_order or "error" not in row)
        self._on_rows(rows)

    def finish(self) -> None:
        """Write the error rows that were kept back."""
        if self._failed:
            self._write(self._failed)

    def rows(self) -> Iterator[Row]:
        """Read the rows that the file keeps, in their order; one is in memory at a time."""
        for _, line in self._kept():
            yield json.loads(line)

    def rows_of_items(self) -> Iterator[Row]:
        """Read the row of each item, in the order of the items; one is in memory at a time."""
        if self._in_order:
            yield from self.rows()
            return
        places = {json.loads(line)["id"]: place for place, line in self._kept()}
        with self._lines() as lines:
            for row_id in self._ids:
                lines.seek(places[row_id])
                yield json.loads(lines.readline())

    def _write(self, rows: Iterable[Row]) -> None:
        content = "".join(to_line({"id": row["id"], **self.mark, **row}) + "\n" for row in rows).encode()
        descriptor, left = self._file.fileno(), memoryview(content)
        try:
            os.ftruncate(descriptor, self._keep)
            while left:
                left = left[os.write(descriptor, left) :]
            os.fsync(descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(descriptor, self._keep)
            raise InputError(
                f"{self.path} cannot be written any further: {error.strerror}; the rows before are kept: make room, "
                "and run the same command again"
            ) from error
        self._keep += len(content)

    def _kept(self) -> Iterator[tuple[int, bytes]]:
        """The lines that the file keeps, each with the place where it begins."""
        with self._lines() as lines:
            place = 0
            for line in lines:
                if place >= self._keep:
                    return
                yield place, line
                place += len(line)

    @contextmanager
    def _lines(self) -> Iterator[IO[bytes]]:
        """The file from its start, through the locked descriptor."""
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            lines.seek(0)
            yield lines

    def _length_to_keep(self, shared: Row) -> int:
        """Check every line, and return where the last finished row ends."""
        end = keep = 0
        with self._lines() as lines:
            start = lines.read(len(_ROW_START))
            if start and not _ROW_START.startswith(start):
                raise _foreign(self.path)  # without reading its first line, which may be huge
            lines.seek(0)
            for line in lines:
                if not line.endswith(b"\n"):
                    # a row that a crash cut off begins as the rows before it do, and a power cut may leave zeros
                    cut = line.rstrip(b"\0")
                    if not end:
                        raise ResumeMismatch(
                            f"{self.path} holds one unfinished line, which may not be a row of this run: choose "
                            "another --out, or delete the file to start again"
                        )
                    if not (cut.startswith(_ROW_START) or _ROW_START.startswith(cut)):
                        raise _foreign(self.path)
                    break
                end += len(line)
                if "error" not in self._own_row(line, shared):
                    keep = end
        return keep

    def _own_row(self, line: bytes, shared: Row) -> Row:
        """Parse a line, and check that it is a row of this run."""
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise _foreign(self.path) from None
        if not isinstance(row, dict):
            raise _foreign(self.path)
        expected = self.mark if "error" in row else shared
        different = [name for name, value in expected.items() if row.get(name) != value]
        if different:
            raise ResumeMismatch(
                f"{self.path} holds rows of another run, which differs in {', '.join(different)}; "
                "choose another --out, or delete the file to start again"
            )
        return row

    def __enter__(self) -> "RowFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _opened(path: Path) -> IO[bytes]:
    """Open a regular file to append to it, without a buffer; create it if there is none."""
    as_path(path, "the output")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file: IO[bytes] = open(path, "a+b", buffering=0)  # noqa: SIM115 (closed by the RowFile)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}; choose another --out") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(f"{path} is not a file that can hold rows, but a device or a pipe; choose another --out")
    return file


def lock(file: IO[bytes], path: Path) -> None:
    """Lock the file against other processes until it is closed.

    The lock is on the file itself: it needs no second file, holds under every name of the file, and ends with the
    process.

    Raises:
        InputError: another process has locked the file.
        InputError: the file system cannot lock files.
    """
    import portalocker  # here, as it is slow to import

    try:
        portalocker.lock(file, portalocker.LockFlags.EXCLUSIVE | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.AlreadyLocked:
        raise InputError(
            f"{path} is being written by another process: wait until it ends, or choose another --out"
        ) from None
    except portalocker.LockException as error:
        raise InputError(
            f"{path} lies on a file system that cannot lock files ({error}), so that two runs could mix their rows: "
            "choose another --out, such as one on a local disk"
        ) from error


def _foreign(path: Path) -> ResumeMismatch:
    return ResumeMismatch(f"{path} holds lines that are not rows of dgmark; choose another --out, or delete it")
