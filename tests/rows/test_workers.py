"""Many items: in order on several processes, files resumed where they stopped, and memory that does not grow."""

import json
import tracemalloc
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pytest

from dgmark.errors import InputError, ResumeMismatch
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.row_file import append_rows, take_up
from dgmark.rows.texts import Item, read_texts
from dgmark.rows.workers import map_in_order
from support.command_line import rows
from support.unchecked import unchecked


def doubled(chunk: list[int]) -> list[int]:
    return [2 * item for item in chunk]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    assert list(map_in_order(doubled, range(300), workers=workers)) == [(n, 2 * n) for n in range(300)]


def scaled(chunk: list[int], factor: int, offset: int) -> list[int]:
    return [factor * item + offset for item in chunk]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_work_gets_the_shared_arguments(workers: int) -> None:
    made = map_in_order(scaled, range(130), workers=workers, shared=(3, 1))
    assert [result for _, result in made] == [3 * n + 1 for n in range(130)]


def test_two_runs_in_one_process_keep_their_own_arguments() -> None:
    both = zip(
        map_in_order(scaled, range(130), shared=(1, 0)), map_in_order(scaled, range(130), shared=(2, 0)), strict=True
    )
    assert all(two == 2 * one for (_, one), (_, two) in both)


def test_items_are_read_as_they_are_needed() -> None:
    made = map_in_order(doubled, count())
    assert list(islice(made, 3)) == [(0, 0), (1, 2), (2, 4)]


def items(number: int) -> Iterator[Item | BadRow]:
    return iter([Item(str(n), "text") for n in range(number)])


AGREE = {"fpr": 0.5}


def finished(number: int) -> list[Row]:
    return [{"id": str(n), "fpr": 0.5, "schema": 2} for n in range(number)]


def test_a_torn_file_is_resumed_where_it_was_torn(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    list(append_rows(path, finished(5)))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    rest = items(8)
    assert take_up(path, rest, AGREE) == 4
    assert [item.row_id for item in rest if isinstance(item, Item)] == ["4", "5", "6", "7"]
    list(append_rows(path, finished(5)[4:]))
    assert path.read_bytes() == whole


def test_error_rows_at_the_end_are_made_again_and_those_before_are_done(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    wrong = {"error": "empty", "schema": 2}
    list(append_rows(path, [{"id": "0", **wrong}, *finished(2)[1:], {"id": "2", **wrong}, {"id": "3", **wrong}]))
    rest, seen = items(5), list[Row]()
    assert take_up(path, rest, AGREE, seen.append) == 2
    assert [row["id"] for row in seen] == ["0", "1"]
    assert [item.row_id for item in rest if isinstance(item, Item)] == ["2", "3", "4"]
    assert rows(path.read_text()) == seen


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'{"id": "other", "fpr": 0.5}\n', "same inputs"),
        (b'{"id": "0", "fpr": 0.1}\n', "differs in fpr"),
        (b"A diary.\n", "not rows of dgmark"),
        (b"A diary without a line end.", "not rows of dgmark"),
        (b'{"id": "0", "fpr": 0.5}\nA diary.', "not rows of dgmark"),
        (b'{"id": "0", "fpr": 0.5}\n{"id": "1", "fpr": 0.5}\n{"id": "2", "fpr": 0.5}\n', "no more"),
    ],
)
def test_a_file_of_another_run_is_left_alone(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    with pytest.raises(ResumeMismatch, match=says):
        take_up(path, items(2), AGREE)
    assert path.read_bytes() == content


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        take_up(tmp_path, items(1), AGREE)


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    def peak(number: int) -> int:
        source, out = tmp_path / f"in-{number}.jsonl", tmp_path / f"out-{number}.jsonl"
        with open(source, "w") as file:
            file.writelines(json.dumps({"id": str(n), "text": "x" * 500}) + "\n" for n in range(number))
        tracemalloc.start()
        texts = read_texts(str(source))
        take_up(out, texts, {})
        made = map_in_order(
            lambda chunk: [{"id": i.row_id, "n": len(i.content)} for i in chunk if isinstance(i, Item)], texts
        )
        for _ in append_rows(out, (row for _, row in made)):
            pass
        assert take_up(out, read_texts(str(source)), {}) == number
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    with unchecked():
        peak(200)
        assert peak(6000) < 1.5 * peak(600) + 100_000
