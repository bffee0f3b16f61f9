"""One run over rows: what is open, batches, rows that fail, and what an interruption leaves."""

import json
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from dgmark.cli.row_output import Work, items_of, write_rows
from dgmark.errors import DgmarkError, InputError, PromptTooLong, ResumeMismatch, SettingsError
from dgmark.rows.item import Item, Row

SHARED: Row = {"model": "storyteller", "schema": 7}


def item(number: int, seed: int = 0) -> Item:
    return Item(f"row {number}", number, source={"number": number, "seed": seed})


def bad(row_id: str, why: str) -> Item:
    return Item(row_id).failed(why)


def made(batch: Sequence[Item], _: object) -> list[Row]:
    return [{"id": one.row_id, **one.source, **SHARED} for one in batch]


def ran(items: Sequence[Item], path: Path | None, work: Work = made, **options: Any) -> dict[str, Row]:
    """The rows that a run makes, as it prints them."""
    options |= {"schema": SHARED["schema"], "shared": SHARED, "out": path, "source": "seed", "as_json": True}
    with redirect_stdout(StringIO()) as printed:
        write_rows(items, work, **options)
    return {row["id"]: row for row in map(json.loads, printed.getvalue().splitlines())}


def stored(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


@pytest.mark.parametrize(("size", "sizes"), [(2, [2, 2, 1]), (5, [5]), (9, [5])])
def test_rows_come_in_order_and_in_batches(size: int, sizes: list[int]) -> None:
    seen: list[int] = []

    def work(batch: list[Item], progress: object) -> list[Row]:
        seen.append(len(batch))
        return made(batch, progress)

    rows = ran([item(number) for number in range(5)], None, work, batch_size=size)
    assert seen == sizes
    assert [row["number"] for row in rows.values()] == [0, 1, 2, 3, 4]


def test_each_row_becomes_an_item_with_a_seed_of_its_own() -> None:
    def number(read: Item, seed: int) -> Item:
        if "n" not in read.content:
            raise InputError("no n")
        return replace(read, content=read.content["n"], source={"seed": seed})

    read = [Item("a", {"n": 5}), bad("x", "not JSON"), Item("b", {}), Item("c", {"n": 6})]
    items = items_of(read, number, seed=10, purpose="number to double")
    assert [(one.row_id, one.source.get("seed"), one.error and str(one.error)) for one in items] == [
        ("a", 10, None),
        ("x", None, "not JSON"),
        ("b", None, "no n"),
        ("c", 13, None),
    ]
    assert [one.content for one in items if one.error is None] == [5, 6]
    with pytest.raises(InputError, match="there is no number to double"):
        items_of([], number, seed=0, purpose="number to double")


def test_two_rows_with_one_id_are_refused() -> None:
    with pytest.raises(InputError, match="two rows have the id 'row 1'"):
        ran([item(1), item(2), bad("row 1", "not JSON")], None)


def test_finished_rows_are_not_made_again_and_those_of_another_task_are_refused(path: Path) -> None:
    ran([item(2)], path)
    assert ran([item(1), item(2), item(3)], path).keys() == {"row 1", "row 3"}
    assert stored(path) == ["row 2", "row 1", "row 3"]
    before = path.read_bytes()
    with pytest.raises(ResumeMismatch, match=r"out.jsonl holds a row 'row 1' made from a different seed"):
        ran([item(1, seed=5)], path)
    assert path.read_bytes() == before


def test_rows_that_fail_keep_their_places_and_are_last_in_the_file(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(batch: list[Item], progress: object) -> list[Row | DgmarkError]:
        return [PromptTooLong("too long") if one.content == 3 else made([one], progress)[0] for one in batch]

    rows = ran([item(1), bad("x", "the text is empty"), item(3), item(4)], path, work, batch_size=8)
    assert list(rows) == ["row 1", "x", "row 3", "row 4"]
    assert rows["x"] == {"id": "x", "error": "the text is empty", "schema": 7}
    assert rows["row 3"] == {"id": "row 3", "error": "too long", "schema": 7}
    assert "errors in 2 of 4 rows" in capsys.readouterr().err
    assert stored(path) == ["row 1", "row 4", "x", "row 3"]
    ran([item(1), item(3), item(4)], path)
    assert stored(path) == ["row 1", "row 4", "row 3"]
    assert "2 of 3 rows are already in" in capsys.readouterr().err


@pytest.mark.parametrize("failing", [[bad("a", "first"), bad("b", "second")], [bad("a", "first")]])
def test_a_run_in_which_every_row_fails_raises_the_first_error(failing: list[Item]) -> None:
    with pytest.raises(InputError, match=r"^a: first$"):
        ran(failing, None)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SettingsError], ids=lambda kind: kind.__name__)
def test_an_interruption_keeps_the_batches_that_are_done(path: Path, stop: type[BaseException]) -> None:
    def work(batch: list[Item], progress: object) -> list[Row]:
        if batch[0].content == 3:
            raise stop("now")
        return made(batch, progress)

    items = [item(number) for number in (1, 2, 3, 4)]
    with pytest.raises(stop):
        ran(items, path, work, batch_size=2)
    assert stored(path) == ["row 1", "row 2"]
