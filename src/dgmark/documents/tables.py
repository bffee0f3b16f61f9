"""Tables (.csv, .xlsx) to the texts of one column."""

import csv
import io
from collections.abc import Iterable
from typing import BinaryIO

from dgmark.documents.charsets import decode
from dgmark.documents.reading import Reading, Refusal
from dgmark.documents.zip_archive import ZipArchive

_DELIMITERS = ",;\t|"
_ID = "id"
_SHOWN = 20  # names of columns that an error lists


def read_csv(content: bytes, column: str) -> Reading:
    """Read a column of a table as text; the first row names the columns.

    Raises:
        Refusal: no column has this name, or the table is no text.
    """
    text, how = decode(content)
    csv.field_size_limit(len(text) + 1)
    headers = []
    for delimiter in _DELIMITERS:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
        try:
            header = next(rows, [])
            if column in header:
                return Reading(rows=tuple(_texts(header, rows, column, "")), how=tuple(how))
        except csv.Error as error:
            raise Refusal(f"is damaged: {error} in line {rows.line_num}") from error
        headers.append(header)
    raise _no_column(column, max(headers, key=len))


def read_workbook(file: BinaryIO, archive: ZipArchive, column: str) -> Reading:
    """Read a column of every sheet that has it; the first row of a sheet names its columns.

    Raises:
        Refusal: no sheet has a column of this name, or the workbook is damaged.
    """
    from python_calamine import CalamineError, CalamineWorkbook

    archive.check_xml()
    file.seek(0)
    found: list[tuple[str, str]] = []
    headers: list[list[str]] = []
    with_column = 0
    try:
        book = CalamineWorkbook.from_filelike(file)
        for name in book.sheet_names:
            rows = ([str(cell) for cell in row] for row in book.get_sheet_by_name(name).iter_rows())
            header = next(rows, [])
            headers.append(header)
            if column in header:
                with_column += 1
                found += _texts(header, rows, column, f"{name}:")
    except (CalamineError, OSError, ValueError) as error:
        raise Refusal(f"is damaged: {error}") from error
    if not with_column:
        raise _no_column(column, [name for header in headers for name in header])
    without = len(headers) - with_column
    notes = (f'{without} of its {len(headers)} sheets have no column "{column}" and are left out',) if without else ()
    return Reading(rows=tuple(found), notes=notes, pages=len(headers))


def _texts(header: list[str], rows: Iterable[list[str]], column: str, sheet: str) -> Iterable[tuple[str, str]]:
    """The id of each row (its own, or its place) and its text. Empty rows are skipped.

    Raises:
        Refusal: it is not clear which cells are the texts.
    """
    if header.count(column) > 1:
        raise Refusal(f'has {header.count(column)} columns "{column}": give each column a name of its own')
    text_at, id_at = header.index(column), header.index(_ID) if _ID in header else None
    for number, row in enumerate(rows, 2):
        if not any(cell.strip() for cell in row):
            continue
        if any(cell.strip() for cell in row[len(header) :]):
            raise Refusal(
                f"is damaged: row {sheet}{number} has more cells than the first row names, as where a text that holds "
                "the separator stands without quotation marks: save the table again with them"
            )
        own = row[id_at] if id_at is not None and id_at < len(row) else ""
        yield own or f"{sheet}{number}", row[text_at] if text_at < len(row) else ""


def _no_column(column: str, header: list[str]) -> Refusal:
    names = ", ".join(header[:_SHOWN]) or "none"
    return Refusal(f'has no column "{column}" (its first row names: {names}): give --text-column NAME')
