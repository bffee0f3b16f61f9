"""Read and write JSON Lines one row at a time; a bad row is named by its line.

Knows nothing about the meaning of the rows.
"""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dgmark.errors import DgmarkError, InputError, NoTexts

Row = dict[str, Any]
STDIN = "-"
# the field of a row that holds the hash of the text that it was made from
SOURCE_SHA256 = "source_sha256"


@dataclass(frozen=True)
class BadRow:
    """An unusable line.

    Attributes:
        row_id: names the line: its id, or "source:line".
        error: what is wrong with it.
        kind: the error to raise if no other line is usable.
        source_sha256: hash of the text, if the line holds one (see `sha256_of`).
    """

    row_id: str
    error: str
    kind: type[DgmarkError] = InputError
    source_sha256: str | None = None

    def to_row(self, schema: int) -> Row:
        """The row that takes the line's place in the output."""
        source = {} if self.source_sha256 is None else {SOURCE_SHA256: self.source_sha256}
        return {"id": self.row_id, "error": self.error, **source, "schema": schema}


def sha256_of(content: str | list[int]) -> str:
    """The SHA-256 of a text's UTF-8, or of ids as a JSON list without spaces: which input a row was made from."""
    text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def parse_rows(lines: Iterable[bytes], source: str) -> Iterator[Row | BadRow]:
    """Parse a JSON Lines stream; each row has an `id` (its own, or "source:line"). Blank lines are skipped."""
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
    """Read the rows of a JSON Lines file, or of standard input for "-".

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
    """Read the rows of a JSON Lines file, or of standard input for "-"; a bad row is an error.

    Raises:
        NoTexts: the file cannot be opened.
        InputError: a line is unusable.
    """
    for row in read_rows(path):
        if isinstance(row, BadRow):
            raise InputError(f"{row.row_id}: {row.error}")
        yield row


def to_line(row: Row) -> str:
    """One row as one line of valid JSON (no NaN); well-formed Unicode is not escaped."""
    line = json.dumps(row, ensure_ascii=False, allow_nan=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False)
    return line
