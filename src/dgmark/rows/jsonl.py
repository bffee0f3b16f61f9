"""Read and write JSON Lines one row at a time; an unusable row becomes an item with an error.

Knows nothing about the meaning of the rows.
"""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import BufferedIOBase
from itertools import chain, repeat
from typing import Any, cast

from dgmark.errors import InputError, NoTexts
from dgmark.files.inputs import MAX_LINE_BYTES, STDIN, bounded_lines, open_input
from dgmark.rows.item import Item, Row

# of files of JSON Lines
SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
_UTF_8 = ("utf-8", "utf-8-sig")
# those that json.dumps leaves as they are
_CONTROLS = re.compile("[\x7f-\x9f]")


class RepeatedField(ValueError):
    """An object of JSON has two fields of one name, of which parsers take either.

    Attributes:
        name: the name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f'two fields are named "{name}": keep one of them, or name them apart')
        self.name = name


def parse_json(content: str | bytes, **hooks: Any) -> Any:
    """Parse JSON in which no object has two fields of one name, with these hooks of `json.loads`.

    Raises:
        RepeatedField: one has.
        ValueError: it is not valid JSON.
        RecursionError: it is nested too deeply.
    """
    return json.loads(content, object_pairs_hook=_named_once, **hooks)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        ((name, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise RepeatedField(name)
    return fields


def parse_rows(lines: Iterable[bytes | None], source: str) -> Iterator[Row | Item]:
    """Parse a JSON Lines stream; each row has an `id` (its own, or "source:line"). Blank lines are skipped.

    A row with two fields of one name is a bad row, at any depth. Names that differ by case are two names.

    Args:
        lines: the lines; None in place of a line that is too long.
        source: name of the stream.

    Raises:
        InputError: the stream is UTF-16 or UTF-32, whose lines do not end where bytes of line ends stand.
    """
    for number, line in enumerate(lines, 1):
        name = f"{source}:{number}"
        if number == 1 and line and json.detect_encoding(line[:4]) not in _UTF_8 and _is_object(line):
            encoding = json.detect_encoding(line[:4])[:6].upper()
            raise InputError(
                f"{source} is {encoding}, and JSON Lines are UTF-8: convert it, as with `iconv -f {encoding} -t UTF-8`"
            )
        if line is None:
            yield Item(name).failed("the line is too long: cut the text into parts")
            continue
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except RepeatedField as error:
            yield Item(name).failed(str(error))
            continue
        except (ValueError, RecursionError) as error:
            yield Item(name).failed(f"not valid JSON: {error}")
            continue
        if not isinstance(row, dict):
            yield Item(name).failed("not a JSON object")
            continue
        yield {**row, "id": str(row["id"]) if row.get("id") is not None else name}


def is_rows(path: str) -> bool:
    """Whether a path names a file of JSON Lines, by its ending."""
    return path.lower().endswith(SUFFIXES)


def read_rows(path: str) -> Iterator[Row | Item]:
    """Read the rows of a JSON Lines file, which may be compressed (.gz), or of standard input for "-".

    A line of more than `MAX_LINE_BYTES` bytes is a bad row, and is never in memory as a whole.

    Raises:
        NoTexts: the file cannot be read.
        InputError: it is UTF-16 or UTF-32.
    """
    with open_lines(path) as file:
        yield from parse_rows(bounded_lines(file), "stdin" if path == STDIN else path)


@contextmanager
def open_lines(path: str) -> Iterator[BufferedIOBase]:
    """Open a file of lines, compressed (.gz) or not, or standard input for "-"; a NoTexts if it cannot be read."""
    with open_input(path, "a JSON Lines file") as file:
        if not path.lower().endswith(".gz"):
            yield file
            return
        try:
            with gzip.open(file) as lines:
                yield cast(BufferedIOBase, lines)
        except (EOFError, zlib.error) as error:
            raise NoTexts(f"{path} is damaged: {error}") from None


def rows_or_text(file: BufferedIOBase, source: str, largest_text: int) -> Iterator[Row | Item] | bytes:
    """The rows of a stream of JSON Lines, or else its content as one text.

    The first line that is not blank decides. Rows are read as they come.

    Args:
        file: the stream.
        source: its name.
        largest_text: bytes of the largest text; of a larger one, one byte more is returned.
    """
    blank, first = bytearray(), file.readline(MAX_LINE_BYTES + 1)
    while first.isspace() and len(blank) <= MAX_LINE_BYTES:
        blank += first
        first = file.readline(MAX_LINE_BYTES + 1)
    if _is_object(first) or (len(first) > MAX_LINE_BYTES and first.startswith(b"{")):
        before = repeat(b"", blank.count(b"\n"))  # so that rows are named by their lines
        return parse_rows(chain(before, bounded_lines(file, line=first)), source)
    head = bytes(blank) + first
    return head[: largest_text + 1] + file.read(max(0, largest_text + 1 - len(head)))


def _is_object(line: bytes) -> bool:
    encoding = json.detect_encoding(line[:4])
    content = line if encoding in _UTF_8 else line.decode(encoding, "ignore")  # the line end is cut in two
    try:
        return isinstance(json.loads(content), dict)
    except (ValueError, RecursionError):
        return False


def read_good_rows(path: str) -> Iterator[Row]:
    """Read the rows of a JSON Lines file, or of standard input for "-"; a bad row is an error.

    Raises:
        NoTexts: the file cannot be opened.
        InputError: a line is unusable.
    """
    for row in read_rows(path):
        if isinstance(row, Item):
            raise row.raised()
        yield row


def to_line(row: Row) -> str:
    """One row as one line of valid JSON (no NaN); well-formed Unicode is not escaped, but for control characters."""
    line = json.dumps(row, ensure_ascii=False, allow_nan=False)
    line = _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", line)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(row, allow_nan=False)
    return line
