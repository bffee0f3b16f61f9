"""The texts of one column of a table, which a file of delimited cells or a reader of documents gives."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

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


class Texts(NamedTuple):
    """The texts of a column.

    Attributes:
        rows: the id (or the place) and the text of each row.
        notes: what the other columns hold, if it may be a text, and how many tables have no such column.
        how: what is to be known of the ids.
    """

    rows: tuple[tuple[str, str], ...]
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


def texts_of(tables: Sequence[Table], column: str | None) -> Texts:
    """The texts of the column of each table that has it.

    A column that was named is the whole text of its row. Of the column "text", which is looked for where none was named
    (None), notes say what the other columns hold.

    Raises:
        InputError: no table has the column, or a table with it has two columns of one name; the message continues a
            sentence that begins with the file's name.
    """
    named, column = column is not None, TEXT_COLUMN if column is None else column
    rows: list[tuple[str, str]] = []
    others: Counter[str] = Counter()  # letters of the other columns
    having = [table for table in tables if _has(table.header, column)]
    if not having:
        there = ", ".join([name for table in tables for name in table.header][:_SHOWN]) or "none"
        raise InputError(f'has no column "{column}" (its first row names: {there}): give --text-column NAME')
    for table in having:
        names = [_name(cell) for cell in table.header]
        text_at, id_at = names.index(_name(column)), names.index(ID_COLUMN) if ID_COLUMN in names else None
        for place, row in table.rows:
            rows.append((row[id_at] if id_at is not None and row[id_at] else place, row[text_at]))
            for at, cell in enumerate(row):
                if (names[at] or not at) and at not in (text_at, id_at):
                    others[table.header[at].strip()] += _letters_in(cell)
    without = len(tables) - len(having)
    sheets = (f'{without} of its {len(tables)} sheets have no column "{column}" and are left out',) if without else ()
    repeated = sum(count > 1 for count in Counter(row_id for row_id, _ in rows).values())
    how = (f'{repeated} ids of the column "{ID_COLUMN}" are those of several rows',) if repeated else ()
    return Texts(tuple(rows), (*sheets, *(() if named else _notes(rows, others, column))), how)


def _notes(rows: Sequence[tuple[str, str]], others: Counter[str], column: str) -> Iterable[str]:
    """What the other columns hold, if it may be a text."""
    letters = others.total()
    read = sum(_letters_in(text) for _, text in rows)
    if not letters or (letters < _LETTERS and letters <= _SHARE * (letters + read)):
        return
    most = ", ".join(f'"{name}"' for name, count in others.most_common(3) if count)
    yield (
        f'{letters:,} letters stand in columns other than "{column}", most of them in {most}, and were not '
        "read: give --text-column for one of these"
    )


def _has(header: list[str], column: str) -> bool:
    """Whether the column is one of these.

    Raises:
        InputError: it is, and two of them have the same name.
    """
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
