"""Tables as text (.csv, .tsv): the cells of each row.

No such file says how it was written: which character separates cells, and whether quotation marks enclose those that
hold separators and line ends, or whether nothing does. Its first line shows the separator. The rows are read in both
ways, and the way is taken that gives each row as many cells as the first. Where both do and their rows are others, the
table is refused, since one of the ways loses rows.
"""

import csv
import io
import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from dgmark.errors import InputError

_DELIMITERS = ",;\t|"
_ONE_COLUMN = "\uffff"  # as the separator of a table of one column, which has none: it is not a character
_STATED = re.compile(r"sep=([^\w\n\"' ])\n", re.IGNORECASE)  # a first line for Excel
_REMEDY = "save it with quotation marks around every cell, and with two for each that a text holds, or as JSON Lines"

IsHeader = Callable[[list[str]], bool]


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        number: its number, from 1; blank rows are counted.
        line: the number of its first line, from 1.
        last: the number of its last line.
        cells: its cells.
    """

    number: int
    line: int
    last: int
    cells: list[str]


class _Way(NamedTuple):
    """A file as it is read in one way.

    Attributes:
        rows: the rows, up to the first that does not fit.
        fault: why the file is not a table in this way; None if it is one.
    """

    rows: list[Row]
    fault: str | None = None


def read_delimited(text: str, is_header: IsHeader) -> list[Row]:
    """Read the rows of a table; the first of them names the columns. Blank lines are not rows.

    Args:
        text: the file, with a line feed at the end of each line.
        is_header: whether the cells of a first row have the names that are needed.

    Returns:
        The rows. If no separator makes such a header of the first row, that row only, with the most cells.

    Raises:
        InputError: a row has more or fewer cells than the first, or it is not clear which cells the file means.
    """
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))  # of all readers of the process
    stated = _STATED.match(text)
    if stated:
        text = "\n" + text[stated.end() :]  # the other lines keep their numbers
    first = re.search(r"[^\n]*\S[^\n]*", text)
    in_first = [sign for sign in (stated[1] if stated else _DELIMITERS) if first and sign in first[0]]
    headers: list[Row] = []
    for delimiter in in_first or [_ONE_COLUMN]:
        ways = [_read(text, delimiter, quote) for quote in ('"', None)]
        enclosed, plain = (way if way.rows and is_header(way.rows[0].cells) else None for way in ways)
        if enclosed or plain:
            rows = _fitting(enclosed, plain, _has_loose_marks(text, delimiter))
            _refuse_escapes(text, rows, delimiter)
            return rows
        headers += [way.rows[0] for way in ways if way.rows]
    return [max(headers, key=lambda row: len(row.cells), default=Row(1, 1, 1, []))]


def _read(text: str, delimiter: str, quote: str | None) -> _Way:
    quoting: Literal[0, 3] = csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL
    source = io.StringIO(text, newline="")
    reader = csv.reader(source, delimiter=delimiter, quotechar=quote, quoting=quoting, strict=True)
    rows: list[Row] = []
    line = 1
    try:
        for number, cells in enumerate(reader, 1):
            # a cell of blanks is a row where the table has no other cells
            blank = len(cells) < 2 and not "".join(cells).strip() and not (cells and rows and delimiter == _ONE_COLUMN)
            if not blank and rows and len(cells) != len(rows[0].cells):
                than, names = "more" if len(cells) > len(rows[0].cells) else "fewer", len(rows[0].cells)
                return _Way(
                    rows,
                    f"row {number} has {than} cells than the first row names ({len(cells)} and {names}), in line "
                    f"{line}, as where a text that holds a separator or a line end stands without quotation marks",
                )
            if not blank:
                rows.append(Row(number, line, reader.line_num, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        return _Way(rows, f"a quotation mark opens a cell in line {line}, and none closes it ({error})")
    return _Way(rows)


def _fitting(enclosed: _Way | None, plain: _Way | None, loose: bool) -> list[Row]:
    """The rows in the way that fits, of the two: with quotation marks that enclose cells, and without.

    Args:
        enclosed: the file as it is read in the first way; None if its first row names other columns.
        plain: the same in the second way.
        loose: whether some quotation marks enclose no cell.

    Raises:
        InputError: neither does, or both do and their rows are others.
    """
    fitting = [way for way in (enclosed, plain) if way and way.fault is None]
    if not fitting:
        raise InputError(f"is damaged: {next(way.fault for way in (enclosed, plain) if way)}: {_REMEDY}")
    first, last = fitting[0].rows, fitting[-1].rows
    if len(first) == len(last):  # which differ by the marks around cells alone
        return last if loose else first
    if len(first[0].cells) > 1 or loose:
        row = next(row for row in first if row.last > row.line)
        raise _unclear(
            row.line, "quotation mark", f"encloses the lines up to line {row.last}, or is a letter of a text"
        )
    return first


def _has_loose_marks(text: str, delimiter: str) -> bool:
    """Whether a quotation mark stands within a cell, and not doubled as in cells that marks enclose."""
    edge = re.escape(f'"\n{delimiter}')
    return bool(re.search(f'(?<=[^{edge}])"(?=[^{edge}])', text))


def _refuse_escapes(text: str, rows: list[Row], delimiter: str) -> None:
    """Refuse what fits only because signs of another convention are read as letters: backslashes, or blanks."""
    behind = set(re.findall(r"\\([^\\]|\\|\Z)", text))  # those of texts stand before other letters, too
    if behind and behind <= {'"', "\\", "\n", "", delimiter, *(_DELIMITERS if delimiter == _ONE_COLUMN else "")}:
        line = text.count("\n", 0, text.index("\\")) + 1
        raise _unclear(line, "backslash", "escapes what stands after it, or is a letter of a text")
    for row in rows:
        if any(re.match(' +"', cell) and cell.count('"') % 2 for cell in row.cells):
            raise _unclear(row.line, "quotation mark", "stands after a separator and a blank")


def _unclear(line: int, sign: str, meaning: str) -> InputError:
    return InputError(f"is not clear: a {sign} in line {line} {meaning}: {_REMEDY}")
