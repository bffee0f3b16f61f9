"""JSON Lines in and out: one row at a time, bad rows named by line, output files that resume.

Knows nothing of what the rows mean.
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from dgmark.errors import InputError, NoTexts, ResumeMismatch

Row = dict[str, Any]
STDIN = "-"

# how each row that dgmark writes begins; a torn last line is known by it
_ROW_START = b'{"id": '


@dataclass(frozen=True)
class BadRow:
    """A line that cannot be used: what to call it, and what is wrong with it."""

    row_id: str
    error: str

    def to_row(self, schema: int) -> Row:
        """The line's place in the output."""
        return {"id": self.row_id, "error": self.error, "schema": schema}


def parse_rows(lines: Iterable[bytes], source: str) -> Iterator[Row | BadRow]:
    """Rows of a JSON Lines stream; each has an `id` (its own, or "source:line"). Blank lines are skipped."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        name = f"{source}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield BadRow(name, f"not valid JSON: {error}")
            continue
        if not isinstance(row, dict):
            yield BadRow(name, "not a JSON object")
            continue
        yield {**row, "id": str(row["id"]) if row.get("id") is not None else name}


def read_rows(path: str) -> Iterator[Row | BadRow]:
    """Rows of a JSON Lines file, or of standard input for "-".

    Raises:
        NoTexts: the file cannot be opened.
    """
    if path == STDIN:
        yield from parse_rows(sys.stdin.buffer, "stdin")
        return
    try:
        file = open(path, "rb")  # noqa: SIM115 (closed by the with below; opening has its own error)
    except OSError as error:
        raise NoTexts(f"{path} cannot be read: {error.strerror}") from error
    with file:
        yield from parse_rows(file, path)


def to_line(row: Row) -> str:
    """One row as one line of valid JSON (no NaN), Unicode kept as it is where it is well-formed."""
    line = json.dumps(row, ensure_ascii=False, allow_nan=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False)
    return line


class RowFile:
    """A JSON Lines file that grows row by row and is taken up again where it stopped.

    Rows are on disk when `append` returns; a line cut off by a crash is removed when the file is opened again.
    """

    def __init__(self, path: Path, must_agree: Row) -> None:
        """Open or create `path`.

        Args:
            path: the file.
            must_agree: fields that every row of one file shares; rows that differ belong to another run.

        Raises:
            ResumeMismatch: the file holds rows of another run, or no rows.
            InputError: the file cannot be written.
        """
        self.path = path
        self.done: set[str] = set()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: IO[bytes] = open(path, "r+b" if path.exists() else "w+b")  # noqa: SIM115
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from error
        try:
            self._take_up(must_agree)
        except BaseException:
            self._file.close()
            raise

    def _take_up(self, must_agree: Row) -> None:
        end = 0
        for line in self._file:
            if not line.endswith(b"\n"):
                if not (line.startswith(_ROW_START) or _ROW_START.startswith(line)):
                    raise self._foreign()
                break
            end += len(line)
            self._check(line, must_agree)
        self._file.seek(end)
        self._file.truncate()

    def _check(self, line: bytes, must_agree: Row) -> None:
        try:
            row = json.loads(line)
            self.done.add(row["id"])
        except (ValueError, TypeError, KeyError):
            raise self._foreign() from None
        different = [name for name, value in must_agree.items() if "error" not in row and row.get(name) != value]
        if different:
            raise ResumeMismatch(
                f"{self.path} holds rows made with another {', '.join(different)}; "
                "choose another --out, or delete the file to start again"
            )

    def _foreign(self) -> ResumeMismatch:
        return ResumeMismatch(f"{self.path} holds lines that are no rows of dgmark; choose another --out")

    def append(self, rows: Iterable[Row]) -> None:
        """Write rows and see them onto the disk."""
        self._file.write("".join(to_line(row) + "\n" for row in rows).encode())
        self._file.flush()
        os.fsync(self._file.fileno())

    def __enter__(self) -> "RowFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
