"""`--out` of every command: other files left alone, full disks, inputs that changed."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dgmark.report.signing import SigningKey
from support.command_line import run
from support.known_keys import key_file_of, known_key

TEXT = "The old house stood at the end of the lane, and nobody had lived there for a long time."
COMMANDS = ["generate", "infill", "detect"]
key_file = key_file_of(known_key("outputs"))


def inputs(path: Path, number: int) -> Path:
    """Rows that every command can read."""
    made = ({"id": f"row {n}", "prompt": "Once upon a time", "text": f"{TEXT} [mask:4] {n}"} for n in range(number))
    path.write_text("".join(json.dumps(row) + "\n" for row in made))
    return path


def command(name: str, source: object, out: object, key_file: Path) -> list[object]:
    """A command that makes rows of a file."""
    small = ["--length", 8, "--block-length", 8]
    return {
        "generate": ["generate", "--key", key_file, "--batch-size", 1, *small, "--prompts", source, "--out", out],
        "infill": ["infill", "--key", key_file, "--block-length", 4, "--texts", source, "--out", out],
        "detect": ["detect", "--key", key_file, source, "--out", out],
    }[name]


def finished(arguments: list[object], **options: Any) -> tuple[int, str]:
    """Exit code and stderr of the command in a process of its own."""
    # -B: a limit on the size of files would cut the bytecode of modules, too
    line = [sys.executable, "-B", "-m", "dgmark", *map(str, arguments)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, **options)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


# --- files that are not ours


@pytest.mark.parametrize("content", ['{"id": "7", "note": "the only copy of this"}', "Dear diary,\nit rained.\n"])
@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_not_ours_stays_as_it_is(name: str, content: str, key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"
    out.write_text(content)
    refused = run(*command(name, source, out, key_file))
    assert (refused.exit_code, out.read_text()) == (4, content), refused.output
    assert "choose another --out" in refused.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_an_input_is_no_output(name: str, key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 2), tmp_path / "link.jsonl"
    out.symlink_to(source)
    before = source.read_bytes()
    refused = run(*command(name, source, out, key_file))
    assert (refused.exit_code, source.read_bytes()) == (2, before), refused.output
    assert "which is read" in refused.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_standard_input_is_no_output(name: str, key_file: Path, tmp_path: Path) -> None:
    source = inputs(tmp_path / "in.jsonl", 2)
    before = source.read_bytes()
    with open(source) as given:
        code, said = finished(command(name, "-", source, key_file), stdin=given)
    assert (code, source.read_bytes()) == (2, before), said
    assert "the same file as standard input" in " ".join(said.split())


# --- no room


def limited(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize(
    ("name", "number", "size"),
    [
        ("detect", 150, 80_000),
        pytest.param("generate", 4, 2_000, marks=pytest.mark.slow),
    ],
)
def test_a_limit_on_file_size_leaves_whole_rows_and_a_resumable_file(
    name: str, number: int, size: int, key_file: Path, tmp_path: Path
) -> None:
    source, out, whole = inputs(tmp_path / "in.jsonl", number), tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    code, said = finished(command(name, source, out, key_file), preexec_fn=limited(size))
    assert code == 4
    assert f"{out} cannot be written any further: File too large" in " ".join(said.split())
    kept = out.read_bytes()
    assert 0 < len(kept) <= size
    assert kept.endswith(b"\n")
    for path in (out, whole):
        assert run(*command(name, source, path, key_file)).exit_code == 0
    assert out.read_bytes() == whole.read_bytes()
    assert whole.read_bytes().startswith(kept)


# --- inputs that changed


@pytest.mark.parametrize("name", COMMANDS)
def test_an_input_that_changed_under_its_id_is_refused(name: str, key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"
    assert run(*command(name, source, out, key_file)).exit_code == 0
    before = out.read_bytes()
    source.write_text(source.read_text().replace("old house", "new house").replace("Once", "Twice"))
    refused = run(*command(name, source, out, key_file))
    assert (refused.exit_code, out.read_bytes()) == (4, before)
    assert "holds a row 'row 0' made from a different" in refused.stderr


def test_infilled_rows_resume(key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"
    arguments = command("infill", source, out, key_file)
    assert run(*arguments).exit_code == 0
    whole = out.read_bytes()
    out.write_bytes(whole[: whole.index(b"\n") + 30])
    again = run(*arguments)
    assert "1 of 2 rows are already in" in again.stderr
    assert out.read_bytes() == whole


@pytest.mark.parametrize("option", ["--report", "--extract", "--out"])
@pytest.mark.parametrize("kind", ["mark", "sign"])
def test_a_key_is_never_overwritten(option: str, kind: str, key_file: Path, tmp_path: Path) -> None:
    """Whether the key is the one in use, or lies there under the name of an output."""
    out = tmp_path / "key.json"
    SigningKey.generate().save(out) if kind == "sign" else out.write_bytes(key_file.read_bytes())
    before = out.read_bytes()
    (tmp_path / "text.txt").write_text("A text of some words, and not of many.")
    refused = run("detect", "--key", key_file, option, out, tmp_path / "text.txt")
    assert refused.exit_code in (2, 4), refused.stderr
    assert out.read_bytes() == before
    used = run("detect", "--key", out, option, out, tmp_path / "text.txt")
    assert used.exit_code in (2, 4, 5)
    assert out.read_bytes() == before
