"""Parquet in, Parquet out: the rows, resuming after a stop, what a target is held to, places, and what is refused."""

import json
import os
import random
import tracemalloc
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dgmark import DetectColumns, Detector, GenerateColumns, detect_file
from dgmark.errors import InputError, NoTexts, ResumeMismatch, SettingsError
from dgmark.models.load import NetworkDenoiser
from dgmark.rows import parquet, parquet_sink
from support.command_line import run
from support.known_keys import builtin_tokenizer, key_file_of, known_key
from support.marked_texts import marked_text

KEY = known_key("parquet", subkeys=4)
DETECTOR = Detector(KEY, tokenizer=builtin_tokenizer())
key_file = key_file_of(KEY)
TEXTS = [f"This is text number {n}." for n in range(500)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    texts: list[str | None] = [*TEXTS]
    texts[7], texts[480] = None, marked_text(KEY.subkey(2), 120)
    return table_of(tmp_path / "in.parquet", texts)


def table_of(path: Path, texts: list[str | None], **columns: Any) -> Path:
    table = pa.table({"n": range(len(texts)), "body": pa.array(texts, pa.string()), **columns})
    pq.write_table(table, path, row_group_size=180)
    return path


def detect(key_file: Path, source: Any, out: Any, *options: Any, code: int | None = None) -> Any:
    return run("detect", "--key", key_file, "--text-column", "body", "--out", out, *options, source, code=code)


def scored(source: Any, out: Any, **options: Any) -> Any:
    return detect_file(DETECTOR, source, out, text_column="body", **options)


def without_subkey(source: Path, **options: Any) -> pa.Table:
    """What `DetectColumns` makes of a table, without what only those learn who ask for it."""
    made = DetectColumns(KEY, "body", **options)(pq.read_table(source))
    place = made.column_names.index(f"{options.get('prefix', '')}subkey")
    return made.set_column(place, made.field(place), pa.nulls(len(made), pa.int64()))


def test_a_file_is_scored_and_scored_again_only_if_it_differs(key_file: Path, source: Path, tmp_path: Path) -> None:
    before = source.read_bytes()
    first = detect(key_file, source, tmp_path / "out.parquet", code=4)
    assert "499 scored (498 uncertain, 1 watermarked), 1 cannot be used" in first.stderr
    made = pq.read_table(tmp_path / "out.parquet")
    assert made.equals(without_subkey(source))
    detect(key_file, source, tmp_path / "payload.parquet", "--payload", "--prefix", "m_")
    assert pq.read_table(tmp_path / "payload.parquet").equals(
        DetectColumns(KEY, "body", prefix="m_")(pq.read_table(source))
    )
    assert source.read_bytes() == before
    assert sorted(os.listdir(tmp_path)) == ["in.parquet", "out.parquet", "payload.parquet"]

    whole = (tmp_path / "out.parquet").read_bytes()
    again = detect(key_file, source, tmp_path / "out.parquet", code=4)
    assert "499 scored (498 uncertain, 1 watermarked), 1 cannot be used; of these, 500 there already" in again.stderr
    for options, named in ((("--fpr", 0.5), "settings"), (("--prefix", "a_"), "prefix")):
        other = detect(key_file, source, tmp_path / "out.parquet", *options, code=4)
        assert f"was made by another run, which differs in {named};" in other.stderr
    assert (tmp_path / "out.parquet").read_bytes() == whole


# ---- what a target is held to ----


def test_a_target_of_another_source_is_refused(source: Path, tmp_path: Path) -> None:
    scored(source, tmp_path / "out.parquet")
    before = (tmp_path / "out.parquet").read_bytes()
    other = table_of(tmp_path / "tuesday.parquet", [f"Of another day: {text}" for text in TEXTS])
    with pytest.raises(ResumeMismatch, match="was made by another run, which differs in source"):
        scored(other, tmp_path / "out.parquet")
    # also where only a column differs that is not scored
    table = pq.read_table(source)
    pq.write_table(table.set_column(0, "n", pa.array(range(1, 501))), source)
    with pytest.raises(ResumeMismatch, match="which differs in source"):
        scored(source, tmp_path / "out.parquet")
    assert (tmp_path / "out.parquet").read_bytes() == before


class _Stop(Exception):
    """What ends a run."""


@pytest.mark.parametrize("rows", [1, 150])
def test_a_run_that_was_stopped_goes_on_with_the_rows_that_are_missing(source: Path, tmp_path: Path, rows: int) -> None:
    out, done = tmp_path / "out.parquet", list[Any]()

    def stop(made: list[Any]) -> None:
        done.extend(made)
        if len(done) >= rows:  # which are on disk
            raise _Stop

    with pytest.raises(_Stop):
        scored(source, out, on_rows=stop)
    assert not out.exists()
    kept = (tmp_path / "out.parquet.jsonl").read_bytes()
    with pytest.raises(ResumeMismatch, match="differs in fpr, settings"):
        detect_file(Detector(KEY, tokenizer=builtin_tokenizer(), fpr=0.5), source, out, text_column="body")
    # the source was replaced: by one of other texts, and by one of as many rows in another order
    for texts in ([f"Of another day: {text}" for text in TEXTS], TEXTS[::-1]):
        other = table_of(tmp_path / "other.parquet", list(texts))
        with pytest.raises(ResumeMismatch, match="made from a different text"):
            scored(other, out)
    assert (tmp_path / "out.parquet.jsonl").read_bytes() == kept
    with (tmp_path / "out.parquet.jsonl").open("ab") as file:
        file.write(b'{"id": "20')  # what a crash cut off
    rest: list[Any] = []
    tally = scored(source, out, on_rows=rest.extend)
    assert (tally.resumed, tally.scored, tally.unusable) == (500 - len(rest), 499, 1)
    assert tally.resumed >= rows
    assert pq.read_table(out).equals(without_subkey(source))
    assert sorted(os.listdir(tmp_path)) == ["in.parquet", "other.parquet", "out.parquet"]


def test_a_source_that_changes_while_it_is_read_is_noticed(source: Path, tmp_path: Path) -> None:
    def replace(_: Any) -> None:
        os.replace(table_of(tmp_path / "new.parquet", [f"Of another day: {text}" for text in TEXTS]), source)

    with pytest.raises(InputError, match=r"in\.parquet changed while it was read"):
        scored(source, tmp_path / "out.parquet", on_rows=replace)
    assert not (tmp_path / "out.parquet").exists()
    with pytest.raises(ResumeMismatch, match="made from a different text"):
        scored(source, tmp_path / "out.parquet")


def test_no_file_of_another_is_written_over_or_deleted(source: Path, tmp_path: Path) -> None:
    for name, content in (("out.parquet.jsonl", b'{"mine": 1}\n'), ("out.parquet", source.read_bytes())):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ResumeMismatch, match=r"not rows of dgmark|dgmark did not write it"):
            scored(source, tmp_path / "out.parquet")
        assert (tmp_path / name).read_bytes() == content


