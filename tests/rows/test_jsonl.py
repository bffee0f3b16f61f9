"""JSON Lines in and out: bad lines are named, good ones survive."""

import json
import math
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dgmark.errors import InputError, NoTexts
from dgmark.rows.item import Item, Row
from dgmark.rows.jsonl import parse_rows, read_good_rows, read_rows, rows_or_text, to_line


def parsed(*lines: bytes) -> list[Row | Item]:
    return list(parse_rows(lines, "in.jsonl"))


# --- reading -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        b"not JSON",
        b'{"id": "cut off',
        b"{'id': 1}",
        b'\xff\xfe\xfa{"id": 1}',
        b'{"text": "\xff"}',
        b"[" * 100_000,
        b"9" * 10_000,
    ],
    ids=lambda line: repr(line[:12]),
)
def test_a_line_that_is_no_json_becomes_a_bad_row_named_by_its_line(line: bytes) -> None:
    good, bad, after = parsed(b'{"id": "a"}', line, b'{"id": "b"}')
    assert (good, after) == ({"id": "a"}, {"id": "b"})
    assert isinstance(bad, Item)
    assert bad.row_id == "in.jsonl:2"
    assert str(bad.error).startswith("not valid JSON: ")


@pytest.mark.parametrize(
    ("lines", "row"),
    [
        ([b"[1, 2]"], ("in.jsonl:1", "not a JSON object")),
        ([b"null"], ("in.jsonl:1", "not a JSON object")),
        ([b"", b"  \r\n", b"\n", b'{"text": "t"}'], {"text": "t", "id": "in.jsonl:4"}),
        ([b'{"id": null}'], {"id": "in.jsonl:1"}),
        ([b'{"id": 0}'], {"id": "0"}),
        ([b'{"id": ""}'], {"id": ""}),
        ([b'\xef\xbb\xbf{"id": "a"}'], {"id": "a"}),  # after a byte order mark
    ],
)
def test_every_row_has_an_id(lines: list[bytes], row: Row | tuple[str, str]) -> None:
    (found,) = parsed(*lines)
    assert row == ((found.row_id, str(found.error)) if isinstance(found, Item) else found)


@pytest.mark.parametrize("name", ["text", "token_ids", "id", "prompt", "other"])
@pytest.mark.parametrize("row", ['{{"{0}": "a", "{0}": "b"}}', '{{"in": [{{"{0}": 1, "x": 2, "{0}": 1}}]}}'])
def test_two_fields_of_one_name_are_an_error_of_their_row(name: str, row: str) -> None:
    good, bad, after = parsed(b'{"id": "a"}', row.format(name).encode(), b'{"id": "b", "ID": "c"}')
    assert (good, after) == ({"id": "a"}, {"id": "b", "ID": "c"})
    assert isinstance(bad, Item)
    assert str(bad.error) == f'two fields are named "{name}": keep one of them, or name them apart'


@settings(max_examples=200)
@given(lines=st.lists(st.binary(max_size=30), max_size=5))
def test_no_bytes_make_reading_crash(lines: list[bytes]) -> None:
    assert all(isinstance(found, Item) or isinstance(found["id"], str) for found in parsed(*lines))


@pytest.mark.parametrize("name", ["missing.jsonl", "."])
def test_a_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(NoTexts, match="cannot be read"):
        list(read_rows(str(tmp_path / name)))


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_rows_of_another_encoding_are_an_error_of_the_file(tmp_path: Path, encoding: str) -> None:
    content = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in "aäb").encode(encoding)
    (tmp_path / "rows.jsonl").write_bytes(content)
    wanted = rf"is {encoding[:6].upper()}, and JSON Lines are UTF-8: convert it"
    with pytest.raises(InputError, match=wanted):
        list(read_rows(str(tmp_path / "rows.jsonl")))
    with pytest.raises(InputError, match=wanted):
        list(rows_or_text(BytesIO(content), "stdin", 2**20))
    text = "A text, {no rows}.\n".encode(encoding)
    assert rows_or_text(BytesIO(text), "stdin", 2**20) == text


def test_where_no_row_may_be_bad_the_first_bad_one_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"id": "a"}\nbad\n')
    rows = read_good_rows(str(path))
    assert next(rows) == {"id": "a"}
    with pytest.raises(InputError, match=r"rows.jsonl:2: not valid JSON"):
        next(rows)


# --- writing -------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=())),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def is_surrogate_pair_free(text: str) -> bool:
    return not any(0xD800 <= ord(a) < 0xDC00 <= ord(b) < 0xE000 for a, b in pairwise(text))


@settings(max_examples=200)
@given(text=st.text(st.characters(exclude_categories=())).filter(is_surrogate_pair_free), value=values)
@example(text="a lone \ud800 surrogate and 😀", value=None)
@example(text="\udcff", value="\ud800")
@example(text="line\nbreak \u2028 \r \0", value=[])
def test_a_line_is_one_line_of_json_that_reads_back(text: str, value: object) -> None:
    line = to_line({"id": "x", "text": text})
    assert "\n" not in line
    assert json.loads(line.encode("utf-8"))["text"] == text
    assert json.loads(to_line({"id": "x", "value": value}).encode("utf-8"))["id"] == "x"


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_number_for_is_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_line({"p_value": number})
