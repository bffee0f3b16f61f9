"""The texts of one column of a table, which a file of delimited cells or a reader of documents gives."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dgmark.arguments.checks import instance
from dgmark.errors import InputError
from dgmark.rows.delimited import read_delimited

TEXT_COLUMN = "text"
ID_COLUMN = "id"
_SHOWN = 20  # names of columns that an error lists
# letters of other columns that a note speaks of: from this number on, or from this share of all letters
_LETTERS, _SHARE = 400, 0.1


class Table(NamedTuple):
    """The cells of a table.

    Attributes:
        header: the names of its columns.
        rows: the place, such as "2" or "Sheet1:2", and the cells of each other row that is not blank.
    """

    header: list[str]
    rows: list[tuple[str, list[str]]]


@dataclass(frozen=True)
class RowReading:
    """What is read of the rows of files and tables.

    Attributes:
        text_column: the column or field that holds the texts, or lists of token ids; by default "text". The columns of
            a table beside one that was named are none of its text.
        id_column: the column or field of the rows' ids, of which each row must have one; by default "id", without which
            a row is named by its place.
        key_column: the column or field that names the key of each row.
        prefer_ids: take the ids of a row that holds both a text and "token_ids".
        name_files: state the file of each row, as where several files may have rows of one id.

    Raises:
        SettingsError: the name of a column is not a text.
    """

    text_column: str | None = None
    id_column: str | None = None
    key_column: str | None = None
    prefer_ids: bool = False
    name_files: bool = False

    def __post_init__(self) -> None:
        for name, column in (("texts", self.text_column), ("ids", self.id_column), ("keys", self.key_column)):
            if column is not None:
                instance(f"the column of {name}", column, str)

    @property
    def column(self) -> str:
        """The column of the texts."""
        return self.text_column or TEXT_COLUMN


ANY_ROWS = RowReading()


class TextRow(NamedTuple):
    """The text of a row.

    Attributes:
        row_id: its id; None if its cell is empty, or there is no column of ids.
        place: where it stands, such as "2" or "Sheet1:2".
        text: the text.
        key: the name of its key.
    """

    row_id: str | None
    place: str
    text: str
    key: str | None = None


class Texts(NamedTuple):
    """The texts of a column.

    Attributes:
        rows: the rows.
        notes: what the other columns hold, if it may be a text, and how many tables have no such column.
        how: what is to be known of the ids.
    """

    rows: tuple[TextRow, ...]
    notes: tuple[str, ...]
    how: tuple[str, ...]


def delimited_table(text: str, column: str) -> Table:
    """The table in a text; the first row names the columns.

    Raises:
        InputError: it is not clear which cells the file means; the message continues a sentence that begins with the
            file's name.
    """
    header, *rows = read_delimited(text, lambda cells: _has(cells, column))
    for row in rows if _has(header.cells, column) else ():
        if any(not name.strip() and at and _letters_in(row.cells[at]) for at, name in enumerate(header.cells)):
            raise InputError(
                f"is damaged: a column without a name holds text in line {row.line}, as where a text that holds the "
                "separator stands without quotation marks: name the column, or save the table with quotation marks"
            )
    filled = [row for row in rows if len(row.cells) == 1 or any(cell.strip() for cell in row.cells)]
    return Table(header.cells, [(str(row.number), row.cells) for row in filled])


def texts_of(tables: Sequence[Table], reading: RowReading) -> Texts:
    """The texts of the column of each table that has it.

    A column that was named is the whole text of its row. Of the column "text", which is looked for where none was named
    (None), notes say what the other columns hold.

    Raises:
        InputError: no table has the column, or a table with it has two columns of one name or lacks a column that was
            named; the message continues a sentence that begins with the file's name.
    """
    column, id_column = reading.column, reading.id_column or ID_COLUMN
    rows: list[TextRow] = []
    others: Counter[str] = Counter()  # letters of the other columns
    having = [table for table in tables if _has(table.header, column)]
    if not having:
        raise _lacks(tables, column, "--text-column")
    for table in having:
        names = [_name(cell) for cell in table.header]
        for named, option in ((reading.id_column, "--id-column"), (reading.key_column, "--key-column")):
            if named is not None and _name(named) not in names:
                raise _lacks([table], named, option)
        text_at, id_at, key_at = (
            names.index(_name(name)) if name is not None and _name(name) in names else None
            for name in (column, id_column, reading.key_column)
        )
        for place, cells in table.rows:
            row_id, key = (None if at is None else cells[at] or None for at in (id_at, key_at))
            rows.append(TextRow(row_id, place, cells[text_at or 0], key))
            for at, cell in enumerate(cells):
                if (names[at] or not at) and at not in (text_at, id_at, key_at):
                    others[table.header[at].strip()] += _letters_in(cell)
    without = len(tables) - len(having)
    sheets = (f'{without} of its {len(tables)} sheets have no column "{column}" and are left out',) if without else ()
    repeated = sum(count > 1 for row_id, count in Counter(row.row_id for row in rows).items() if row_id is not None)
    how = (f'{repeated} ids of the column "{id_column}" are those of several rows',) if repeated else ()
    notes = () if reading.text_column is not None else _notes([row.text for row in rows], others, column)
    return Texts(tuple(rows), (*sheets, *notes), how)


def _lacks(tables: Sequence[Table], column: str, option: str) -> InputError:
    names = ", ".join([name for table in tables for name in table.header][:_SHOWN]) or "none"
    return InputError(f'has no column "{column}" (its first row names: {names}): name one of these with {option}')


def _notes(texts: Sequence[str], others: Counter[str], column: str) -> Iterable[str]:
    """What the other columns hold, if it may be a text."""
    letters = others.total()
    read = sum(map(_letters_in, texts))
    if not letters or (letters < _LETTERS and letters <= _SHARE * (letters + read)):
        return
    most = ", ".join(f'"{name}"' for name, count in others.most_common(3) if count)
    yield (
        f'{letters:,} letters stand in columns other than "{column}", most of them in {most}, and were not '
        "read: give --text-column for one of these"
    )


def _has(header: list[str], column: str) -> bool:
    """Whether the column is one of these; an InputError if it is, and two of them have the same name."""
    names = [_name(cell) for cell in header]
    found = _name(column) in names
    ((name, count),) = Counter(filter(None, names)).most_common(1) or [("", 0)]
    if found and count > 1:
        raise InputError(f'has {count} columns "{name}": give each a name of its own, which differs not in case alone')
    return found


def _name(cell: str) -> str:
    """What makes a name of a column: blanks around it and case do not."""
    return cell.strip().casefold()


def _letters_in(text: str) -> int:
    return sum(map(str.isalpha, text))
