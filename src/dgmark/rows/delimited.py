"""Tables as text (.csv, .tsv): the cells of each row.

No such file says how it was written: which character separates cells, and whether quotation marks enclose those that
hold separators and line ends, or whether nothing does. Its first line shows the separator. The rows are read in both
ways, and a way fits if each row has as many cells as the first. Where both fit and differ, what writers of such files
do decides. Where that does not decide either, the table is refused, since one of the ways loses rows or letters.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from dgmark.errors import InputError

_DELIMITERS = ",;\t|"
_ONE_COLUMN = "\uffff"  # as the separator of a table of one column, which has none: it is no character
_STATED = re.compile(r"sep=([^\w\n\"' ])\n", re.IGNORECASE)  # a first line for Excel
_REGULAR = 20  # rows for each further form of the cells of a column
_MARK = "quotation mark"
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


class _Cell(NamedTuple):
    line: int
    text: str
    enclosed: bool  # whether quotation marks stand around it


@dataclass(frozen=True)
class _Grid:
    """A file that is read in one way.

    Attributes:
        text: the file.
        delimiter: the character that separates cells.
        quote: the mark that encloses cells; None if none does.
        rows: the rows, up to the first that does not fit.
        fault: why the file is no table in this way; None if it is one.
    """

    text: str
    delimiter: str
    quote: str | None
    rows: list[Row]
    fault: str | None

    @property
    def columns(self) -> int:
        return len(self.rows[0].cells)

    @cached_property
    def forms(self) -> list[set[str]]:
        """For each column, the forms of its cells, if they are few, as those of ids and dates are; else none."""
        rows = [row.cells for row in self.rows[1:] if row.line == row.last]
        forms = [set(map(_form, column)) for column in zip(*rows, strict=True)] if len(rows) > 1 else []
        return [found if len(found) <= 1 + len(rows) // _REGULAR else set() for found in forms]

    def lines_of_rows(self) -> Iterator[tuple[Row, list[str]]]:
        """Each row, and its lines as they stand in the file."""
        lines = self.text.split("\n")
        return ((row, lines[row.line - 1 : row.last]) for row in self.rows)

    def cells(self) -> Iterator[_Cell]:
        """All cells, with the marks that stand around them."""
        quote = self.quote or ""
        for row, lines in self.lines_of_rows():
            at, source = 0, "\n".join(lines)
            for cell in row.cells:
                enclosed = bool(quote) and source.startswith(quote, at)
                yield _Cell(row.line, cell, enclosed)
                at += len(cell) + 1 + (2 + cell.count(quote) if enclosed else 0)


def read_delimited(text: str, is_header: IsHeader) -> list[Row]:
    """Read the rows of a table; the first of them names the columns. Blank lines are no rows.

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
    in_first = [one for one in (stated[1] if stated else _DELIMITERS) if first and one in first[0]]
    headers: list[Row] = []
    for delimiter in in_first or [_ONE_COLUMN]:
        first_way = _read(text, delimiter, '"')
        ways = [first_way, _read(text, delimiter, None) if '"' in text else first_way]
        enclosed, plain = (grid if grid.rows and is_header(grid.rows[0].cells) else None for grid in ways)
        if enclosed or plain:
            grid = _fitting(enclosed, plain)
            _refuse_other_conventions(grid, is_header)
            return grid.rows
        headers += [grid.rows[0] for grid in ways if grid.rows]
    return [max(headers, key=lambda row: len(row.cells), default=Row(1, 1, 1, []))]


def _read(text: str, delimiter: str, quote: str | None) -> _Grid:
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
                fault = (
                    f"row {number} has {than} cells than the first row names ({len(cells)} and {names}), in line "
                    f"{line}, as where a text that holds a separator or a line end stands without quotation marks"
                )
                return _Grid(text, delimiter, quote, rows, fault)
            if not blank:
                rows.append(Row(number, line, reader.line_num, cells))
            line = reader.line_num + 1
    except csv.Error as error:
        fault = f"a quotation mark opens a cell in line {line}, and none closes it ({error})"
        return _Grid(text, delimiter, quote, rows, fault)
    return _Grid(text, delimiter, quote, rows, None)


