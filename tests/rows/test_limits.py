"""Texts and lines that are too large: refused by a row, in bounded memory, while the others are read."""

import io
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest

from dgmark.errors import InputError
from dgmark.files.inputs import MAX_LINE_BYTES, bounded_lines
from dgmark.rows.item import Item
from dgmark.rows.scoring import detect_file
from dgmark.rows.sources import read_sources, read_texts
from dgmark.rows.workers import FULL, map_in_order
from support.command_line import rows, run
from support.known_keys import known_key


def peak_of_reading(path: Path) -> tuple[list[Item], int]:
    """What is read, and the most bytes that were in memory for it."""
    tracemalloc.start()
    read = list(read_sources([str(path)]))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return read, most


def sparse(path: Path, size: int, start: bytes = b"") -> Path:
    """A file of this size that takes no space on the disk."""
    with open(path, "wb") as file:
        file.write(start)
        file.truncate(size)
    return path


@pytest.mark.parametrize(("name", "start"), [("large.txt", b"The king. "), ("large.jsonl", b'{"id": "a", "text": "')])
def test_five_gigabytes_are_refused_in_bounded_memory(tmp_path: Path, name: str, start: bytes) -> None:
    size = 5 * 2**30 if name.endswith("txt") else 2**28  # a line is read to its end to find the next one
    path = sparse(tmp_path / name, size, start)
    (bad,), most = peak_of_reading(path)
    assert "too long" in str(bad.error) or "has 5120 MB; the limit is 128 MB" in str(bad.error)
    assert most < 2.2 * MAX_LINE_BYTES


def test_a_line_that_is_too_long_does_not_hide_the_next() -> None:
    lines = bounded_lines(io.BytesIO(b"12345\n" + b"x" * 200_000 + b"\nafter\n123456\nend"), 6)
    assert list(lines) == [b"12345\n", None, b"after\n", None, b"end"]


def test_standard_input_goes_on_behind_a_long_row(monkeypatch: pytest.MonkeyPatch) -> None:
    long = b'{"id": "a", "text": "' + b"x" * MAX_LINE_BYTES + b'"}\n{"id": "b", "text": "fine"}\n'
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(long)))
    bad, good = read_texts("-")
    assert bad.error is not None
    assert good == Item("b", "fine")


def test_a_long_text_is_a_bad_row_and_the_batch_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dgmark.rows.sources.MAX_CHARS", 400)
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(
        '{"id": "a", "text": "' + "é" * 500 + '"}\n{"id": "b", "token_ids": [' + "5," * 500 + "5]}\n"
        '{"id": "c", "text": "The king."}\n'
    )
    known_key("limits").save(tmp_path / "key.json")
    tally = detect_file(known_key("limits"), source, out)
    assert (tally.scored, tally.unusable) == (1, 2)
    words = ["detect", "--key", tmp_path / "key.json", "--format", "jsonl"]
    shown = rows(run(*words, source).stdout)
    assert ["error" in row for row in shown] == [True, True, False]
    assert "500 characters, and 400 are allowed" in shown[0]["error"]
    (tmp_path / "one.txt").write_text("x" * 500)
    assert "cut it into parts" in run(*words, tmp_path / "one.txt", code=4).stderr


def test_few_long_texts_are_in_work_at_a_time() -> None:
    sizes: list[int] = []

    def work(chunk: list[int]) -> list[int]:
        sizes.append(sum(chunk))
        return chunk

    list(map_in_order(work, [FULL // 2] * 7 + [3] * 70, size=lambda item: item))
    assert sizes[:3] == [FULL, FULL, FULL]
    assert max(sizes) <= FULL
    assert len(sizes) == 5


def test_prompts_on_standard_input_are_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known_key("limits").save(tmp_path / "key.json")
    monkeypatch.setattr("dgmark.rows.sources.MAX_LINE_BYTES", 1000)
    monkeypatch.setattr("dgmark.files.inputs.MAX_LINE_BYTES", 1000)
    for content, says in [(b"x" * 2000, "more than 1000 bytes"), (b"The \xff", "not a text in UTF-8")]:
        for command in (["generate"], ["infill", "-"]):
            done = run(*command, "--key", tmp_path / "key.json", stdin=content)
            assert (done.exit_code, done.stdout) == (InputError.exit_code, "")
            assert says in done.stderr