def test_two_runs_do_not_write_one_target(source: Path, tmp_path: Path) -> None:
    refused: list[Any] = []

    def again(_: Any) -> None:
        with pytest.raises(InputError, match="is being written by another process"):
            scored(source, tmp_path / "out.parquet")
        refused.append(1)

    scored(source, tmp_path / "out.parquet", on_rows=again)
    assert refused


# ---- tables of every shape ----


def test_one_row_group_of_the_target_holds_many_batches(source: Path, tmp_path: Path) -> None:
    scored(source, tmp_path / "out.parquet")
    assert pq.ParquetFile(tmp_path / "out.parquet").num_row_groups == 1


def test_a_file_without_rows_has_the_columns_all_the_same(key_file: Path, tmp_path: Path) -> None:
    made = detect(key_file, table_of(tmp_path / "in.parquet", []), tmp_path / "out.parquet", code=0)
    assert "0 scored (none), 0 cannot be used" in made.stderr
    assert pq.read_table(tmp_path / "out.parquet").schema.names == ["n", "body", *DetectColumns.schema.names]


def test_columns_of_a_dictionary_keep_their_type(tmp_path: Path) -> None:
    # batches of these end with row groups
    values = pa.array([f"{number % 700}" for number in range(2000)]).dictionary_encode()
    pq.write_table(pa.table({"body": values}), source := tmp_path / "in.parquet", row_group_size=500)
    assert scored(source, tmp_path / "out.parquet").scored == 2000
    made = pq.read_table(tmp_path / "out.parquet").column("body")
    assert made.type == pq.read_table(source).column("body").type
    assert made.to_pylist() == values.to_pylist()


