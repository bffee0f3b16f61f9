"""Many texts: in order on several processes, resumed, Parquet, and memory that does not grow."""

import json
import tracemalloc
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import pyarrow as arrow
import pyarrow.parquet as parquet
import pytest

from dgmark.errors import InputError, NoTexts, ResumeMismatch
from dgmark.rows.jsonl import BadRow, Row
from dgmark.rows.row_file import append_rows, take_up
from dgmark.rows.texts import Item, read_texts
from dgmark.rows.workers import in_order
from support.command_line import rows, run
from support.known_keys import known_key
from support.unchecked import unchecked

TEXTS = [f"This is text number {n}, which says that {n} is a number." for n in range(150)]


def doubled(chunk: list[int]) -> list[int]:
    return [2 * item for item in chunk]


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_items(workers: int) -> None:
    assert list(in_order(doubled, range(300), workers=workers)) == [(n, 2 * n) for n in range(300)]


def scaled(chunk: list[int], factor: int, offset: int) -> list[int]:
    return [factor * item + offset for item in chunk]


@pytest.mark.parametrize("workers", [1, 2])
def test_the_work_gets_what_all_chunks_share(workers: int) -> None:
    made = in_order(scaled, range(130), workers=workers, shared=(3, 1))
    assert [result for _, result in made] == [3 * n + 1 for n in range(130)]


def test_two_runs_in_one_process_keep_their_own() -> None:
    both = zip(in_order(scaled, range(130), shared=(1, 0)), in_order(scaled, range(130), shared=(2, 0)), strict=True)
    assert all(two == 2 * one for (_, one), (_, two) in both)


def test_items_are_read_as_they_are_needed() -> None:
    made = in_order(doubled, count())
    assert list(islice(made, 3)) == [(0, 0), (1, 2), (2, 4)]


def items(number: int) -> Iterator[Item | BadRow]:
    return iter([Item(str(n), "text") for n in range(number)])


AGREE = {"fpr": 0.5}


def finished(number: int) -> list[Row]:
    return [{"id": str(n), "fpr": 0.5, "schema": 2} for n in range(number)]


