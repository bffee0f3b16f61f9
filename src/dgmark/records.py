"""JSON Lines in and out: one row at a time, bad rows named by line, output files that resume.

Knows nothing of what the rows mean.
"""

import json
import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from dgmark.errors import DgmarkError, InputError, NoTexts, ResumeMismatch

Row = dict[str, Any]
STDIN = "-"

# how each row that dgmark writes begins; a torn last line is known by it
_ROW_START = b'{"id": '


@dataclass(frozen=True)
class BadRow:
    """A line that cannot be used: what to call it, what is wrong with it, and the error it is if it stands alone."""

    row_id: str
    error: str
    kind: type[DgmarkError] = InputError

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


def is_torn_row(line: bytes) -> bool:
    """Whether a line without an end may be a row of dgmark that a crash cut off, and not somebody else's text."""
    return line.startswith(_ROW_START) or _ROW_START.startswith(line)


class RowFile:
    """A JSON Lines file that grows row by row and is taken up again where it stopped.

    Rows are on disk when `append` returns. When the file is opened again, a line cut off by a crash and rows with an
    `error` are removed, to be made again.

    Attributes:
        done: the finished rows' `same` fields, by id.
    """

    def __init__(self, path: Path, must_agree: Row, same: Sequence[str] = ()) -> None:
        """Open or create `path`.

        Args:
            path: the file.
            must_agree: fields that every row of one file shares; rows that differ belong to another run.
            same: fields of a finished row to remember.

        Raises:
            ResumeMismatch: the file holds rows of another run, or no rows.
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
                    raise self._foreign()
                break
            end += len(line)
            row = self._parse(line)
            if "error" in row:
                failed = True
            else:
                self._check(row, must_agree)
                self.done[row["id"]] = {name: row.get(name) for name in same}
        self._file.seek(end)
        self._file.truncate()
        if failed:
            self._drop_failed()

    def _parse(self, line: bytes) -> Row:
        try:
            row = json.loads(line)
            if isinstance(row["id"], str):
                return dict(row)
        except (ValueError, TypeError, KeyError):
            pass
        raise self._foreign()

    def _drop_failed(self) -> None:
        """Write the file again without its error rows, all at once."""
        beside = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        self._file.seek(0)
        with open(beside, "wb") as kept:
            kept.writelines(line for line in self._file if "error" not in self._parse(line))
            kept.flush()
            os.fsync(kept.fileno())
        beside.replace(self.path)
        self._file.close()
        self._file = open(self.path, "r+b")  # noqa: SIM115 (closed on exit)
        self._file.seek(0, os.SEEK_END)

    def _check(self, row: Row, must_agree: Row) -> None:
        different = [name for name, value in must_agree.items() if row.get(name) != value]
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
