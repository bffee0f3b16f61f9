"""Two rows of one id are found in any number of rows, on the disk, and refused."""

import random
import tempfile
import tracemalloc
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from dgmark.columns import own_ids
from dgmark.columns.own_ids import check_own_ids
from dgmark.errors import InputError


def check(ids: pa.Array, batch: int = 100) -> None:
    check_own_ids(lambda: (ids.slice(start, batch) for start in range(0, len(ids), batch)))


@pytest.mark.parametrize("kind", [pa.int64(), pa.uint16(), pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_rows_are_refused_if_a_count_of_all_ids_finds_two(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_ids, "_RUN", 64)
    draw, seen = random.Random(0), Counter[bool]()
    for _ in range(40):
        rows, values = draw.randrange(1200), 10 ** draw.choice([2, 9])
        largest = min(values, 2**16 if kind == pa.uint16() else values)
        numbers = [draw.choice([None, draw.randrange(largest)]) for _ in range(rows)]
        texts = [None if one is None else f"é{one}" for one in numbers]
        ids = pa.array(numbers if pa.types.is_integer(kind) else texts, kind)
        counts = Counter(str(one) for one in ids.to_pylist() if one is not None)
        seen[twice := max(counts.values(), default=0) > 1] += 1
        if not twice:
            check(ids)
            continue
        with pytest.raises(InputError, match="rows have the id") as refused:
            check(ids)
        times, name = str(refused.value).split(" rows have the id ")
        assert counts[name.split("'")[1]] == int(times) > 1
    assert min(seen[True], seen[False]) > 5


def test_the_first_and_the_last_row_may_share_an_id() -> None:
    with pytest.raises(InputError, match="2 rows have the id '0': give each row its own id"):
        check(pa.array([*range(3000), 0]))


def test_what_names_no_row_is_left_out() -> None:
    check(pa.array([0.5, 0.5]))
    check(pa.array([None, None, "a"]))
    places = pa.array([0, 1, 2], pa.int32()).buffers()[1]
    no_text = pa.Array.from_buffers(pa.string(), 2, [None, places, pa.py_buffer(b"\xff\xff")])
    check(no_text)
    check(pa.chunked_array([no_text, ["a"]]))


def test_memory_does_not_grow_with_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_ids, "_RUN", 512)

    def peak(rows: int) -> int:
        def read() -> Iterator[Any]:
            return (pa.array(range(start, start + 500)) for start in range(0, rows, 500))

        tracemalloc.start()
        check_own_ids(read)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak(2_000)  # what is loaded at the first call
    few, many = peak(2_000), peak(20_000)
    # where each of the runs begins: about 4.4 bytes a row for runs of 512, and .02 for those of 2^17
    assert many < few + 18_000 * 5, (few, many)


def test_a_full_disk_says_where_to_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: Any) -> int:
        raise OSError(28, "No space left on device")

    real = tempfile.TemporaryFile

    def opened() -> Any:
        file = real(buffering=0)
        monkeypatch.setattr(file, "write", full, raising=False)
        return file

    monkeypatch.setattr(tempfile, "TemporaryFile", opened)
    with pytest.raises(InputError, match=r"No space left on device; 16 bytes a row .* make room there, .*TMPDIR"):
        check(pa.array([1, 2]))
