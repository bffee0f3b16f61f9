"""Workbooks (.xlsx) to the cells of their sheets."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from python_calamine import CalamineError, CalamineWorkbook

from dgmark_documents.account import Account, Piece
from dgmark_documents.beside_cells import hold_beside_cells
from dgmark_documents.charsets import unify_line_ends
from dgmark_documents.reading import Reading, Refusal, Table, is_column
from dgmark_documents.zip_archive import ZipArchive


def read_workbook(file: BinaryIO, archive: ZipArchive, column: str) -> Reading:
    """Read the cells of every sheet; the first row of a sheet that is not blank names its columns.

    Beside the column of the texts, what stands in columns without a name is not read, but for the first of a sheet.
    """
    archive.check_xml()
    file.seek(0)
    known: set[int] = set()  # hashes of all cells
    tables = []
    try:
        book = CalamineWorkbook.from_filelike(file)
        for name in book.sheet_names:
            rows = _rows_of(name, book.get_sheet_by_name(name).iter_rows(), known)
            _, header = next(rows, ("", []))
            tables.append(Table(header, [*rows]))
    except (CalamineError, OSError, ValueError) as error:
        raise Refusal(f"is damaged: {error}") from error
    account = Account()
    read = [table for table in tables if any(is_column(cell, column) for cell in table.header)]
    account.held += (Piece("columns without a name", text) for table in read for text in _unnamed(table))
    hold_beside_cells(account, archive, lambda text: _hash(text) in known)
    at = [next(at for at, cell in enumerate(table.header) if is_column(cell, column)) for table in read]
    joined = "\n".join(cells[place] for table, place in zip(read, at, strict=True) for _, cells in table.rows)
    reading = account.reading(joined, refuse=False, pages=len(tables), form="tables", tables=tuple(tables))
    return replace(reading, text="")


def _rows_of(sheet: str, rows: Iterable[list[Any]], known: set[int]) -> Iterator[tuple[str, list[str]]]:
    """The place and the cells of each row that is not blank; the hashes of the cells go into `known`."""
    for number, row in enumerate(rows, 1):
        cells = [unify_line_ends(str(cell)) for cell in row]
        if any(cell.strip() for cell in cells):
            known.update(map(_hash, cells))
            yield f"{sheet}:{number}", cells


def _unnamed(table: Table) -> Iterator[str]:
    """What stands in the columns without a name, but for the first."""
    at = [at for at, name in enumerate(table.header) if at and not name.strip()]
    return (cells[place] for _, cells in table.rows for place in at)


def _hash(text: str) -> int:
    return hash(" ".join(text.split()))
