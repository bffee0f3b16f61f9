"""Files of rows that grow, and that a later run continues where an earlier one stopped.

Knows nothing about the meaning of the rows.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import IO

from dgmark.errors import InputError, ResumeMismatch
from dgmark.rows.jsonl import BadRow, Row, to_line
from dgmark.rows.texts import Item
from dgmark.rows.whole_files import replacing_file
from dgmark.rows.workers import CHUNK

# the field that all rows of one file share, including error rows
SETTINGS = "settings"
# every row that dgmark writes begins like this, which identifies a torn last line
_ROW_START = b'{"id": '


def is_torn_row(line: bytes) -> bool:
    """Whether a line without a line end may be a row of dgmark that a crash cut off, and not another text."""
    return line.startswith(_ROW_START) or _ROW_START.startswith(line)


class RowFile:
    """A JSON Lines file that grows row by row, and that a later run continues.

    Rows are on disk when `append` returns. When a later run appends its first rows, a line that a crash cut off and
    rows with an `error` are removed, to be made again; until then the file stays as it is.

    Attributes:
        done: the `same` fields of the finished rows, by id.
    """

    def __init__(self, path: Path, must_agree: Row, same: Sequence[str] = ()) -> None:
        """Open or create `path`.

        Args:
            path: the file.
            must_agree: fields that every row of one file shares; rows with other values belong to another run.
            same: fields of a finished row to remember.

        Raises:
            ResumeMismatch: the file holds rows of another run, or lines that are not rows.
            InputError: the file cannot be written.
        """
        self.path = path
        self.done: dict[str, Row] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from error
        try:
            self._take_up(must_agree, same)
        except BaseException:
            self._file.close()
            raise

    def _take_up(self, must_agree: Row, same: Sequence[str]) -> None:
        end = 0
        failed = False
        for line in self._file:
            if not line.endswith(b"\n"):
                if not is_torn_row(line):
                    raise _foreign(self.path)
                break
            end += len(line)
            row = _parse(self.path, line)
            if "error" in row:
                failed = True
            else:
                _check_agreement(self.path, row, must_agree)
                self.done[row["id"]] = {name: row.get(name) for name in same}
        self._complete: int | None = end  # bytes of whole rows; None once the file ends there
        self._failed = failed

    def _cut(self, complete: int) -> None:
        """Cut off what is to be made again: what follows the whole rows, and the error rows among them."""
        self._file.seek(complete)
        self._file.truncate()
        self._complete = None
        if not self._failed:
            return
        self._file.seek(0)
        with replacing_file(self.path) as beside, open(beside, "wb") as new:
            new.writelines(line for line in self._file if "error" not in _parse(self.path, line))
        self._file.close()
        self._file = open(self.path, "r+b")  # noqa: SIM115 (closed on exit)
        self._file.seek(0, os.SEEK_END)

    def append(self, rows: Iterable[Row]) -> None:
        """Write rows, and return when they are on disk."""
        if self._complete is not None:
            self._cut(self._complete)
        _write(self._file, rows)

    def __enter__(self) -> "RowFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def take_up(
    path: Path, items: Iterator[Item | BadRow], must_agree: Row, seen: Callable[[Row], object] | None = None
) -> int:
    """Skip the items that `path` already has rows for, in the same order.

    A torn last line and error rows at the end are cut off, to be made again: the reason of the error may be gone.

    Args:
        path: a file of rows that `append_rows` wrote; it need not exist.
        items: the inputs; advanced past those that have rows.
        must_agree: fields that every finished row shares with this run; error rows share only "settings".
        seen: called with each row that is kept.

    Returns:
        The number of skipped items.

    Raises:
        ResumeMismatch: the rows are not those of the first items, belong to another run, or are not rows; the file is
            unchanged.
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


def _parse(path: Path, line: bytes) -> Row:
    try:
        row = json.loads(line)
        if isinstance(row["id"], str):
            return dict(row)
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise _foreign(path)


def _row(path: Path, line: bytes, must_agree: Row) -> Row:
    row = _parse(path, line)
    names = [name for name in must_agree if "error" not in row or name == SETTINGS]
    _check_agreement(path, row, {name: must_agree[name] for name in names})
    return row


def _check_agreement(path: Path, row: Row, must_agree: Row) -> None:
    different = [name for name, value in must_agree.items() if row.get(name) != value]
    if different:
        raise ResumeMismatch(
            f"{path} holds rows of another run, which differs in {', '.join(different)}; "
            "choose another --out, or delete the file to start again"
        )


def _check_id(path: Path, row: Row, item: Item | BadRow | None) -> None:
    if item is None or row["id"] != item.row_id:
        raise ResumeMismatch(
            f"{path} holds row {row['id']!r} where the inputs have {item.row_id if item else 'no more'!r}; give the "
            "same inputs in the same order, choose another --out, or delete the file to start again"
        )


def _foreign(path: Path) -> ResumeMismatch:
    return ResumeMismatch(f"{path} holds lines that are not rows of dgmark; choose another --out")


def append_rows(path: Path, rows: Iterable[Row]) -> Iterator[Row]:
    """Append rows as they come, and yield them; each chunk is on disk before its rows are yielded."""
    rows = iter(rows)
    with open(path, "ab") as file:
        while chunk := list(islice(rows, CHUNK)):
            _write(file, chunk)
            yield from chunk


def _write(file: IO[bytes], rows: Iterable[Row]) -> None:
    """Write rows, and return when they are on disk."""
    file.write("".join(to_line(row) + "\n" for row in rows).encode())
    file.flush()
    os.fsync(file.fileno())
