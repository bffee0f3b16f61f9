"""Texts from Parquet files and standard input: read as they arrive, with bad rows named."""

from io import BytesIO
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from dgmark.errors import NoTexts
from dgmark.rows.jsonl import BadRow
from dgmark.rows.texts import Item, read_texts
from support.parquet_tables import TEXTS, write_table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("tables") / "texts.parquet")


def test_parquet_is_read_row_by_row(table: Path) -> None:
    read = list(read_texts(str(table)))
    assert read[0] == Item("row 0", TEXTS[0])
    assert isinstance(read[-1], BadRow)
    assert len(read) == 150


def test_parquet_of_ids_without_names_is_numbered(tmp_path: Path) -> None:
    path = tmp_path / "ids.parquet"
    parquet.write_table(arrow.table({"token_ids": [[5, 6], [7]]}), path)
    assert list(read_texts(str(path))) == [Item(f"{path}:1", [5, 6]), Item(f"{path}:2", [7])]


def test_parquet_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    path = tmp_path / "no.parquet"
    parquet.write_table(arrow.table({"words": ["a"]}), path)
    with pytest.raises(NoTexts, match='neither a column "text"'):
        list(read_texts(str(path)))
    path.write_bytes(b"not parquet")
    with pytest.raises(NoTexts, match="cannot be read as Parquet"):
        list(read_texts(str(path)))


def test_parquet_that_is_damaged_inside_says_after_which_row(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    content = bytearray(table.read_bytes())
    at = len(content) // 2
    content[at : at + 600] = b"\xff" * 600
    path.write_bytes(bytes(content))
    with pytest.raises(NoTexts, match="cannot be read as Parquet after row"):
        list(read_texts(str(path)))


def test_parquet_bytes_that_are_not_text_are_one_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "bytes.parquet"
    raw = arrow.array([b"good", b"\xff\xfe", b"fine"], arrow.binary())
    texts = arrow.Array.from_buffers(arrow.string(), 3, raw.buffers())
    parquet.write_table(arrow.table({"text": texts}), path)
    read = list(read_texts(str(path)))
    assert [isinstance(item, BadRow) for item in read] == [False, True, False]


def test_standard_input_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(BytesIO):
        lines = count()

        def readline(self, _: int | None = -1) -> bytes:
            return b'{"id": "%d", "text": "text"}\n' % next(self.lines)

        def read(self, _: int | None = -1) -> bytes:
            raise AssertionError("an endless stream is not read to its end")

    monkeypatch.setattr("dgmark.rows.inputs.sys.stdin", SimpleNamespace(buffer=Endless()))
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
    monkeypatch.setattr("dgmark.rows.inputs.sys.stdin", SimpleNamespace(buffer=BytesIO(content)))
    assert list(read_texts("-")) == expected
