"""`dgmark detect` on many texts: resumed files, exit codes, options that cannot be combined."""

import json
from pathlib import Path

import pytest

from support.command_line import rows, run
from support.known_keys import known_key
from support.parquet_tables import TEXTS, write_table


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key.json"
    known_key("batch").save(path)
    return path


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("tables") / "texts.parquet")


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


def test_a_file_of_another_ring_of_keys_is_not_resumed(table: Path, tmp_path: Path) -> None:
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
    assert "differs in keys_tested" in again.stderr


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
    assert "differs in settings" in mixed.stderr


def test_a_file_of_another_ring_of_as_many_keys_is_not_resumed(tmp_path: Path) -> None:
    source, out = failing_then_good(tmp_path)
    keys = tmp_path / "keys"
    keys.mkdir()
    known_key("batch").save(keys / "0.json")
    assert run("detect", "--keys", keys, "--out", out, source).exit_code == 0
    (keys / "0.json").unlink()
    known_key("more").save(keys / "0.json")
    assert "differs in settings" in run("detect", "--keys", keys, "--out", out, source).stderr


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
def test_options_that_cannot_be_combined_are_refused(key_file: Path, options: list[str]) -> None:
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
