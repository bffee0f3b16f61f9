"""Tables as text: as many rows as the file holds, with their texts, or an error that names the line."""

import csv
import io
import random
import re
from collections.abc import Callable, Sequence

import pandas
import pytest

from dgmark.errors import InputError
from dgmark.rows.delimited import read_delimited
from dgmark.rows.documents import Document
from support.cases import cases, data
from support.documents import document_from
from support.unmarked_texts import PROSE

WORDS = (PROSE / "willows.txt").read_text(encoding="utf-8").split()
SIGNS = data(__file__, "signs")

Rows = Sequence[Sequence[str]]


def read_csv(content: bytes, column: str | None = None) -> Document:
    return document_from(content, "table.csv", column)


def rows_of(content: str, column: str = "text") -> list[tuple[str, str]]:
    return list(read_csv(content.encode(), column).rows)


def texts_of(content: str) -> list[str] | None:
    """The texts of a table; None if it is refused for the reason of a line."""
    try:
        return [text for _, text in rows_of(content)]
    except InputError as error:
        reason = str(error)
    assert re.search("line [0-9]|has no column", reason)
    return None


# --- 2,000 tables of random texts ------------------------------------------------------------------


def random_text(dice: random.Random) -> str:
    patterns, weights = zip(*SIGNS, strict=True)
    made = dice.choices(patterns, weights, k=dice.randint(1, 30))
    return " ".join(pattern.format(dice.choice(WORDS)) for pattern in made)


def by_csv(**dialect: object) -> Callable[[Rows, str], str]:
    def write(rows: Rows, delimiter: str) -> str:
        file = io.StringIO()
        csv.writer(file, delimiter=delimiter, **dialect).writerows(rows)  # type: ignore[arg-type]
        return file.getvalue()

    return write


def by_pandas(rows: Rows, delimiter: str, *, index: bool = False) -> str:
    header, *others = rows
    return str(pandas.DataFrame(others, columns=list(header)).to_csv(sep=delimiter, index=index))


def where_needed(rows: Rows, delimiter: str) -> str:
    """As LibreOffice does: only cells that hold a separator, a quotation mark or a line end are enclosed."""
    return "".join(
        delimiter.join(
            '"' + cell.replace('"', '""') + '"' if {delimiter, '"', "\n"} & set(cell) else cell for cell in row
        )
        + "\n"
        for row in rows
    )


def all_but_the_first_row(rows: Rows, delimiter: str) -> str:
    quoted = by_csv(quoting=csv.QUOTE_ALL)(rows[1:], delimiter)
    return delimiter.join(rows[0]) + "\n" + quoted


def by_hand(rows: Rows, delimiter: str) -> str:
    return "".join(delimiter.join(row) + "\n" for row in rows)