def test_several_files_or_a_folder_of_them_are_one_target(key_file: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "texts").mkdir()
    for name in "ba":
        table_of(folder / f"{name}.parquet", [f"Text {n} of {name}." for n in range(3)])
    for sources, texts in (([folder], "ab"), ([folder / "b.parquet", folder / "a.parquet"], "ba")):
        out = tmp_path / f"{texts}.parquet"
        run("detect", "--key", key_file, "--text-column", "body", "--out", out, *sources, code=0)
        wanted = [f"Text {n} of {name}." for name in texts for n in range(3)]
        assert pq.read_table(out).column("body").to_pylist() == wanted
    table_of(folder / "c.parquet", ["a"], more=[1])
    with pytest.raises(InputError, match=r"c\.parquet has other columns than .*a\.parquet"):
        scored(folder, tmp_path / "out.parquet")
    (folder / "c.parquet").write_text("no table")
    with pytest.raises(NoTexts, match=r"c\.parquet is not a Parquet file"):
        scored(folder, tmp_path / "out.parquet")


def test_results_are_printed_or_written_as_rows_as_of_any_file(key_file: Path, tmp_path: Path) -> None:
    texts = ["One text.", None, marked_text(KEY.subkey(2), 120)]
    first = table_of(tmp_path / "a.parquet", texts, name=["x", "y", "z"])
    second = table_of(tmp_path / "b.parquet", ["Another."], name=["x"])
    asked = ("detect", "--key", key_file, "--text-column", "body", "--id-column", "name")
    printed = run(*asked, "--json", first, second)
    rows = [json.loads(line) for line in printed.stdout.splitlines()]
    assert [(row["id"], row["file"], row.get("verdict")) for row in rows] == [
        ("x", str(first), "uncertain"),
        ("y", str(first), None),
        ("z", str(first), "watermarked"),
        ("x", str(second), "uncertain"),
    ]
    assert rows[1]["error"] == "there is no text: the value is missing"
    table = run(*asked, first, second).stdout
    assert f"{first}:x\t" in table
    assert f"{second}:x\t" in table
    run(*asked, "--out", tmp_path / "out.jsonl", first, second)
    assert [json.loads(line)["file"] for line in (tmp_path / "out.jsonl").read_text().splitlines()] == [
        row["file"] for row in rows
    ]
    alone = json.loads(run("detect", "--key", key_file, "--text-column", "body", "--json", second).stdout)
    assert alone["id"] == "0"
    assert "file" not in alone


def test_rows_without_an_id_are_named_by_their_number(tmp_path: Path) -> None:
    source = table_of(tmp_path / "in.parquet", ["a", "b"], name=["x", None])
    tally = scored(source, tmp_path / "out.jsonl", id_column="name")
    assert (tally.scored, tally.unusable) == (1, 1)
    assert tally.first_unusable is not None
    assert tally.first_unusable.row_id == "1"
    assert "the row has no id: give each row a text or a whole number in column name" in str(tally.first_unusable.error)


def test_token_ids_of_parquet_are_scored_as_ids(key_file: Path, tmp_path: Path) -> None:
    text = marked_text(KEY.subkey(2), 120)
    ids = builtin_tokenizer().encode(text)
    pq.write_table(pa.table({"text": ["Another text."], "token_ids": [ids]}), tmp_path / "in.parquet")
    for options, verdict in (
        ((), "uncertain"),
        (("--ids",), "watermarked"),
        (("--text-column", "token_ids"), "watermarked"),
    ):
        made = run("detect", "--key", key_file, "--json", *options, tmp_path / "in.parquet")
        assert json.loads(made.stdout)["verdict"] == verdict, made.stderr


