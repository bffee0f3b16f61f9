"""Prompts of every kind of file: the same rows, and what is refused."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgmark.errors import InputError, NoTexts
from dgmark.rows.sources import prompt_of, read_prompts
from dgmark.rows.tables import RowReading

PROMPTS = ["The sea was", 'A "king", who']


def files(folder: Path) -> dict[str, Path]:
    rows = [{"id": str(number), "body": text} for number, text in enumerate(PROMPTS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (folder / "p.jsonl").write_bytes(lines)
    (folder / "p.jsonl.gz").write_bytes(gzip.compress(lines))
    (folder / "rows").write_bytes(lines)
    (folder / "p.txt").write_text("\n".join(["", *PROMPTS, "  "]))
    (folder / "p.csv").write_text('id,body\n0,The sea was\n1,"A ""king"", who"\n')
    (folder / "p.tsv").write_text('id\tbody\n0\tThe sea was\n1\t"A ""king"", who"\n')
    pq.write_table(pa.table({"body": PROMPTS, "n": [1, 2]}), folder / "p.parquet")
    return {path.name: path for path in folder.iterdir()}


def test_prompts_are_the_same_from_every_kind_of_file(tmp_path: Path) -> None:
    for name, path in files(tmp_path).items():
        items = list(read_prompts(str(path), RowReading("body")))
        assert [prompt_of(item.content, "body") for item in items] == PROMPTS, name
        ids = [item.row_id for item in items]
        assert ids == ([f"{path}:2", f"{path}:3"] if name == "p.txt" else ["0", "1"]), name


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("p.csv", b"id,text\n0,a\n", {}, 'has no column "body"'),
        ("p.csv", b"id,body\n0,a\n", {"id_column": "name"}, 'no column "name"'),
        ("p.json", b'[\n{"body": "a"}\n]', {}, "is not JSON Lines: put one object on each line"),
        ("p.txt", b"The \xff", {}, "is not a text in UTF-8"),
        ("p.jsonl.gz", b"no archive", {}, "cannot be read: Not a gzipped file"),
        ("p.jsonl.gz", gzip.compress(b'{"body": "a"}\n' * 999, mtime=0)[:40], {}, "is damaged"),
    ],
)
def test_what_holds_no_prompts_is_refused(
    name: str, content: bytes, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        list(read_prompts(str(tmp_path / name), RowReading("body", **options)))
    with pytest.raises(NoTexts):
        list(read_prompts(str(tmp_path / "none.txt"), RowReading("body")))


def test_a_row_without_a_prompt_says_which_field_it_lacks() -> None:
    for row, message in (
        ({"body": None}, "there is no text: the value is missing"),
        ({"text": "b"}, 'no "body": give a text, or a list of token ids'),
    ):
        with pytest.raises(InputError, match=message):
            prompt_of(row, "body")
