"""Texts from standard input, read as they arrive, and from rows, with notes."""

import csv
import gzip
import json
import re
from io import BytesIO
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgmark.errors import InputError, NoTexts
from dgmark.rows.item import Item
from dgmark.rows.sources import read_prompts, read_texts
from dgmark.rows.tables import ANY_ROWS, RowReading
from support.cases import cases


def test_standard_input_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(BytesIO):
        lines = count()

        def readline(self, _: int | None = -1) -> bytes:
            return b'{"id": "%d", "text": "text"}\n' % next(self.lines)

        def read(self, _: int | None = -1) -> bytes:
            raise AssertionError("an endless stream is not read to its end")

    monkeypatch.setattr("dgmark.files.inputs.sys.stdin", SimpleNamespace(buffer=Endless()))
    assert list(islice(read_texts("-"), 2)) == [Item("0", "text"), Item("1", "text")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'\n \r\n{"text": "one"}\n{"text": "two"}\n', [Item("stdin:3", "one"), Item("stdin:4", "two")]),
        (b'\n\nA text.\n{"text": "one"}\n', [Item("stdin", '\n\nA text.\n{"text": "one"}\n', kind="text")]),
    ],
    ids=["rows", "text"],
)
def test_the_first_line_that_is_not_blank_decides_what_standard_input_is(
    content: bytes, expected: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dgmark.files.inputs.sys.stdin", SimpleNamespace(buffer=BytesIO(content)))
    assert list(read_texts("-")) == expected


@pytest.mark.parametrize(("text", "kind"), cases(__file__, "markup"))
def test_a_text_with_markup_has_a_note(text: str, kind: str | None, tmp_path: Path) -> None:
    rows, table = tmp_path / "rows.jsonl", tmp_path / "table.csv"
    rows.write_text(
        "".join(json.dumps({"id": name, "text": one}) + "\n" for name, one in (("a", text), ("b", "Plain.")))
    )
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), ("a", text), ("b", "Plain.")])
    for path in (rows, table):
        first, second = read_texts(str(path))
        assert (first.content, second.notes) == (text, ())
        assert [re.findall(r"signs of markup \((.*?)\)", note) for note in first.notes] == ([[kind]] if kind else [])


def test_codes_of_a_terminal_are_noted_in_rows_and_left_out_of_tables(tmp_path: Path) -> None:
    rows, table = tmp_path / "rows.jsonl", tmp_path / "table.csv"
    coded = "A \x1b[31mred\x1b[0m word."
    rows.write_text(json.dumps({"id": "a", "text": coded}))
    table.write_text(f"id,text\na,{coded}\n")
    (in_row,), (in_table,) = read_texts(str(rows)), read_texts(str(table))
    assert (in_row.content, in_table.content) == (coded, "A red word.")
    assert "codes of a terminal" in in_row.notes[0]
    assert in_table.notes == ("codes that steer a terminal, such as colours, were left out",)


def test_rows_may_be_compressed(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"id": 1, "text": "One."}\n{"id": 2, "text": "Two."}\n')
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress((tmp_path / "t.jsonl").read_bytes()))
    plain, packed = (list(read_texts(str(tmp_path / name))) for name in ("t.jsonl", "t.jsonl.gz"))
    assert plain == packed == [Item("1", "One."), Item("2", "Two.")]
    named = list(read_texts(str(tmp_path)))  # in a folder their ids could be those of other files' rows
    assert [item.file for item in named] == [str(tmp_path / name) for name in ("t.jsonl", "t.jsonl.gz") for _ in "12"]
    assert {item.name for item in named} == {f"{item.file}:{item.row_id}" for item in named}
    (tmp_path / "t.jsonl.gz").write_bytes(b"no archive")
    with pytest.raises(NoTexts, match="Not a gzipped file"):
        list(read_texts(str(tmp_path / "t.jsonl.gz")))


def test_columns_of_rows_are_those_that_are_named(tmp_path: Path) -> None:
    (path := tmp_path / "t.jsonl").write_text('{"n": 7, "body": "One.", "tenant": "a"}\n{"body": "Two."}\n')
    first, second = read_texts(str(path), RowReading("body", id_column="n", key_column="tenant"))
    assert first == Item("7", "One.", key="a")
    assert str(second.error) == "the row has no id: give each row a text or a whole number in column n"


