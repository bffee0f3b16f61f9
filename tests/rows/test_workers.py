"""Many items: in order on several processes, and memory that does not grow."""

import json
import tracemalloc
from itertools import count, islice
from pathlib import Path

import pytest

from dgmark.rows.sinks import RowFile
from dgmark.rows.sources import read_texts
from dgmark.rows.workers import CHUNK, map_in_order
from support.unchecked import unchecked


def scaled(factor: int, offset: int, chunk: list[int]) -> list[int]:
    return [factor * item + offset for item in chunk]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    made = map_in_order(scaled, range(300), workers=workers, shared=(3, 1))
    assert list(made) == [(n, 3 * n + 1) for n in range(300)]


def test_items_are_read_as_they_are_needed() -> None:
    made = map_in_order(scaled, count(), shared=(2, 0))
    assert list(islice(made, 3)) == [(0, 0), (1, 2), (2, 4)]


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    def peak(number: int) -> int:
        source, out = tmp_path / f"in-{number}.jsonl", tmp_path / f"out-{number}.jsonl"
        with open(source, "w") as file:
            file.writelines(json.dumps({"id": str(n), "text": "x" * 500}) + "\n" for n in range(number))
        tracemalloc.start()
        texts = read_texts(str(source))
        made = map_in_order(lambda chunk: [{"id": i.row_id, "n": len(i.content)} for i in chunk], texts)
        with RowFile(out, {"settings": "s"}, in_order=True) as file:
            while results := [*islice(made, CHUNK)]:
                file.append(results)
        with RowFile(out, {"settings": "s"}) as file:
            assert sum(1 for _ in file.rows()) == number
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    with unchecked():
        peak(200)
        assert peak(6000) < 1.5 * peak(600) + 100_000