def _fitting(enclosed: _Grid | None, plain: _Grid | None) -> _Grid:
    """The way that fits, of the two: with quotation marks that enclose cells, and without.

    Raises:
        InputError: neither does, or it is not clear which.
    """
    if enclosed and enclosed.fault is None:
        if plain is None:  # the names of the columns are enclosed, so that cells are, too
            return enclosed
        if plain.fault:
            _refuse_swallowed(enclosed)
            return enclosed
        return enclosed if enclosed.rows == plain.rows else _likelier(enclosed, plain)
    if plain and plain.fault is None:
        return plain
    fault = next(grid.fault for grid in (enclosed, plain) if grid)
    raise InputError(f"is damaged: {fault}: {_REMEDY}")


def _refuse_swallowed(grid: _Grid) -> None:
    """Refuse a cell that goes on over line ends and holds what looks like rows.

    Raises:
        InputError: there is one; or other quotation marks enclose no cell, so that those of such a cell may not.
    """
    long = [(row, lines) for row, lines in grid.lines_of_rows() if row.last > row.line]
    for row, lines in long:
        if _look_like_rows(row, lines, grid):
            raise _unclear(row.line, _MARK, f"encloses what looks like the rows up to line {row.last}")
    loose = _first_loose(grid) if long else None
    if loose:
        line = long[0][0].line
        raise _unclear(line, _MARK, f"opens a cell of several lines, while those in line {loose} enclose no cell")


def _look_like_rows(row: Row, lines: list[str], grid: _Grid) -> bool:
    """Whether the lines of a row look like several rows."""
    delimiter, columns = grid.delimiter, grid.columns
    if delimiter == "\t":
        return any("\n" in cell and "\t" in cell for cell in row.cells)
    split = [line.split(delimiter) for line in lines if line.strip()]
    if columns == 1 or any(len(cells) != columns for cells in split):
        return False
    # a line of such a row that begins or ends with the row's own cells shows nothing by these
    long = next(at for at, cell in enumerate(row.cells) if "\n" in cell)
    shown = {at: split[1:] if at < long else split[:-1] for at, forms in enumerate(grid.forms) if forms and at != long}
    if shown:
        return any(all(_form(cells[at]) in grid.forms[at] for cells in found) for at, found in shown.items())
    if any(all(_form(cells[at]) == _form(split[0][at]) for cells in split[1:]) for at in range(long)):
        return True
    # punctuation has a blank behind it
    spaced = any(cell.startswith(" ") for cell in grid.rows[0].cells)
    return spaced or not any(cell.startswith(" ") for cells in split[1:] for cell in cells[1:])


def _form(cell: str) -> str:
    return re.sub("[0-9]+", "0", re.sub(r"[^\W\d_]+", "a", cell.strip('"')))


def _likelier(enclosed: _Grid, plain: _Grid) -> _Grid:
    """Of two ways that both fit and differ, the one that writers of such files take.

    Writers that enclose cells leave no quotation mark in a cell that is not enclosed, and double those within. People
    who enclose nothing do not double them.

    Raises:
        InputError: both ways are as likely.
    """
    delimiter, cells = enclosed.delimiter, list(enclosed.cells())
    marks = [cell for cell in cells if cell.enclosed]
    # where tabs separate cells, Excel encloses those with commas, too
    commas = delimiter == "\t" and all(cell.enclosed for cell in cells if "," in cell.text)
    special = {'"', "\n", delimiter, *("," if commas else "")}
    needed = [cell for cell in marks if special & set(cell.text)]
    sure = len(needed) > 1 or sum(len(re.findall('(?<!")"(?!")', cell.text)) for cell in marks) > 1
    loose = _first_loose(enclosed)
    if len(enclosed.rows) < len(plain.rows):
        _refuse_swallowed(enclosed)
        long = next(cell for cell in marks if "\n" in cell.text)
        if enclosed.columns > 1 or sure or "\n\n" in long.text:
            return enclosed
        raise _unclear(long.line, _MARK, "encloses several lines, or is the first letter of a text")
    if loose and not needed:
        return plain
    if not loose and (delimiter != "\t" or (len(needed) == len(marks) and sure)):
        return enclosed
    if not needed and not _fill_a_column(marks, enclosed):
        return plain
    raise _unclear(marks[0].line, _MARK, "encloses a cell, or is the first letter of a text")