@pytest.mark.parametrize("column", ["messages[-1].content", "body.choices.0.message.content", "a.b"])
def test_a_field_within_a_row_is_named_by_its_path(tmp_path: Path, column: str) -> None:
    of_chat = {
        "messages": [{"content": "Go on"}, {"content": "One."}],
        "body": {"choices": [{"message": {"content": "One."}}]},
    }
    rows = [{**of_chat, "a.b": "One."}, {"messages": [], "body": {"choices": "none"}, "a": [1]}]
    (path := tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = read_texts(str(path), RowReading(column))
    assert (first.content, second.content) == ("One.", None)
    assert f'no "{column}"' in str(second.error)


def test_a_row_without_a_text_names_the_field_that_may_hold_it(tmp_path: Path) -> None:
    rows = [{"messages": [{"content": "Go on"}, {"content": "Two words."}], "id": "a"}, {"n": [1, None]}]
    (path := tmp_path / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert [str(row.error) for row in read_texts(str(path))] == [
        'no "text" and no "token_ids"; if messages[-1].content is the text, name it as the column',
        'no "text" and no "token_ids"',
    ]


def test_a_column_that_was_named_is_the_whole_text_of_its_row(tmp_path: Path) -> None:
    (path := tmp_path / "t.csv").write_text("id,text,note\na,Short.," + "Many other letters. " * 40 + "\n")
    (by_default,), (named,) = read_texts(str(path)), read_texts(str(path), RowReading("text"))
    assert by_default.incomplete
    assert "stand in columns other than" in by_default.notes[0]
    assert not named.incomplete
    assert not named.notes
    with pytest.raises(InputError, match=r'no column "name" .*: name one of these with --id-column'):
        list(read_texts(str(path), RowReading(id_column="name")))


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".NDJSON"])
def test_rows_are_read_from_files_of_both_endings(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"rows{ending}").write_text('{"text": "one"}\n{"text": "two"}\n')
    for source in (tmp_path / f"rows{ending}", tmp_path):
        assert [item.content for item in read_texts(str(source))] == ["one", "two"]


def tables_of_ids(folder: Path) -> list[Path]:
    """One table in each format, with the ids 7, none and "b", and another column of ids."""
    rows = [(7, "One.", "x"), (None, "Two.", "y"), ("b", "Three.", "z")]
    fields = [{"id": row_id, "text": text, "name": name} for row_id, text, name in rows]
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in fields))
    for name, separator in (("t.csv", ","), ("t.tsv", "\t")):
        lines = [("id", "text", "name"), *((row_id or "", *rest) for row_id, *rest in rows)]
        (folder / name).write_text("".join(separator.join(map(str, line)) + "\n" for line in lines))
    columns = {name: [None if row[name] is None else str(row[name]) for row in fields] for name in fields[0]}
    pq.write_table(pa.table(columns), folder / "t.parquet")
    return [folder / name for name in ("t.jsonl", "t.csv", "t.tsv", "t.parquet")]


def test_a_row_has_its_own_id_in_every_format_and_its_place_beside_it(tmp_path: Path) -> None:
    for path in tables_of_ids(tmp_path):
        given: tuple[str, list[str | None]] = {
            ".jsonl": (f"{path}:2", [None, None, None]),
            ".parquet": ("1", ["0", "1", "2"]),
        }.get(path.suffix, (f"{path}:3", ["2", "3", "4"]))  # type: ignore[assignment]
        default, places = given
        for items in (list(read_texts(str(path))), list(read_prompts(str(path), ANY_ROWS))):
            assert [item.row_id for item in items] == ["7", default, "b"]
            assert [item.place for item in items] == [places[0], None, places[2]]
        named = list(read_texts(str(path), RowReading(id_column="name", name_files=True)))
        assert [(item.row_id, item.place, item.file) for item in named] == [
            (row_id, place, str(path)) for row_id, place in zip("xyz", places, strict=True)
        ]
        of_keys = list(read_texts(str(path), RowReading(key_column="name")))
        assert [item.key for item in of_keys] == ["x", "y", "z"]
        without = list(read_texts(str(path), RowReading(id_column="id")))[1]
        # the rows of JSON Lines have an id already
        assert without.error is None if path.suffix == ".jsonl" else "the row has no id" in str(without.error)


def test_ids_of_numbers_with_a_point_are_those_that_the_table_shows(tmp_path: Path) -> None:
    # pandas makes such numbers of whole ones where some are missing
    pq.write_table(
        pa.table({"id": [1.0, None, float("nan")], "text": ["One.", "Two.", "Three."]}), tmp_path / "t.parquet"
    )
    assert [item.row_id for item in read_texts(str(tmp_path / "t.parquet"))] == ["1.0", "1", "2"]
