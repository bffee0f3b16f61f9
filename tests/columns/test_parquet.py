"""Parquet in, Parquet out, in the shell: the rows, resuming after a stop, places, and what is refused."""

import os
import random
import stat
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgmark import DetectColumns, Detector, GenerateColumns
from dgmark.columns import parquet
from dgmark.columns.parquet import ParquetRun
from dgmark.errors import InputError, NoTexts, ResumeMismatch
from dgmark.models.load import NetworkDenoiser
from support.command_line import run
from support.known_keys import builtin_tokenizer, key_file_of, known_key
from support.marked_texts import marked_text

KEY = known_key("parquet", subkeys=4)
key_file = key_file_of(KEY)
TEXTS = [f"This is text number {n}." for n in range(2500)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    texts: list[str | None] = [*TEXTS]
    texts[7], texts[2400] = None, marked_text(KEY.subkey(2), 120)
    pq.write_table(pa.table({"n": range(2500), "body": texts}), path := tmp_path / "in.parquet", row_group_size=900)
    return path


def detect(key_file: Path, source: Any, out: Any, *options: Any) -> Any:
    return run("detect", "--key", key_file, "--column", "body", "--out", out, *options, source)


def test_a_file_is_scored_and_scored_again_only_if_it_differs(key_file: Path, source: Path, tmp_path: Path) -> None:
    before = source.read_bytes()
    first = detect(key_file, source, tmp_path / "out.parquet")
    assert first.exit_code == 0, first.stderr
    assert "2499 scored (2498 uncertain, 1 watermarked), 1 cannot be used" in first.stderr
    made = pq.read_table(tmp_path / "out.parquet")
    assert made.select(["n", "body"]) == pq.read_table(source)
    wanted = DetectColumns(KEY, "body")(pq.read_table(source))
    assert made.drop(["subkey"]).equals(wanted.drop(["subkey"]))
    assert made.column("subkey").null_count == 2500  # who wants to know it asks for it
    detect(key_file, source, tmp_path / "payload.parquet", "--payload")
    assert pq.read_table(tmp_path / "payload.parquet").equals(wanted)
    assert source.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["in.parquet", "out.parquet", "payload.parquet"]

    whole = (tmp_path / "out.parquet").read_bytes()
    again = detect(key_file, source, tmp_path / "out.parquet")
    assert "2500 rows were there already" in again.stderr
    other = detect(key_file, source, tmp_path / "out.parquet", "--fpr", 0.5)
    assert other.exit_code == 4
    assert "was made by another run, which differs in settings" in other.stderr
    assert (tmp_path / "out.parquet").read_bytes() == whole


def run_of(source: Path, target: Any, **state: Any) -> ParquetRun:
    return ParquetRun(str(source), str(target), {"settings": "a", **state}, part_rows=300)


class _Stop(Exception):
    """What ends a run."""


@pytest.mark.parametrize("stops_after", [0, 1, 4])
def test_a_run_that_was_stopped_goes_on_with_the_parts_that_are_missing(
    source: Path, tmp_path: Path, stops_after: int
) -> None:
    score = DetectColumns(KEY, "body")
    target, worked = tmp_path / "out.parquet", list[Any]()

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if len(worked) == stops_after:
                raise _Stop
            worked.append(batch)
            yield score(batch)

    with pytest.raises(_Stop):
        run_of(source, target).write(work, lambda *_: None)
    assert not target.exists()
    if stops_after:
        with pytest.raises(ResumeMismatch, match=r"out\.parquet\.parts was made by another run, .* in settings"):
            run_of(source, target, settings="b").write(work, lambda *_: None)
    seen: list[int] = []
    rest: list[int] = []

    def go_on(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            rest.append(len(batch))
            yield score(batch)

    assert run_of(source, target).write(go_on, lambda batch, _: seen.append(len(batch)))
    assert pq.read_table(target).equals(score(pq.read_table(source)))
    assert (sum(seen), len(rest)) == (2500, 9 - stops_after)
    assert not (tmp_path / "out.parquet.parts").exists()


def test_one_row_group_of_the_target_holds_many_parts(source: Path, tmp_path: Path) -> None:
    run_of(source, tmp_path / "out.parquet").write(lambda batches: map(DetectColumns(KEY, "body"), batches), print)
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == 1


def test_a_file_without_rows_has_the_columns_all_the_same(tmp_path: Path) -> None:
    pq.write_table(pa.table({"body": pa.array([], pa.string())}), source := tmp_path / "in.parquet")
    run_of(source, tmp_path / "out.parquet").write(lambda batches: map(DetectColumns(KEY, "body"), batches), print)
    assert pq.read_table(tmp_path / "out.parquet").schema.names == ["body", *DetectColumns.schema.names]


def test_places_may_be_urls_of_object_stores(source: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/in.parquet", source.read_bytes())
    run_ = ParquetRun("memory://in.parquet", "memory://found/out.parquet", {"settings": "a"})
    assert run_.write(lambda batches: map(DetectColumns(KEY, "body"), batches), lambda *_: None)
    with store.open("/found/out.parquet") as made:
        assert pq.read_table(made).equals(DetectColumns(KEY, "body")(pq.read_table(source)))
    assert [Path(name).name for name in store.ls("/found", detail=False)] == ["out.parquet"]
    assert not run_.write(lambda _: iter(()), lambda *_: None)


def test_what_cannot_be_read_or_written_is_refused(key_file: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no table")
    (tmp_path / "foreign.parquet").write_bytes(source.read_bytes())
    for arguments, message in (
        ([tmp_path / "text.parquet", tmp_path / "o.parquet"], "is no Parquet file that can be read"),
        ([tmp_path / "none.parquet", tmp_path / "o.parquet"], "cannot be read"),
        ([source, tmp_path / "foreign.parquet"], "exists, and dgmark did not write it"),
        ([source, source], "the same file"),
        ([source, tmp_path / "o.jsonl"], "Parquet is made from Parquet"),
        ([source, tmp_path / "o.parquet", "--spans"], "hold no spans"),
        ([source, tmp_path / "o.parquet", "--column", "text"], "no column 'text': the columns are 'n', 'body'"),
        ([source, tmp_path / "o.parquet", "--column", "n"], "column 'n' holds int64"),
        (["gopher://a/in.parquet", tmp_path / "o.parquet"], "gopher"),
    ):
        result = detect(key_file, *arguments)
        assert result.exit_code in (2, 4, 6), result.stderr
        assert message in result.stderr
        assert "bug" not in result.stderr
    assert (tmp_path / "foreign.parquet").read_bytes() == source.read_bytes()
    with pytest.raises(NoTexts):
        run_of(tmp_path.parent / "none", tmp_path / "o.parquet").write(lambda batches: batches, print)


def test_a_damaged_source_is_named_and_not_the_target(source: Path, tmp_path: Path) -> None:
    content = bytearray(source.read_bytes())
    content[1000:30_000] = bytes(29_000)  # the footer is whole
    source.write_bytes(content)
    run_ = run_of(source, tmp_path / "out.parquet")
    with pytest.raises(NoTexts, match=r"in\.parquet cannot be read any further"):
        run_.write(lambda batches: map(DetectColumns(KEY, "body"), batches), lambda *_: None)
    with pytest.raises(NoTexts, match=r"in\.parquet cannot be read any further"):
        run_.check_ids("body")


def test_every_finished_part_is_counted_where_batches_end_with_row_groups(tmp_path: Path) -> None:
    # as those of columns of a dictionary do: 5 parts, where rows / part_rows is 3
    values = pa.array([f"{number % 700}" for number in range(2000)]).dictionary_encode()
    pq.write_table(pa.table({"body": values}), source := tmp_path / "in.parquet", row_group_size=500)
    counted = list[int]()

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == 4:
                raise _Stop
            yield batch.append_column("error", pa.nulls(len(batch), pa.string()))

    run_ = ParquetRun(str(source), str(tmp_path / "out.parquet"), {}, part_rows=700)
    with pytest.raises(_Stop):
        run_.write(work, lambda *_: None)
    assert run_.write(work, lambda batch, _: counted.append(len(batch)))
    assert sum(counted) == 2000
    assert pq.read_table(tmp_path / "out.parquet").column("body").to_pylist() == values.to_pylist()


def test_memory_does_not_grow_with_the_rows(key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "_GROUP_BYTES", 2**20)
    monkeypatch.setattr(parquet, "_BUFFER", 2**16)
    verdict = Detector(KEY, tokenizer=builtin_tokenizer()).detect("A text.")
    monkeypatch.setattr(Detector, "detect_many", lambda _, texts, **__: [verdict for _ in texts])
    draw = random.Random(0)

    def peak(rows: int) -> int:
        """The largest sum of what Python and Arrow hold, while texts are scored that cannot be packed smaller."""
        table = pa.table({"body": [draw.randbytes(500).hex() for _ in range(rows)]})
        pq.write_table(table, source := tmp_path / "in.parquet", data_page_size=2**16)
        del table
        pool = pa.proxy_memory_pool(pa.default_memory_pool())
        before = pa.default_memory_pool()
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            made = detect(key_file, source, tmp_path / f"{rows}.parquet")
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(before)
        assert f"{rows} scored" in made.stderr
        return int(most + pool.max_memory())

    few, many = peak(2_000), peak(20_000)
    assert many < 1.25 * few, (few, many)


def test_a_full_disk_leaves_the_finished_parts(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Any] = []
    real = pq.write_table

    def full(table: Any, place: Any) -> None:
        if len(written) == 3:
            raise OSError(28, "No space left on device")
        written.append(table)
        real(table, place)

    score = DetectColumns(KEY, "body")
    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full)
        with pytest.raises(
            InputError, match=r"No space left on device; the parts that are finished are kept in .*parts"
        ):
            run_of(source, tmp_path / "out.parquet").write(lambda batches: map(score, batches), print)
    parts = [name for name in os.listdir(tmp_path / "out.parquet.parts") if name[0].isdigit()]
    assert len(parts) == 3
    run_of(source, tmp_path / "out.parquet").write(lambda batches: map(score, batches), lambda *_: None)
    assert pq.read_table(tmp_path / "out.parquet").equals(score(pq.read_table(source)))


@pytest.mark.slow
def test_prompts_of_parquet_become_the_texts_of_their_ids(storyteller: NetworkDenoiser, tmp_path: Path) -> None:
    key = known_key("written", subkeys=4)
    key.save(tmp_path / "key.json")
    prompts = pa.table({"id": ["a", "b", "c"], "prompt": ["The sea was", None, "A king"]})
    pq.write_table(prompts, tmp_path / "in.parquet")
    options = ("--key", tmp_path / "key.json", "--length", 8, "--block-length", 8, "--seed", 3)
    made = run("generate", *options, "--prompts", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet")
    assert made.exit_code == 0, made.stderr
    assert "2 written, 1 have errors" in made.stderr
    write = GenerateColumns(storyteller, key, id_column="id", seed=3, length=8, block_length=8)
    assert pq.read_table(tmp_path / "out.parquet").equals(write(prompts))
    again = run(
        "generate", *options, "--check", "--prompts", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet"
    )
    assert again.exit_code == 4, again.stderr  # these texts were not checked
    pq.write_table(pa.concat_tables([prompts, prompts]), tmp_path / "twice.parquet")
    twice = run("generate", *options, "--prompts", tmp_path / "twice.parquet", "--out", tmp_path / "o.parquet")
    assert twice.exit_code == 4
    assert "2 rows have the id" in twice.stderr


@pytest.mark.slow
def test_texts_of_parquet_are_checked_and_one_warning_says_which_are_missed(tmp_path: Path) -> None:
    known_key("written", subkeys=4).save(tmp_path / "key.json")
    prompts = pa.table({"id": [str(place) for place in range(6)], "prompt": ["The sea was"] * 5 + [None]})
    pq.write_table(prompts, tmp_path / "in.parquet")
    options = ("--key", tmp_path / "key.json", "--length", 8, "--block-length", 8, "--batch-size", 1)
    asked = ("generate", *options, "--prompts", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet")
    for more, said in (
        (["--check"], "warning: 5 of 5 texts will not be found with this key"),
        (["--top-k", 1], "warning: no token had a choice, so what was written names a key and bears no mark"),
    ):
        (tmp_path / "out.parquet").unlink(missing_ok=True)
        made = run(*asked, *more)
        assert made.exit_code == 0, made.stderr
        assert made.stderr.count("warning:") == made.stderr.count(said) == 1
        assert "MarkWarning" not in made.stderr
        table = pq.read_table(tmp_path / "out.parquet")
        assert ("verdict" in table.column_names) == ("--check" in more)
    done = run(*asked, "--top-k", 1)  # which a run that has nothing left to do says as well
    assert done.stderr.count("warning: no token had a choice") == 1


def test_two_runs_do_not_write_one_target(source: Path, tmp_path: Path) -> None:
    score = DetectColumns(Detector(KEY, tokenizer=builtin_tokenizer()).key, "body")

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        with pytest.raises(InputError, match="is being written by another process"):
            run_of(source, tmp_path / "out.parquet").write(lambda batches: map(score, batches), print)
        return map(score, batches)

    assert run_of(source, tmp_path / "out.parquet").write(work, lambda *_: None)
    assert stat.S_ISREG(os.stat(tmp_path / "out.parquet").st_mode)
