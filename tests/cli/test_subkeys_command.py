"""Sub-keys as a user of the commands meets them: keygen, key show, generate, infill, resuming."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from dgmark import WatermarkKey
from support.command_line import rows, run
from support.known_keys import key_file_of, known_key

SHORT = ["--length", "16", "--block-length", "16"]
key_file = key_file_of(known_key("command line", subkeys=65_536))


@pytest.fixture(scope="module")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prompts") / "in.jsonl"
    path.write_text("".join(json.dumps({"id": f"p{i}", "prompt": "The sea was"}) + "\n" for i in range(4)))
    return path


def test_keygen_makes_sub_keys_and_key_show_names_them(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    made = run("keygen", path, "--subkeys", 1024)
    assert (made.exit_code, "--temperature 0.5" in made.stderr, "--payload text.txt" in made.stderr) == (0, True, True)
    assert (WatermarkKey.load(path).spec.subkeys, WatermarkKey.load(path).spec.rule) == (1024, "bigram")
    shown = json.loads(run("key", "show", path, "--json").stdout)
    assert (shown["subkeys"], shown["prf"]) == (1024, "siphash24-pairs-v1")
    assert "1024" in run("key", "show", path).stdout
    assert str(bytes(WatermarkKey.load(path).secret or b"")) not in json.dumps(shown)


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
    other = run(*command, "--subkey", 7)
    assert other.exit_code == 4
    assert "different prompt, seed or sub-key" in " ".join(other.stderr.split())
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


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--no-watermark", "--subkey", 1], "a text without a mark has no sub-key"),
        (["--key", "KEY", "--subkey", 65_536], "sub-key 65536 is not in 0..65535"),
        (["--key", "KEY", "--subkey", -1], "sub-key -1 is not in 0..65535"),
        (["--key", "PLAIN", "--subkey", 0], "this key has no sub-keys"),
        (["--key", "KEY", "--baseline", "kgw"], "baseline kgw marks all texts of a key alike"),
    ],
)
def test_generate_says_what_is_wrong(key_file: Path, tmp_path: Path, options: list[object], message: str) -> None:
    known_key("plain").save(tmp_path / "plain.json")
    files = {"KEY": key_file, "PLAIN": tmp_path / "plain.json"}
    for start in (["generate", "--prompt", "The sea was"], ["infill", "The sea was [mask:8] and"]):
        if start[0] == "infill" and "--baseline" in options:
            continue
        refused = run(*start, *[files.get(str(option), option) for option in options])
        assert refused.exit_code == 2
        assert message in " ".join(refused.stderr.split())


def test_infill_prints_the_sub_key(key_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    command = ["infill", "The sea was [mask:16] and the sky.", "--key", key_file, "--block-length", 16]
    drawn = run(*command, "--json")
    assert drawn.exit_code == 0
    (row,) = rows(drawn.stdout)
    assert 0 <= row["subkey"] < 65_536
    assert run(*command, "--subkey", row["subkey"], "--out", out).exit_code == 0
    assert rows(out.read_text())[0]["token_ids"] == row["token_ids"]
    other = run(*command, "--subkey", row["subkey"] ^ 1, "--out", out)
    assert other.exit_code == 4
    assert "different text, seed or sub-key" in " ".join(other.stderr.split())


def test_a_text_that_takes_long_is_announced(key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The sea was calm. " * 8)
    assert "sub-keys takes" not in run("detect", "--key", key_file, text).stderr
    monkeypatch.setattr(import_module("dgmark.cli.detect"), "_LONG_SECONDS", 0.01)
    assert "trying 65,536 sub-keys takes about 0 seconds" in " ".join(
        run("detect", "--key", key_file, text).stderr.split()
    )