def test_each_row_is_tested_with_the_key_that_it_names(tmp_path: Path) -> None:
    (keys := tmp_path / "keys").mkdir()
    KEY.save(keys / "acme.json")
    known_key("beta", subkeys=4).save(keys / "beta.json")
    text = marked_text(KEY.subkey(2), 120)
    source = table_of(tmp_path / "in.parquet", [text, text, text], tenant=["acme", "beta", "nobody"])
    asked = ("detect", "--keys", keys, "--key-column", "tenant", "--text-column", "body")
    made = run(*asked, "--out", tmp_path / "out.parquet", source)
    assert "2 scored (1 not_detected, 1 watermarked), 1 cannot be used" in made.stderr
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert rows[0]["p_value"] == DETECTOR.detect(text).p_value  # no search is paid for
    assert [row["key_fingerprint"] for row in rows] == [KEY.fingerprint, known_key("beta", subkeys=4).fingerprint, None]
    printed = [json.loads(line) for line in run(*asked, "--json", source).stdout.splitlines()]
    assert [row.get("p_value") for row in printed] == [row["p_value"] for row in rows]
    assert [row.get("keys_tested") for row in printed] == [1, 1, None]
    assert "there is no key 'nobody': the keys are acme, beta" in printed[2]["error"]
    # a row whose text is the same and whose key is another one is not finished
    run(*asked, "--out", tmp_path / "out.jsonl", source)
    table_of(source, [text, text, text], tenant=["acme", "acme", "nobody"])
    other = run(*asked, "--out", tmp_path / "out.jsonl", source, code=4)
    assert "holds a row '1' made from a different text or key" in other.stderr
    alone = run("detect", "--key", keys / "acme.json", "--key-column", "tenant", source)
    assert "give it with --keys FOLDER" in alone.stderr
    with pytest.raises(SettingsError, match="a column of keys belongs to a RowKeys"):
        scored(source, tmp_path / "o.parquet", key_column="tenant")


# ---- places ----


