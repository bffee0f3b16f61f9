"""Tables (.csv, .xlsx) to the texts of one column."""

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, BinaryIO

from dgmark.documents.account import Account, Piece, letters_in
from dgmark.documents.charsets import decode, unify_line_ends
from dgmark.documents.delimited import read_delimited
from dgmark.documents.reading import Reading, Refusal
from dgmark.documents.workbook import hold_beside_cells
from dgmark.documents.zip_archive import ZipArchive

_ID = "id"
_SHOWN = 20  # names of columns that an error lists


def read_csv(content: bytes, column: str) -> Reading:
    """Read a column of a table as text; the first row names the columns.

    Raises:
        Refusal: no column has this name, or it is not clear which cells are the texts.
    """
    text, how = decode(content)
    texts = Texts(column)
    header, *rows = read_delimited(text, texts.are_named_by)
    if not texts.are_named_by(header.cells):
        raise _no_column(column, header.cells)
    texts.add(header.cells, ((str(row.number), row.cells) for row in rows if len(row.cells) == 1 or _any(row.cells)))
    for row in rows:
        if any(not name.strip() and at and letters_in(row.cells[at]) for at, name in enumerate(header.cells)):
            raise Refusal(
                f"is damaged: a column without a name holds text in line {row.line}, as where a text that holds the "
                "separator stands without quotation marks: name the column, or save the table with quotation marks"
            )
    return Reading(rows=tuple(texts.rows), notes=texts.notes(), how=(*how, *texts.how()))


def read_workbook(file: BinaryIO, archive: ZipArchive, column: str) -> Reading:
    """Read a column of every sheet that has it; the first row of a sheet that is not blank names its columns.

    Raises:
        Refusal: no sheet has a column of this name, or the workbook is damaged.
    """
    from python_calamine import CalamineError, CalamineWorkbook

    archive.check_xml()
    file.seek(0)
    texts = Texts(column)
    headers: list[list[str]] = []
    known: set[int] = set()  # hashes of all cells
    try:
        book = CalamineWorkbook.from_filelike(file)
        for name in book.sheet_names:
            rows = _rows_of(name, book.get_sheet_by_name(name).iter_rows(), known)
            _, header = next(rows, ("", []))
            headers.append(header)
            texts.add(header, rows)
    except (CalamineError, OSError, ValueError) as error:
        raise Refusal(f"is damaged: {error}") from error
    without = sum(not texts.are_named_by(header) for header in headers)
    if without == len(headers):
        raise _no_column(column, [name for header in headers for name in header])
    account = Account()
    account.held += (Piece("columns without a name", text) for text in texts.unnamed)
    hold_beside_cells(account, archive, lambda text: _hash(text) in known)
    joined = "\n".join(text for _, text in texts.rows)
    reading = account.reading(joined, refuse=False, pages=len(headers), how=texts.how())
    sheets = (f'{without} of its {len(headers)} sheets have no column "{column}" and are left out',) if without else ()
    return replace(reading, text="", rows=tuple(texts.rows), notes=(*sheets, *texts.notes(), *reading.notes))


def _rows_of(sheet: str, rows: Iterable[list[Any]], known: set[int]) -> Iterator[tuple[str, list[str]]]:
    """The place and the cells of each row that is not blank; the hashes of the cells go into `known`."""
    for number, row in enumerate(rows, 1):
        cells = [unify_line_ends(str(cell)) for cell in row]
        if _any(cells):
            known.update(map(_hash, cells))
            yield f"{sheet}:{number}", cells


class Texts:
    """The texts of one column of a table, and what stands in its other columns.

    Attributes:
        rows: the id (or the place) and the text of each row.
        unnamed: what stands in columns without a name, but for the first, which may name the rows.
    """

    def __init__(self, column: str) -> None:
        self.rows: list[tuple[str, str]] = []
        self.unnamed: list[str] = []
        self._column = column
        self._others: Counter[str] = Counter()  # letters of the other columns

    def are_named_by(self, header: list[str]) -> bool:
        """Whether the column is one of these.

        Raises:
            Refusal: it is, and two of them have the same name.
        """
        names = [_name(cell) for cell in header]
        found = _name(self._column) in names
        ((name, count),) = Counter(filter(None, names)).most_common(1) or [("", 0)]
        if found and count > 1:
            raise Refusal(f'has {count} columns "{name}": give each a name of its own, which differs not in case alone')
        return found

    def add(self, header: list[str], rows: Iterable[tuple[str, list[str]]]) -> None:
        """Add the rows of a sheet.

        Args:
            header: the names of its columns; without the column, no text is taken.
            rows: the place and the cells of each other row.

        Raises:
            Refusal: two columns have the same name.
        """
        if not self.are_named_by(header):
            deque(rows, maxlen=0)  # they are known, and left out
            return
        names = [_name(cell) for cell in header]
        text_at, id_at = names.index(_name(self._column)), names.index(_ID) if _ID in names else None
        for place, row in rows:
            self.rows.append((row[id_at] if id_at is not None and row[id_at] else place, row[text_at]))
            for at, cell in enumerate(row):
                if at and not names[at]:
                    self.unnamed.append(cell)
                elif at not in (text_at, id_at):
                    self._others[header[at].strip()] += letters_in(cell)

    def notes(self) -> tuple[str, ...]:
        """What the other columns hold, if it may be a text."""
        letters = self._others.total()
        if not letters:
            return ()
        if letters < Account.LETTERS:
            read = sum(letters_in(text) for _, text in self.rows)
            if letters <= Account.SHARE * (letters + read):
                return ()
        most = ", ".join(f'"{name}"' for name, count in self._others.most_common(3) if count)
        return (
            f'{letters:,} letters stand in columns other than "{self._column}", most of them in {most}, and were not '
            "read: give --text-column for one of these",
        )

    def how(self) -> tuple[str, ...]:
        """What is to be known of the ids."""
        repeated = sum(count > 1 for count in Counter(row_id for row_id, _ in self.rows).values())
        return (f'{repeated} ids of the column "{_ID}" are those of several rows',) if repeated else ()


def _name(cell: str) -> str:
    """What makes a name of a column: blanks around it and case do not."""
    return cell.strip().casefold()


def _hash(text: str) -> int:
    return hash(" ".join(text.split()))


def _any(cells: list[str]) -> bool:
    return any(cell.strip() for cell in cells)


def _no_column(column: str, header: list[str]) -> Refusal:
    names = ", ".join(header[:_SHOWN]) or "none"
    return Refusal(f'has no column "{column}" (its first row names: {names}): give --text-column NAME')
