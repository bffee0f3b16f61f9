"""Sub-keys as a user of the commands meets them: keygen, key show, generate, infill, resuming."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from support.command_line import complaint, rows, run
from support.known_keys import key_file_of, known_key

SHORT = ["--length", "16", "--block-length", "16"]
key_file = key_file_of(known_key("command line", subkeys=65_536))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "in.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{i}", "prompt": "The sea was"}) + "\n" for i in range(4)))
    return path


def test_a_payload_is_the_sub_key_of_every_row_and_no_row_has_another(
    key_file: Path, prompts: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out.jsonl"
    command = ["generate", "--key", key_file, "--prompts", prompts, *SHORT, "--out", out]
    assert run(*command).exit_code == 0
    assert len({row["subkey"] for row in rows(out.read_text())}) > 1  # four draws of one number: 4e-15
    assert "4 of 4 rows are already in" in run(*command).stderr
    out.unlink()
    assert run(*command, "--subkey", 40_000).exit_code == 0
    made = out.read_bytes()
    assert {row["subkey"] for row in rows(out.read_text())} == {40_000}
    assert "different prompt, seed or sub-key" in complaint(*command, "--subkey", 7, code=4)
    assert out.read_bytes() == made
    out.unlink()
    assert run(*command, "--subkey", 40_000).exit_code == 0
    assert out.read_bytes() == made  # reproducible


def test_a_live_stream_is_marked_with_the_sub_key(key_file: Path) -> None:
    command = ["generate", "--key", key_file, "--prompt", "The sea was", *SHORT, "--json", "--subkey", 9]
    live, plain = run(*command, "--stream"), run(*command)
    assert (live.exit_code, plain.exit_code) == (0, 0)
    assert rows(live.stdout) == rows(plain.stdout)
    assert rows(live.stdout)[0]["subkey"] == 9


def test_infill_prints_the_sub_key(key_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    command = ["infill", "The sea was [mask:16] and the sky.", "--key", key_file, "--block-length", 16]
    drawn = run(*command, "--json", code=0)
    (row,) = rows(drawn.stdout)
    assert 0 <= row["subkey"] < 65_536
    assert run(*command, "--subkey", row["subkey"], "--out", out).exit_code == 0
    assert rows(out.read_text())[0]["token_ids"] == row["token_ids"]
    assert "different text, seed or sub-key" in complaint(*command, "--subkey", row["subkey"] ^ 1, "--out", out, code=4)


def test_a_text_that_takes_long_is_announced(key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The sea was calm. " * 8)
    assert "sub-keys takes" not in run("detect", "--key", key_file, text).stderr
    monkeypatch.setattr(import_module("dgmark.cli.detect"), "_LONG_SECONDS", 0.01)
    assert "trying 65,536 sub-keys takes about 0 seconds" in " ".join(
        run("detect", "--key", key_file, text).stderr.split()
    )
