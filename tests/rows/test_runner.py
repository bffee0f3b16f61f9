"""One run over rows: what is open, batches, rows that fail, and what an interruption leaves."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from dgmark.errors import DgmarkError, InputError, PromptTooLong, ResumeMismatch, SettingsError
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.row_file import RowFile
from dgmark.rows.runner import RowRun, Task, one_by_one, tasks_of

SHARED: Row = {"model": "storyteller"}
SCHEMA = 7


def task(number: int, seed: int = 0) -> Task[int]:
    return Task(f"row {number}", number, same={"number": number, "seed": seed})


def made(batch: Sequence[Task[int]]) -> list[Row]:
    return [{"id": one.row_id, **one.same, **SHARED} for one in batch]


def opened(path: Path) -> RowFile:
    return RowFile(path, SHARED, ["number", "seed"])


def stored(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


@pytest.mark.parametrize(("size", "sizes"), [(2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_rows_come_in_order_and_in_batches(size: int, sizes: list[int]) -> None:
    seen: list[int] = []

    def work(batch: list[Task[int]]) -> list[Row]:
        seen.append(len(batch))
        return made(batch)

    batches = list(RowRun[int]([task(number) for number in range(5)]).batches(work, size, SCHEMA))
    assert seen == sizes
    assert [row["number"] for batch in batches for row in batch] == [0, 1, 2, 3, 4]


def test_each_row_is_a_task_with_a_seed_of_its_own() -> None:
    def number(row: Row, seed: int) -> Task[int] | BadRow:
        return Task(row["id"], row["n"], same={"seed": seed}) if "n" in row else BadRow(row["id"], "no n")

    given: list[Row | BadRow] = [{"id": "a", "n": 5}, BadRow("x", "not JSON"), {"id": "b"}, {"id": "c", "n": 6}]
    tasks = tasks_of(given, number, seed=10, purpose="number to double")
    assert tasks == [
        Task("a", 5, {"seed": 10}),
        BadRow("x", "not JSON"),
        BadRow("b", "no n"),
        Task("c", 6, {"seed": 13}),
    ]
    with pytest.raises(InputError, match="there is no number to double"):
        tasks_of([], number, seed=0, purpose="number to double")


def test_two_rows_with_one_id_are_refused() -> None:
    with pytest.raises(InputError, match="two rows have the id 'row 1'"):
        RowRun[int]([task(1), task(2), BadRow("row 1", "not JSON")])


def test_finished_rows_are_not_made_again(path: Path) -> None:
    with opened(path) as file:
        file.append(made([task(2)]))
    with opened(path) as file:
        run = RowRun[int]([task(1), task(2), task(3)], file)
        assert (run.total, run.finished) == (3, 1)
        assert [row["id"] for batch in run.batches(made, 8, SCHEMA) for row in batch] == ["row 1", "row 3"]
    assert stored(path) == ["row 2", "row 1", "row 3"]


def test_a_finished_row_of_the_same_id_but_another_task_is_refused(path: Path) -> None:
    with opened(path) as file:
        file.append(made([task(1)]))
    before = path.read_bytes()
    with (
        opened(path) as file,
        pytest.raises(ResumeMismatch, match=r"out.jsonl holds a row 'row 1' made from a different seed"),
    ):
        RowRun[int]([task(1, seed=5)], file, source="seed")
    assert path.read_bytes() == before


def test_rows_that_fail_keep_their_places_and_are_last_in_the_file(path: Path) -> None:
    def work(batch: list[Task[int]]) -> list[Row | DgmarkError]:
        return [PromptTooLong("too long") if one.content == 3 else made([one])[0] for one in batch]

    with opened(path) as file:
        run = RowRun[int]([task(1), BadRow("x", "the text is empty", InputError), task(3), task(4)], file)
        (rows,) = run.batches(work, 8, SCHEMA)
    assert [row["id"] for row in rows] == ["row 1", "x", "row 3", "row 4"]
    assert rows[1] == {"id": "x", "error": "the text is empty", "schema": SCHEMA}
    assert rows[2] == {"id": "row 3", "error": "too long", "schema": SCHEMA}
    assert [type(error) for error in run.errors] == [InputError, PromptTooLong]
    run.check_some_done()
    assert stored(path) == ["row 1", "row 4", "x", "row 3"]
    with opened(path) as file:
        again = RowRun[int]([task(1), Task("x", 2), task(3), task(4)], file)
        assert [one.row_id for one in again.open] == ["x", "row 3"]


def test_a_run_in_which_every_open_row_fails_raises_the_first_error() -> None:
    for bad in ([BadRow("a", "first"), BadRow("b", "second")], [BadRow("a", "first")]):
        run = RowRun[int](bad)
        list(run.batches(made, 1, SCHEMA))
        with pytest.raises(InputError, match=r"^a: first$"):
            run.check_some_done()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SettingsError], ids=lambda kind: kind.__name__)
def test_an_interruption_keeps_the_batches_that_are_done(path: Path, stop: type[BaseException]) -> None:
    def work(batch: list[Task[int]]) -> list[Row]:
        if batch[0].content == 3:
            raise stop("now")
        return made(batch)

    tasks = [task(number) for number in (1, 2, 3, 4)]
    with opened(path) as file, pytest.raises(stop):
        list(RowRun(tasks, file).batches(work, 2, SCHEMA))
    assert stored(path) == ["row 1", "row 2"]
    with opened(path) as file:
        assert [one.row_id for one in RowRun(tasks, file).open] == ["row 3", "row 4"]


def test_work_row_by_row_makes_an_error_of_a_bad_input_only() -> None:
    def work(one: Task[int]) -> Row:
        if one.content == 2:
            raise InputError("no hole")
        return {"id": one.row_id}

    first, second, third = one_by_one(work, [task(1), task(2), task(3)])
    assert (first, third) == ({"id": "row 1"}, {"id": "row 3"})
    assert isinstance(second, InputError)

    def wrong(one: Task[int]) -> Row:
        raise SettingsError("of all rows alike")

    with pytest.raises(SettingsError):
        one_by_one(wrong, [task(1)])