def test_a_file_is_taken_up_where_it_was_torn(tmp_path: Path) -> None:
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
        (b'{"id": "0", "fpr": 0.1}\n', "another fpr"),
        (b"A diary.\n", "no rows of dgmark"),
        (b"A diary without a line end.", "no rows of dgmark"),
        (b'{"id": "0", "fpr": 0.5}\nA diary.', "no rows of dgmark"),
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
        made = in_order(
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


# --- the command ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key.json"
    known_key("batch").save(path)
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "texts.parquet"
    columns = {"id": [f"row {n}" for n in range(150)], "text": [*TEXTS[:-1], None], "more": list(range(150))}
    parquet.write_table(arrow.table(columns), path, row_group_size=40)
    return path


def test_parquet_is_read_row_by_row(table: Path) -> None:
    read = list(read_texts(str(table)))
    assert read[0] == Item("row 0", TEXTS[0])
    assert isinstance(read[-1], BadRow)
    assert len(read) == 150


def test_parquet_of_ids_without_names_is_numbered(tmp_path: Path) -> None:
    path = tmp_path / "ids.parquet"
    parquet.write_table(arrow.table({"token_ids": [[5, 6], [7]]}), path)
    assert list(read_texts(str(path))) == [Item(f"{path}:1", [5, 6]), Item(f"{path}:2", [7])]


def test_parquet_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    path = tmp_path / "no.parquet"
    parquet.write_table(arrow.table({"words": ["a"]}), path)
    with pytest.raises(NoTexts, match='neither a column "text"'):
        list(read_texts(str(path)))
    path.write_bytes(b"not parquet")
    with pytest.raises(NoTexts, match="cannot be read as Parquet"):
        list(read_texts(str(path)))


def test_a_batch_is_written_resumed_and_summed_up(key_file: Path, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    first = run("detect", "--key", key_file, "--out", out, table)
    assert first.exit_code == 0, first.stderr
    assert "149 scored (149 uncertain), 1 cannot be used" in first.stderr
    assert first.stdout == ""
    whole = out.read_bytes()
    assert [row["id"] for row in rows(whole.decode())] == [f"row {n}" for n in range(150)]
    out.write_bytes(b"".join(whole.splitlines(keepends=True)[:70]) + b'{"id": "ro')
    again = run("detect", "--key", key_file, "--out", out, table)
    assert "70 rows are already in" in again.stderr
    assert out.read_bytes() == whole
    assert run("detect", "--key", key_file, "--out", out, table).exit_code == 0
    assert run("detect", "--key", key_file, "--out", out, "--fpr", 0.5, table).exit_code == 4
    assert out.read_bytes() == whole


@pytest.mark.slow
def test_two_processes_write_what_one_does(key_file: Path, table: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    run("detect", "--key", key_file, "--out", one, table)
    assert run("detect", "--key", key_file, "--out", two, "--workers", 2, table).exit_code == 0
    assert one.read_bytes() == two.read_bytes()


def test_another_ring_of_keys_does_not_go_on_with_the_file(table: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.mkdir()
    known_key("batch").save(keys / "0.json")
    out = tmp_path / "out.jsonl"
    short = tmp_path / "short.jsonl"
    short.write_text(json.dumps({"id": "a", "text": TEXTS[0]}) + "\n")
    assert run("detect", "--keys", keys, "--out", out, short).exit_code == 0
    known_key("more").save(keys / "1.json")
    again = run("detect", "--keys", keys, "--out", out, short)
    assert again.exit_code == 4
    assert "another keys_tested" in again.stderr


def failing_then_good(tmp_path: Path) -> tuple[Path, Path]:
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text('{"id": "bad"}\n' + json.dumps({"id": "a", "text": " ".join(TEXTS)}) + "\n")
    return source, out


def test_check_of_a_finished_file_counts_the_rows_it_holds(key_file: Path, tmp_path: Path) -> None:
    source, out = failing_then_good(tmp_path)
    source.write_text(source.read_text().split("\n", 1)[1])
    codes = [run("detect", "--key", key_file, "--check", "--out", out, source).exit_code for _ in range(2)]
    assert codes == [1, 1]


def test_check_of_a_finished_file_counts_its_errors(key_file: Path, tmp_path: Path) -> None:
    source, out = failing_then_good(tmp_path)
    again = [run("detect", "--key", key_file, "--check", "--out", out, source) for _ in range(2)]
    assert [result.exit_code for result in again] == [4, 4]
    assert "1 scored (1 not_detected), 1 cannot be used" in again[1].stderr


@pytest.mark.parametrize(
    "options",
    [["--phase", "start"], ["--max-crop", 5], ["--only", "0:9"], ["--spans"], ["--ids"], ["--normalise", "nfc"]],
)
def test_rows_of_other_settings_are_not_mixed(key_file: Path, tmp_path: Path, options: list[object]) -> None:
    source, out = failing_then_good(tmp_path)
    assert run("detect", "--key", key_file, "--out", out, source).exit_code == 0
    whole = out.read_bytes()
    mixed = run("detect", "--key", key_file, "--out", out, *options, source)
    assert (mixed.exit_code, out.read_bytes()) == (4, whole)
    assert "another settings" in mixed.stderr


def test_another_ring_of_as_many_keys_does_not_go_on_with_the_file(tmp_path: Path) -> None:
    source, out = failing_then_good(tmp_path)
    keys = tmp_path / "keys"
    keys.mkdir()
    known_key("batch").save(keys / "0.json")
    assert run("detect", "--keys", keys, "--out", out, source).exit_code == 0
    (keys / "0.json").unlink()
    known_key("more").save(keys / "0.json")
    assert "another settings" in run("detect", "--keys", keys, "--out", out, source).stderr


def test_an_output_among_the_inputs_is_refused(key_file: Path, tmp_path: Path) -> None:
    source, _ = failing_then_good(tmp_path)
    for out in (source, tmp_path / "out.jsonl", tmp_path / "deeper" / "out.jsonl"):
        whole = source.read_bytes()
        refused = run("detect", "--key", key_file, "--out", out, tmp_path if out != source else source)
        assert (refused.exit_code, source.read_bytes()) == (2, whole)
        assert "which is read" in refused.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--out", "o.jsonl", "--format", "csv"],
        ["--out", "o.jsonl", "--show"],
        ["--out", "o.jsonl", "--plot", "p.png"],
        ["--only", "0:3", "--spans"],
        ["--only", "0:3", "--show"],
        ["--only", "0:3", "--plot", "p.png"],
        ["--plot", "picture.nothing"],
        ["--fpr", "1e-310"],
    ],
)
def test_what_cannot_be_meant_together_is_refused(key_file: Path, options: list[str]) -> None:
    assert run("detect", "--key", key_file, *options, stdin="A text.").exit_code == 2


def test_a_picture_that_cannot_be_written_is_an_error_of_input(key_file: Path, tmp_path: Path) -> None:
    refused = run("detect", "--key", key_file, "--plot", tmp_path / "no" / "p.png", stdin="A text.")
    assert refused.exit_code == 4
    assert "cannot be written" in refused.stderr


@pytest.mark.parametrize("kind", ["table", "csv", "json", "jsonl"])
def test_a_lone_surrogate_in_an_id_can_be_shown(key_file: Path, kind: str) -> None:
    row = '{"id": "a\\ud800", "text": "A text."}\n'
    assert run("detect", "--key", key_file, "--format", kind, stdin=row + row).exit_code == 0


def test_normalise_may_be_spelled_the_american_way(key_file: Path) -> None:
    text = "The \u201cking\u201d went to the \u201csea\u201d."
    shown = [
        run("detect", "--key", key_file, "--format", "jsonl", option, "quotes", stdin=text).stdout
        for option in ("--normalise", "--normalize")
    ]
    assert shown[0] == shown[1] != ""


def test_all_steps_may_be_among_others(key_file: Path) -> None:
    assert run("detect", "--key", key_file, "--normalise", "all", "--normalise", "nfc", stdin="A text.").exit_code == 0


def test_parquet_that_is_damaged_inside_says_after_which_row(table: Path, tmp_path: Path) -> None:
    path = tmp_path / "damaged.parquet"
    content = bytearray(table.read_bytes())
    at = len(content) // 2
    content[at : at + 600] = b"\xff" * 600
    path.write_bytes(bytes(content))
    with pytest.raises(NoTexts, match="cannot be read as Parquet after row"):
        list(read_texts(str(path)))


def test_parquet_bytes_that_are_no_text_are_one_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "bytes.parquet"
    raw = arrow.array([b"good", b"\xff\xfe", b"fine"], arrow.binary())
    texts = arrow.Array.from_buffers(arrow.string(), 3, raw.buffers())
    parquet.write_table(arrow.table({"text": texts}), path)
    read = list(read_texts(str(path)))
    assert [isinstance(item, BadRow) for item in read] == [False, True, False]


def test_standard_input_is_read_as_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        buffer = (b'\n{"id": "%d", "text": "text"}\n' % n for n in count())

    monkeypatch.setattr("dgmark.rows.texts.sys.stdin", Endless())
    assert list(islice(read_texts("-"), 2)) == [Item("0", "text"), Item("1", "text")]