# each writer, and the share of its tables that must be read
WRITERS: dict[str, tuple[Callable[[Rows, str], str], float]] = {
    "csv": (by_csv(), 0.9),
    "csv, all cells": (by_csv(quoting=csv.QUOTE_ALL), 0.95),
    "csv, all cells but numbers": (by_csv(quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n"), 0.95),
    "csv, backslashes": (by_csv(doublequote=False, escapechar="\\"), 0),
    "csv, backslashes alone": (by_csv(quoting=csv.QUOTE_NONE, escapechar="\\"), 0),
    "csv, single quotation marks": (by_csv(quotechar="'", quoting=csv.QUOTE_ALL), 0),
    "pandas": (by_pandas, 0.9),
    "pandas, with an index": (lambda rows, delimiter: by_pandas(rows, delimiter, index=True), 0.9),
    "where needed": (where_needed, 0.9),
    "all but the first row": (all_but_the_first_row, 0.8),
}
COLUMNS = [["id", "text"], ["text"], ["id", "text", "note"], ["text", "id"], ["id", "note", "text"]]


def random_table(dice: random.Random, clean: str = "") -> list[list[str]]:
    """The names of columns, then rows; without the characters of `clean` in the texts."""
    columns = dice.choice(COLUMNS)
    rows = []
    for number in range(dice.randint(1, 8)):
        texts = [random_text(dice).translate(dict.fromkeys(map(ord, clean), " ")) for _ in range(2)]
        row = {"id": f"row {number}", "text": texts[0], "note": texts[1]}
        rows.append([row[name] for name in columns])
    return [columns, *rows]


@pytest.mark.parametrize("writer", WRITERS)
def test_what_a_writer_writes_is_read_or_refused(writer: str) -> None:
    dice, (write, share) = random.Random(writer), WRITERS[writer]
    read = 0
    for number in range(160):
        delimiter = ",;|,;|\t"[number % 7]
        table = random_table(dice)
        content = write(table, delimiter)
        found, at = texts_of(content), table[0].index("text")
        assert found in (None, [row[at] for row in table[1:]]), content
        read += found is not None
    assert read >= share * 160


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
def test_what_is_written_without_quotation_marks_around_cells_is_read_or_refused(delimiter: str) -> None:
    dice, read = random.Random(delimiter), 0
    for _ in range(100):
        table = random_table(dice, clean=delimiter + "\n")
        found = texts_of(by_hand(table, delimiter))
        if found is None:
            continue
        wanted = [row[table[0].index("text")] for row in table[1:]]
        # a whole text in quotation marks is an enclosed cell to all readers
        enclosed = [text[1:-1] if text[0] == text[-1] == '"' else text for text in wanted]
        assert len(found) == len(wanted)
        assert all(text in pair for text, *pair in zip(found, wanted, enclosed, strict=True))
        read += 1
    assert read > 85


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
def test_long_tables_of_prose_are_read(delimiter: str) -> None:
    """Where one row of many could look like two, the others show how the table was written."""
    paragraphs = (PROSE / "willows.txt").read_text(encoding="utf-8").split("\n\n")
    dice = random.Random(delimiter)
    texts = ["\n".join(dice.choices(paragraphs, k=dice.randint(1, 3))) for _ in range(300)]
    table = [["id", "text", "note"], *([str(n), text, "x"] for n, text in enumerate(texts))]
    assert [text for _, text in rows_of(by_pandas(table, delimiter))] == texts


def test_the_rows_are_those_of_the_csv_module() -> None:
    dice = random.Random(5)
    for _ in range(100):
        content = where_needed(random_table(dice), ",")
        try:
            found = [row.cells for row in read_delimited(content, lambda cells: "text" in cells)]
        except InputError:
            continue
        assert found == [row for row in csv.reader(io.StringIO(content, newline=""), strict=True) if row]


# --- what each construct becomes -------------------------------------------------------------------


@pytest.mark.parametrize(("content", "wanted"), cases(__file__, "read"))
def test_what_is_read(content: str, wanted: list[list[str]]) -> None:
    assert rows_of(content) == [(name, text) for name, text in wanted]


@pytest.mark.parametrize(("content", "reason"), cases(__file__, "refused"))
def test_what_is_refused_names_its_line(content: str, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        rows_of(content)
    assert reason in str(refused.value)


# --- what is noted ---------------------------------------------------------------------------------


def test_other_columns_that_may_hold_the_text_are_noted() -> None:
    """By their letters in all: texts may be cut into many cells."""
    many = "".join(f"{n},some human text,word\n" for n in range(100))
    (note,) = read_csv(f"id,text,answer\n{many}".encode()).notes
    assert note.startswith('400 letters stand in columns other than "text", most of them in "answer"')
    few = "".join(f"{n},{'some human text ' * 5},x\n" for n in range(100))
    assert read_csv(f"id,text,answer\n{few}".encode()).notes == ()


def test_ids_of_several_rows_are_noted() -> None:
    reading = read_csv(b"id,text\n1,a\n1,b\n2,c\n2,d\n3,e\n", "text")
    assert (reading.notes, reading.incomplete) == (('2 ids of the column "id" are those of several rows',), False)
