"""Texts from standard input, read as they arrive, and from rows, with notes."""

import csv
import json
import re
from io import BytesIO
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import pytest

from dgmark.rows.texts import Item, read_texts


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
        (b'\n\nA text.\n{"text": "one"}\n', [Item("stdin", '\n\nA text.\n{"text": "one"}\n', "text")]),
    ],
    ids=["rows", "text"],
)
def test_the_first_line_that_is_not_blank_decides_what_standard_input_is(
    content: bytes, expected: list[Item], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dgmark.files.inputs.sys.stdin", SimpleNamespace(buffer=BytesIO(content)))
    assert list(read_texts("-")) == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("A <b>bold</b> word.", "HTML or XML"),
        ("<p>A line", "HTML or XML"),
        ("Salt &amp; pepper", "HTML or XML"),
        (r"{\rtf1\ansi A word.}", "RTF"),
        (r"An \emph{odd} word.", "TeX"),
        ("A [b]bold[/b] word.", "codes of a forum"),
        ("If a < b and c > d, AT&T & co [b]; x[i] = C:\\new", None),
    ],
)
def test_a_text_with_markup_has_a_note(text: str, kind: str | None, tmp_path: Path) -> None:
    rows, table = tmp_path / "rows.jsonl", tmp_path / "table.csv"
    rows.write_text(
        "".join(json.dumps({"id": name, "text": one}) + "\n" for name, one in (("a", text), ("b", "Plain.")))
    )
    with open(table, "w", newline="") as file:
        csv.writer(file).writerows([("id", "text"), ("a", text), ("b", "Plain.")])
    for path in (rows, table):
        first, second = read_texts(str(path))
        assert isinstance(first, Item)
        assert isinstance(second, Item)
        assert (first.content, second.notes) == (text, ())
        assert [re.findall(r"signs of markup \((.*?)\)", note) for note in first.notes] == ([[kind]] if kind else [])


def test_codes_of_a_terminal_are_noted_in_rows_and_left_out_of_tables(tmp_path: Path) -> None:
    rows, table = tmp_path / "rows.jsonl", tmp_path / "table.csv"
    coded = "A \x1b[31mred\x1b[0m word."
    rows.write_text(json.dumps({"id": "a", "text": coded}))
    table.write_text(f"id,text\na,{coded}\n")
    (in_row,), (in_table,) = read_texts(str(rows)), read_texts(str(table))
    assert isinstance(in_row, Item)
    assert isinstance(in_table, Item)
    assert (in_row.content, in_table.content) == (coded, "A red word.")
    assert "codes of a terminal" in in_row.notes[0]
    assert in_table.notes == ("codes that steer a terminal, such as colours, were left out",)


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".NDJSON"])
def test_rows_are_read_from_files_of_both_endings(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"rows{ending}").write_text('{"text": "one"}\n{"text": "two"}\n')
    for source in (tmp_path / f"rows{ending}", tmp_path):
        assert [item.content for item in read_texts(str(source)) if isinstance(item, Item)] == ["one", "two"]
