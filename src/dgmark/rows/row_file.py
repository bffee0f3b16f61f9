"""Files of rows that grow, and that a later run continues where an earlier one stopped.

One process writes a file at a time. A file is only ever appended to, and cut back to its last good row. Knows nothing
about the meaning of the rows.
"""

import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO

from dgmark.arguments.checks import as_path
from dgmark.errors import InputError, ResumeMismatch
from dgmark.rows.jsonl import Row, to_line

# the field that all rows of one file share, including error rows
SETTINGS = "settings"
# every row that dgmark writes begins like this
_ROW_START = b'{"id": '


class RowFile:
    """A JSON Lines file that grows row by row, and that a later run continues.

    Rows are on disk when `append` returns. When a later run appends its first rows, a line that a crash cut off and
    the rows with an `error` at the end are removed, to be made again; until then the file stays as it is. The file is
    locked until it is closed; a process that ends in any way frees it.

    A file that may be another's is never changed. Each row begins with its id and the `mark`, by which it is known.

    Attributes:
        path: the file.
        mark: the fields that every row of the file carries, including error rows: "settings", or all shared fields if
            the rows have no settings.
    """

    def __init__(self, path: Path, must_agree: Row, same: Sequence[str] = ()) -> None:
        """Open or create `path`.

        Args:
            path: the file, or a link to it.
            must_agree: fields that every finished row of one file shares; rows with other values belong to another
                run. At least one.
            same: fields of a finished row to remember in `done`.

        Raises:
            InputError: another process is writing the file.
            ResumeMismatch: the file holds rows of another run, or lines that may not be rows of dgmark.
            InputError: the file cannot be written.
        """
        self.path = path
        self.mark = {SETTINGS: must_agree[SETTINGS]} if SETTINGS in must_agree else dict(must_agree)
        self._same = same
        self._file = _opened(path)
        try:
            lock(self._file, path)
            self._keep = self._length_to_keep(must_agree)  # bytes
        except BaseException:
            self._file.close()
            raise

    @cached_property
    def done(self) -> dict[str, Row]:
        """The `same` fields of the finished rows, by id."""
        return {row["id"]: {name: row.get(name) for name in self._same} for row in self.rows() if "error" not in row}

    def rows(self) -> Iterator[Row]:
        """Read the rows that the file keeps, in order; one is in memory at a time."""
        with self._lines() as lines:
            left = self._keep
            for line in lines:
                if left <= 0:
                    return
                left -= len(line)
                yield json.loads(line)

    def rows_of(self, ids: Iterable[str]) -> Iterator[Row]:
        """Read the rows of these ids that the file keeps, in the order of the ids; one is in memory at a time."""
        places: dict[str, int] = {}
        with self._lines() as lines:
            at = 0
            for line in lines:
                if at >= self._keep:
                    break
                places[json.loads(line)["id"]] = at
                at += len(line)
            for row_id in ids:
                lines.seek(places[row_id])
                yield json.loads(lines.readline())

    def append(self, rows: Iterable[Row]) -> None:
        """Write rows, and return when they are on disk.

        Raises:
            InputError: the disk is full, or the file cannot be written for another reason. The file then ends with a
                whole row, and can be resumed.
        """
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

    @contextmanager
    def _lines(self) -> Iterator[IO[bytes]]:
        """The file from its start, through the locked descriptor."""
        with open(self._file.fileno(), "rb", closefd=False) as lines:
            lines.seek(0)
            yield lines

    def _length_to_keep(self, must_agree: Row) -> int:
        """Check every line, and return where the last finished row ends."""
        end = keep = 0
        with self._lines() as lines:
            start = lines.read(len(_ROW_START))
            if start and not _ROW_START.startswith(start):
                raise _foreign(self.path)  # without reading its first line, which may be huge
            lines.seek(0)
            for line in lines:
                if not line.endswith(b"\n"):
                    # a row that a crash cut off begins as the rows before it do
                    if not end:
                        raise ResumeMismatch(
                            f"{self.path} holds one unfinished line, which may not be a row of this run: choose "
                            "another --out, or delete the file to start again"
                        )
                    if not (line.startswith(_ROW_START) or _ROW_START.startswith(line)):
                        raise _foreign(self.path)
                    break
                end += len(line)
                if "error" not in self._own_row(line, must_agree):
                    keep = end
        return keep

    def _own_row(self, line: bytes, must_agree: Row) -> Row:
        """Parse a line, and check that it is a row of this run."""
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            raise _foreign(self.path) from None
        if not isinstance(row, dict):
            raise _foreign(self.path)
        shared = self.mark if "error" in row else must_agree
        different = [name for name, value in shared.items() if row.get(name) != value]
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
