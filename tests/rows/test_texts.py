"""Texts from standard input: read as they arrive."""

from io import BytesIO
from itertools import count, islice
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
