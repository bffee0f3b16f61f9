"""Output files: taken up where they stopped, one writer at a time, and nothing cut that may be another's."""

import errno
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dgmark.errors import InputError, ResumeMismatch
from dgmark.rows.item import Item, Row
from dgmark.rows.jsonl import to_line
from dgmark.rows.sinks import Result, RowFile
from support.cases import data

SETTINGS: Row = {"model": "storyteller", "settings": {"length": 64}}


def row(number: int, **more: object) -> Row:
    return {"id": f"row {number}", **SETTINGS, "text": f"text {number}", **more}


def stored(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new folder" / "out.jsonl"


def results(*rows: Row) -> list[Result]:
    """Rows as what was made of items."""
    return [(Item(row["id"]), row) for row in rows]


def write(path: Path, *rows: Row) -> None:
    with RowFile(path, SETTINGS, in_order=True) as file:
        file.append(results(*rows))


# --- growing and resuming ------------------------------------------------------------------------


def test_a_file_is_taken_up_where_it_stopped(path: Path) -> None:
    write(path, row(1), row(2))
    with RowFile(path, SETTINGS, in_order=True) as file:
        assert list(file.rows()) == [row(1), row(2)]
        file.append(results(row(3)))
    assert stored(path) == [row(1), row(2), row(3)]


@pytest.mark.parametrize("kept", [1, 80, -1, None])
def test_a_half_written_last_line_is_removed_and_written_again(path: Path, kept: int) -> None:
    write(path, row(1), row(2))
    before = path.read_bytes()
    torn = before + to_line(row(3)).encode()[:kept]
    path.write_bytes(torn)
    with RowFile(path, SETTINGS, in_order=True) as file:
        assert [one["id"] for one in file.rows()] == ["row 1", "row 2"]
        assert path.read_bytes() == torn  # nothing is cut before there is something to write
        file.append(results(row(3)))
    assert stored(path) == [row(1), row(2), row(3)]


@pytest.mark.parametrize("other", [{"model": "other"}, {"settings": {"length": 65}}, {"model": ...}], ids=str)
def test_rows_of_other_settings_are_refused_and_kept(path: Path, other: Row) -> None:
    content = {name: value for name, value in row(1, **other).items() if value is not ...}
    path.parent.mkdir()
    path.write_text(json.dumps(content) + "\n" + '{"id": "half')
    before = path.read_bytes()
    for _ in range(2):  # a file that was refused is free again
        with pytest.raises(ResumeMismatch, match=f"rows of another run, which differs in {next(iter(other))}"):
            RowFile(path, SETTINGS)
    assert path.read_bytes() == before


def failed(number: int) -> Row:
    return {"id": f"row {number}", "error": "no prompt", "schema": 1}


def test_an_error_row_among_others_stays(path: Path) -> None:
    write(path, row(1), failed(2), row(3))
    before = path.read_bytes()
    with RowFile(path, SETTINGS, in_order=True) as file:
        assert [one["id"] for one in file.rows()] == ["row 1", "row 2", "row 3"]
        file.append(results(row(4)))
    assert path.read_bytes().startswith(before)


def test_a_row_that_is_no_json_leaves_the_file_as_it_was(path: Path) -> None:
    write(path, row(1))
    before = path.read_bytes()
    with RowFile(path, SETTINGS, in_order=True) as file, pytest.raises(ValueError, match="not JSON compliant"):
        file.append(results(row(2), row(3, p_value=math.nan)))
    assert path.read_bytes() == before


# --- what is not ours ----------------------------------------------------------------------------

FOREIGN = [b"\x89PNG", *(content.encode() for content in data(__file__, "foreign"))]
OURS = to_line({"id": "row 1", "settings": SETTINGS["settings"], **row(1)}).encode() + b"\n"


OTHERS = [(content, "choose another --out") for content in (*FOREIGN, OURS + b"A diary.", OURS + b'{"name": "')]
ALONE = [(OURS[:kept], r"one unfinished line.*delete the file to start again") for kept in (1, 60, -1)]


@pytest.mark.parametrize(("content", "message"), [*OTHERS, *ALONE], ids=repr)
def test_a_file_of_something_else_or_of_an_unfinished_line_is_refused_and_kept(
    path: Path, content: bytes, message: str
) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ResumeMismatch, match=message):
        RowFile(path, SETTINGS)
    assert path.read_bytes() == content


