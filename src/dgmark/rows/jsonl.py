"""JSON Lines in and out: one row at a time, bad rows named by line.

Knows nothing of what the rows mean.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dgmark.errors import DgmarkError, InputError, NoTexts

Row = dict[str, Any]
STDIN = "-"


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


def read_good_rows(path: str) -> Iterator[Row]:
    """Rows of a JSON Lines file of which none may be bad; "-" is standard input.

    Raises:
        NoTexts: the file cannot be opened.
        InputError: a line cannot be used.
    """
    for row in read_rows(path):
        if isinstance(row, BadRow):
            raise InputError(f"{row.row_id}: {row.error}")
        yield row


def to_line(row: Row) -> str:
    """One row as one line of valid JSON (no NaN), Unicode kept as it is where it is well-formed."""
    line = json.dumps(row, ensure_ascii=False, allow_nan=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False)
    return line