def test_places_may_be_urls_of_object_stores(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = fsspec.filesystem("memory")
    store.pipe_file("/in.parquet", source.read_bytes())
    out = "memory://found/out.parquet"
    assert scored("memory://in.parquet", out).scored == 499
    with store.open("/found/out.parquet") as made:
        assert pq.read_table(made).equals(without_subkey(source))
    assert [Path(name).name for name in store.ls("/found", detail=False)] == ["out.parquet"]
    assert os.listdir(tmp_path) == ["in.parquet"]
    assert scored("memory://in.parquet", out).resumed == 500


def test_what_cannot_be_read_or_written_is_refused(key_file: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("no table")
    (tmp_path / "text.jsonl").write_text('{"body": "a"}\n')
    table_of(tmp_path / "verdicts.parquet", ["a"], verdict=["b"])
    pq.write_table(pa.table([["a"], ["b"]], names=["body", "body"]), tmp_path / "twice.parquet")
    for arguments, message in (
        ([tmp_path / "text.parquet", tmp_path / "o.parquet"], "is not a Parquet file that can be read"),
        ([tmp_path / "none.parquet", tmp_path / "o.parquet"], "cannot be read"),
        ([source, source], "the same file"),
        ([tmp_path / "text.jsonl", tmp_path / "o.parquet"], "Parquet is made from Parquet"),
        ([source, tmp_path / "o.parquet", "--only", "0:9"], "ranges are those of one text"),
        ([source, tmp_path / "o.parquet", "--text-column", "text"], "no column 'text': the columns are 'n', 'body'"),
        ([source, tmp_path / "o.parquet", "--text-column", "n"], "column 'n' holds int64"),
        ([source, tmp_path / "o.parquet", "--id-column", "key"], "no column 'key'"),
        (
            [tmp_path / "verdicts.parquet", tmp_path / "o.parquet"],
            "columns 'verdict' already, which would be added: give a prefix",
        ),
        ([tmp_path / "twice.parquet", tmp_path / "o.parquet"], "2 columns of the name 'body'"),
        (["gopher://a/in.parquet", tmp_path / "o.parquet"], "gopher"),
    ):
        result = detect(key_file, *arguments)
        assert result.exit_code in (2, 4, 6), result.stderr
        assert message in result.stderr
        assert "bug" not in result.stderr
    assert not (tmp_path / "o.parquet").exists()


def test_a_damaged_source_is_named_and_not_the_target(source: Path, tmp_path: Path) -> None:
    content = bytearray(source.read_bytes())
    content[1000:6000] = bytes(5000)  # the footer is whole
    source.write_bytes(content)
    with pytest.raises(NoTexts, match=r"in\.parquet cannot be read any further"):
        scored(source, tmp_path / "out.parquet")
    tally = scored(source, tmp_path / "out.jsonl")  # where it is one of several inputs
    assert tally.first_unusable is not None
    assert "cannot be read any further" in str(tally.first_unusable.error)


def test_memory_does_not_grow_with_the_rows(key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_sink, "_GROUP_BYTES", 2**20)
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

    few, many = peak(2_000), peak(6_000)
    assert many < 1.25 * few, (few, many)


@pytest.mark.parametrize("where", ["rows", "target"])
def test_a_full_disk_leaves_the_finished_rows(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    out, left = tmp_path / "out.parquet", [3]

    def full(*_: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        return real(*_)

    place, name = (os, "fsync") if where == "rows" else (pq.ParquetWriter, "write_table")
    if where == "target":
        left = [0]
    real = getattr(place, name)
    with monkeypatch.context() as patch:
        patch.setattr(place, name, full)
        with pytest.raises(InputError, match=r"No space left on device; the (rows before|results) are kept"):
            scored(source, out)
    assert not out.exists()
    tally = scored(source, out)
    assert tally.resumed == (192 if where == "rows" else 500)
    assert pq.read_table(out).equals(without_subkey(source))


@pytest.mark.slow
def test_prompts_of_parquet_become_the_texts_of_their_ids(storyteller: NetworkDenoiser, tmp_path: Path) -> None:
    key = known_key("written", subkeys=4)
    key.save(tmp_path / "key.json")
    prompts = pa.table({"id": ["a", "b", "c"], "prompt": ["The sea was", None, "A king"]})
    pq.write_table(prompts, tmp_path / "in.parquet")
    short = ("--length", 8, "--block-length", 8, "--dtype", "fp32")
    options = ("--key", tmp_path / "key.json", "--seed", 3, "--id-column", "id", *short)
    files = ("--prompts", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet")
    assert "2 written, 1 with errors" in run("generate", *options, *files, code=0).stderr
    write = GenerateColumns(storyteller, key, id_column="id", seed=3, length=8, block_length=8)
    assert pq.read_table(tmp_path / "out.parquet").equals(write(prompts))
    run("generate", *options, "--check", *files, code=4)  # these texts were not checked
    pq.write_table(pa.concat_tables([prompts, prompts]), tmp_path / "twice.parquet")
    twice = run("generate", *options, "--prompts", tmp_path / "twice.parquet", "--out", tmp_path / "o.parquet", code=4)
    assert "two rows have the id 'a'" in twice.stderr


@pytest.mark.slow
def test_each_prompt_is_marked_with_the_key_that_it_names(storyteller: NetworkDenoiser, tmp_path: Path) -> None:
    keys = {name: known_key(name, subkeys=4) for name in ("acme", "beta")}
    (folder := tmp_path / "keys").mkdir()
    for name, key in keys.items():
        key.save(folder / f"{name}.json")
    prompts = pa.table({"id": ["a", "b", "c"], "prompt": ["The sea"] * 3, "tenant": ["acme", "beta", "nobody"]})
    pq.write_table(prompts, tmp_path / "in.parquet")
    asked: tuple[Any, ...] = ("generate", "--keys", folder, "--length", 8, "--block-length", 8, "--id-column", "id")
    asked += ("--prompts", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet", "--dtype", "fp32")
    run(*asked, "--key-column", "tenant", code=0)
    options: dict[str, Any] = {"id_column": "id", "length": 8, "block_length": 8}
    wanted = GenerateColumns(storyteller, str(folder), key_column="tenant", **options)(prompts)
    assert pq.read_table(tmp_path / "out.parquet").equals(wanted)
    assert "--keys FOLDER and --key-column NAME belong together" in run(*asked).stderr


@pytest.mark.slow
def test_holes_of_parquet_are_filled_by_the_ids_and_keys_of_their_rows(tmp_path: Path) -> None:
    keys = {name: known_key(name, subkeys=4) for name in ("acme", "beta")}
    (folder := tmp_path / "keys").mkdir()
    for name, key in keys.items():
        key.save(folder / f"{name}.json")
    texts = ["The sea [mask:4] a king.", None, "No hole.", "The king [mask:4] home."]
    table = pa.table({"name": ["a", "b", "c", "d"], "text": texts, "tenant": ["acme", "acme", "beta", "beta"]})
    pq.write_table(table, source := tmp_path / "in.parquet")
    asked = (
        "infill",
        "--keys",
        folder,
        "--key-column",
        "tenant",
        "--id-column",
        "name",
        "--block-length",
        4,
        "--check",
    )
    made = run(*asked, "--texts", source, "--out", tmp_path / "out.parquet", code=0)
    assert "2 written, 2 with errors" in made.stderr
    found = pq.read_table(tmp_path / "out.parquet")
    assert found.select(table.column_names).equals(table)
    first, missing, whole, last = found.to_pylist()
    assert [(row["error"] or "")[:16] for row in (missing, whole)] == ["there is no text", "there is no hole"]
    assert (first["filled_text"][:8], last["filled_text"][-6:]) == ("The sea ", " home.")
    assert [row["key_fingerprint"] for row in (first, last)] == [key.fingerprint for key in keys.values()]
    assert {first["verdict"], last["verdict"]} == {"uncertain"}
    # one row alone, in another format, gets the same text; so does a run that goes on
    alone = {"name": "d", "text": texts[3], "tenant": "beta"}
    (tmp_path / "one.jsonl").write_text(json.dumps(alone))
    row = json.loads(run(*asked, "--json", "--texts", tmp_path / "one.jsonl", code=0).stdout)
    assert (row["id"], row["text"], row["seed"], row["subkey"]) == (
        "d",
        last["filled_text"],
        last["seed"],
        last["subkey"],
    )
    again = run(*asked, "--texts", source, "--out", tmp_path / "out.parquet", code=0)
    assert "2 written, 2 with errors; of these, 4 there already" in again.stderr


@pytest.mark.slow
def test_texts_of_parquet_are_checked_and_one_warning_says_which_are_missed(tmp_path: Path) -> None:
    known_key("written", subkeys=4).save(tmp_path / "key.json")
    prompts = pa.table({"id": [str(place) for place in range(6)], "prompt": ["The sea was"] * 5 + [None]})
    pq.write_table(prompts, tmp_path / "in.parquet")
    # in bf16 the highest logits may be tied, and then there is a choice
    short = ("--length", 8, "--block-length", 8, "--batch-size", 1, "--dtype", "fp32")
    options = ("--key", tmp_path / "key.json", "--id-column", "id", *short)
    asked = ("generate", *options, "--prompts", tmp_path / "in.parquet", "--out", tmp_path / "out.parquet")
    for more, said in (
        (["--check"], "warning: 5 of 5 texts will not be found with this key"),
        (["--top-k", 1], "warning: no token had a choice, so what was written names a key and bears no mark"),
    ):
        (tmp_path / "out.parquet").unlink(missing_ok=True)
        made = run(*asked, *more, code=0)
        assert made.stderr.count("warning:") == made.stderr.count(said) == 1
        assert "MarkWarning" not in made.stderr
        table = pq.read_table(tmp_path / "out.parquet")
        assert ("verdict" in table.column_names) == ("--check" in more)
    done = run(*asked, "--top-k", 1)  # which a run that has nothing left to do says as well
    assert done.stderr.count("warning: no token had a choice") == 1
