"""One run over rows: what is open, batches, rows that fail, and what an interruption leaves."""

import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from dgmark.cli.row_runs import RowOutput, Task, Work, make_rows, tasks_of
from dgmark.errors import DgmarkError, InputError, PromptTooLong, ResumeMismatch, SettingsError
from dgmark.rows.jsonl import BadRow, Row

SHARED: Row = {"model": "storyteller", "schema": 7}


def task(number: int, seed: int = 0) -> Task[int]:
    return Task(f"row {number}", number, same={"number": number, "seed": seed})


def made(batch: Sequence[Task[int]], _: object) -> list[Row]:
    return [{"id": one.row_id, **one.same, **SHARED} for one in batch]


def ran(
    tasks: Sequence[Task[int] | BadRow], path: Path | None, work: Work[int] = made, **options: Any
) -> dict[str, Row]:
    """The rows that a run makes, as it prints them."""
    output = RowOutput(SHARED["schema"], path, SHARED, source="seed", as_json=True)
    with redirect_stdout(StringIO()) as printed:
        make_rows(tasks, work, output, **options)
    return {row["id"]: row for row in map(json.loads, printed.getvalue().splitlines())}


def stored(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


@pytest.mark.parametrize(("size", "sizes"), [(2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_rows_come_in_order_and_in_batches(size: int, sizes: list[int]) -> None:
    seen: list[int] = []

    def work(batch: list[Task[int]], progress: object) -> list[Row]:
        seen.append(len(batch))
        return made(batch, progress)

    rows = ran([task(number) for number in range(5)], None, work, batch_size=size)
    assert seen == sizes
    assert [row["number"] for row in rows.values()] == [0, 1, 2, 3, 4]


def test_each_row_is_a_task_with_a_seed_of_its_own() -> None:
    def number(row: Row, seed: int) -> Task[int] | BadRow:
        return Task(row["id"], row["n"], same={"seed": seed}) if "n" in row else BadRow(row["id"], "no n")

    given: list[Row | BadRow] = [{"id": "a", "n": 5}, BadRow("x", "not JSON"), {"id": "b"}, {"id": "c", "n": 6}]
    expected = [Task("a", 5, {"seed": 10}), BadRow("x", "not JSON"), BadRow("b", "no n"), Task("c", 6, {"seed": 13})]
    assert tasks_of(given, number, seed=10, purpose="number to double") == expected
    with pytest.raises(InputError, match="there is no number to double"):
        tasks_of([], number, seed=0, purpose="number to double")


def test_two_rows_with_one_id_are_refused() -> None:
    with pytest.raises(InputError, match="two rows have the id 'row 1'"):
        ran([task(1), task(2), BadRow("row 1", "not JSON")], None)


def test_finished_rows_are_not_made_again_and_those_of_another_task_are_refused(path: Path) -> None:
    ran([task(2)], path)
    assert ran([task(1), task(2), task(3)], path).keys() == {"row 1", "row 3"}
    assert stored(path) == ["row 2", "row 1", "row 3"]
    before = path.read_bytes()
    with pytest.raises(ResumeMismatch, match=r"out.jsonl holds a row 'row 1' made from a different seed"):
        ran([task(1, seed=5)], path)
    assert path.read_bytes() == before


def test_rows_that_fail_keep_their_places_and_are_last_in_the_file(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(batch: list[Task[int]], progress: object) -> list[Row | DgmarkError]:
        return [PromptTooLong("too long") if one.content == 3 else made([one], progress)[0] for one in batch]

    rows = ran([task(1), BadRow("x", "the text is empty"), task(3), task(4)], path, work, batch_size=8)
    assert list(rows) == ["row 1", "x", "row 3", "row 4"]
    assert rows["x"] == {"id": "x", "error": "the text is empty", "schema": 7}
    assert rows["row 3"] == {"id": "row 3", "error": "too long", "schema": 7}
    assert "errors in 2 of 4 rows" in capsys.readouterr().err
    assert stored(path) == ["row 1", "row 4", "x", "row 3"]
    ran([task(1), task(3), task(4)], path)
    assert stored(path) == ["row 1", "row 4", "row 3"]
    assert "2 of 3 rows are already in" in capsys.readouterr().err


@pytest.mark.parametrize("bad", [[BadRow("a", "first"), BadRow("b", "second")], [BadRow("a", "first")]])
def test_a_run_in_which_every_open_row_fails_raises_the_first_error(bad: list[BadRow]) -> None:
    with pytest.raises(InputError, match=r"^a: first$"):
        ran(bad, None)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SettingsError], ids=lambda kind: kind.__name__)
def test_an_interruption_keeps_the_batches_that_are_done(path: Path, stop: type[BaseException]) -> None:
    def work(batch: list[Task[int]], progress: object) -> list[Row]:
        if batch[0].content == 3:
            raise stop("now")
        return made(batch, progress)

    tasks = [task(number) for number in (1, 2, 3, 4)]
    with pytest.raises(stop):
        ran(tasks, path, work, batch_size=2)
    assert stored(path) == ["row 1", "row 2"]