def _first_loose(grid: _Grid) -> int | None:
    """The line of the first quotation mark in a cell that none encloses; None if there is none."""
    return next((cell.line for cell in grid.cells() if '"' in cell.text and not cell.enclosed), None)


def _fill_a_column(marks: list[_Cell], grid: _Grid) -> bool:
    """Whether all cells of a column are enclosed, as some writers do for texts."""
    enclosed = Counter(cell.text for cell in marks)
    columns = zip(*(row.cells for row in grid.rows[1:]), strict=True)
    return any(any(column) and Counter(filter(None, column)) <= enclosed for column in columns)


def _refuse_other_conventions(grid: _Grid, is_header: IsHeader) -> None:
    """Refuse what fits only because the signs of another convention are taken for letters.

    Raises:
        InputError: backslashes escape, single quotation marks enclose, blanks stand between separators and quotation
            marks, or the rows have more cells than the first names.
    """
    separators = {*_DELIMITERS} if grid.delimiter == _ONE_COLUMN else {grid.delimiter}
    if "\\" in grid.text:
        _refuse_escapes(grid, separators)
    if re.search(f"(?:^|[\n{re.escape(grid.delimiter)}])'", grid.text):
        single = _read(grid.text, grid.delimiter, "'")
        if single.fault is None and single.rows != grid.rows and is_header(single.rows[0].cells):
            _refuse_single_marks(single, separators)
    if ' "' in grid.text and grid.delimiter != "\t":
        for row in grid.rows:
            if any(re.match(' +"', cell) and cell.count('"') % 2 for cell in row.cells):
                raise _unclear(row.line, _MARK, "stands behind a separator and a blank")
    if grid.delimiter == _ONE_COLUMN:
        _refuse_more_columns(grid.rows)


def _refuse_escapes(grid: _Grid, separators: set[str]) -> None:
    """Refuse backslashes that all stand before what is escaped; those of texts stand before other letters, too."""
    text = grid.text
    escapes = {'"', "\\"}
    if not any(cell.enclosed for cell in grid.cells()):
        escapes |= {"\n", "", *separators, *("ntrN0" if grid.delimiter == "\t" else "")}
    behind = {found[1] for found in re.finditer(r"\\([^\\]|\\|\Z)", text)}
    if behind <= escapes or ('"' in behind and grid.quote is None):
        line = text.count("\n", 0, text.index("\\")) + 1
        raise _unclear(line, "backslash", "escapes what stands behind it, or is a letter of a text")


def _refuse_single_marks(single: _Grid, separators: set[str]) -> None:
    """Refuse a table that fits with single quotation marks around cells, too, if some of these cells need them."""
    cells = list(single.cells())
    needed = [cell for cell in cells if cell.enclosed and {"'", "\n", *separators} & set(cell.text)]
    if needed and all(cell.enclosed for cell in cells if "'" in cell.text):
        raise _unclear(needed[0].line, "single quotation mark", "encloses a cell, or is a letter of a text")


def _refuse_more_columns(rows: list[Row]) -> None:
    """Refuse a table of one column whose rows all have the same number of separators, none with a blank behind it."""
    texts = [row.cells[0] for row in rows[1:]]
    for delimiter in _DELIMITERS:
        counts = {text.count(delimiter) for text in texts}
        if len(counts) == 1 and min(counts) and not any(f"{delimiter} " in text for text in texts):
            raise InputError(
                f"is damaged: its first row names one column, and each row has {min(counts) + 1} cells, such as that "
                f"in line {rows[1].line}: name the columns, or {_REMEDY}"
            )


def _unclear(line: int, sign: str, meaning: str) -> InputError:
    return InputError(f"is not clear: a {sign} in line {line} {meaning}: {_REMEDY}")