def test_rows_without_settings_are_known_by_all_that_they_share(path: Path) -> None:
    shared = {"attack": "crop", "options": {"front": 0.5}, "schema": 1}
    made = {"id": "a", "text": "t", **shared}
    with RowFile(path, shared, in_order=True) as file:
        file.append(results(made, {"id": "b", "error": "no text", "schema": 1}))
    assert stored(path) == [made, {"id": "b", "error": "no text", **shared}]


@pytest.mark.parametrize(
    ("place", "message"),
    [("/dev/full", "is not a file that can hold rows"), ("/dev/null/out.jsonl", "cannot be written"), (".", "written")],
)
def test_a_device_and_a_folder_are_no_row_files(place: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        RowFile(Path(place), SETTINGS)


# --- a disk that is full -------------------------------------------------------------------------


def fails_after(room: int) -> Callable[[int, bytes], int]:
    """A write that has room for so many bytes, and fails after them."""
    real, left = os.write, [room]

    def write_some(descriptor: int, content: bytes) -> int:
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = real(descriptor, bytes(content)[: left[0]])
        left[0] -= written
        return written

    return write_some


@pytest.mark.parametrize("room", [0, 7, 100, 150])
def test_a_full_disk_leaves_the_rows_before_and_a_file_that_resumes(
    path: Path, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, row(1), failed(2))
    made = [row(number) for number in (2, 3, 4)]
    with monkeypatch.context() as patch:
        patch.setattr("dgmark.rows.sinks.os.write", fails_after(room))
        with (
            RowFile(path, SETTINGS, in_order=True) as file,
            pytest.raises(InputError, match=r"No space left on device.*again"),
        ):
            file.append(results(*made))
    assert stored(path) == [row(1)]
    write(path, *made)
    assert stored(path) == [row(1), *made]


# --- one writer at a time ------------------------------------------------------------------------


def test_a_second_writer_is_refused_and_changes_nothing(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    with RowFile(path, SETTINGS, in_order=True) as file:
        file.append(results(row(1)))
        assert stored(path) == [row(1)]
        link.symlink_to(path)
        before = path.read_bytes()
        for other in (path, link):
            with pytest.raises(InputError, match=f"{other} is being written by another process") as refused:
                RowFile(other, SETTINGS)
            assert refused.value.exit_code == 4
        assert path.read_bytes() == before
        file.append(results(row(2)))
    write(path, row(3))
    assert stored(path) == [row(1), row(2), row(3)]


WRITER = """
import sys
from pathlib import Path
from dgmark.errors import InputError
from dgmark.rows.item import Item
from dgmark.rows.sinks import RowFile
path, name, refused = Path(sys.argv[1]), sys.argv[2], 0
for number in range(60):
    while True:
        try:
            with RowFile(path, {"settings": "s"}, in_order=True) as file:
                # an error row, so that the next writer has something to cut
                rows = [{"id": f"{name} {number}"}, {"id": f"{name} {number} failed", "error": "e", "schema": 1}]
                file.append([(Item(row["id"]), row) for row in rows])
            break
        except InputError:
            refused += 1
print(refused)
"""


def test_writers_that_race_lose_nothing_and_write_nothing_twice(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, text=True)
        for name in "abcd"
    ]
    refused = [int(writer.communicate()[0]) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0, 0, 0]
    good = [one["id"] for one in stored(path) if "error" not in one]
    assert sorted(good) == sorted(f"{name} {number}" for name in "abcd" for number in range(60))
    assert sum("error" in one for one in stored(path)) == 1
    assert sum(refused) > 0, "the writers never met: this run shows nothing"
