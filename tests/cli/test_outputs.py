"""`--out` of every command: one writer at a time, other files left alone, full disks, inputs that changed."""

import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.command_line import rows, run
from support.known_keys import known_key

TEXT = "The old house stood at the end of the lane, and nobody had lived there for a long time."
COMMANDS = ["generate", "infill", "detect"]


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key.json"
    known_key("outputs").save(path)
    return path


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


def process(arguments: list[object], **options: Any) -> "subprocess.Popen[str]":
    """The command in a process of its own."""
    line = [sys.executable, "-m", "dgmark", *map(str, arguments)]
    return subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **options)


def finished(started: "subprocess.Popen[str]") -> tuple[int, str]:
    """Exit code and stderr."""
    _, said = started.communicate()
    assert "Traceback" not in said
    return started.returncode, said


# --- two writers ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), [("generate", 12), ("detect", 2_000)])
def test_of_two_runs_on_one_file_one_is_refused_and_the_file_is_whole(
    name: str, number: int, key_file: Path, tmp_path: Path
) -> None:
    """The first is stopped while it writes, so that the second surely meets it."""
    source, out = inputs(tmp_path / "in.jsonl", number), tmp_path / "out.jsonl"
    first = process(command(name, source, out, key_file))
    try:
        while not (out.exists() and out.stat().st_size) and first.poll() is None:
            time.sleep(0.002)
        first.send_signal(signal.SIGSTOP)
        written = out.read_bytes()
        assert written.count(b"\n") < number, "the first run was already done: this run shows nothing"
        code, said = finished(process(command(name, source, out, key_file)))
        assert (code, out.read_bytes()) == (4, written)
        assert f"{out} is being written by another process" in " ".join(said.split())
    finally:
        first.send_signal(signal.SIGCONT)
    assert finished(first)[0] == 0
    assert [row["id"] for row in rows(out.read_text())] == [f"row {n}" for n in range(number)]


@pytest.mark.slow
def test_runs_that_start_together_leave_a_whole_file(key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 600), tmp_path / "out.jsonl"
    started = [process(command("detect", source, out, key_file)) for _ in range(3)]
    codes = sorted(finished(one)[0] for one in started)
    assert codes[0] == 0
    assert set(codes) <= {0, 4}  # one that starts when another has ended finds a finished file
    assert [row["id"] for row in rows(out.read_text())] == [f"row {n}" for n in range(600)]


# --- files that are not ours ---------------------------------------------------------------------

FOREIGN = [
    '{"id": "7", "note": "the only copy of this"}',
    '{"id": "7", "note": "the only copy of th',
    '{"id": "7", "error": "disk full", "schema": 1}\n',
    "Dear diary,\nit rained.\n",
]


@pytest.mark.parametrize("content", FOREIGN)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_is_not_ours_stays_as_it_is(name: str, content: str, key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"
    out.write_text(content)
    refused = run(*command(name, source, out, key_file))
    assert (refused.exit_code, out.read_text()) == (4, content), refused.output
    assert "choose another --out" in refused.stderr


def symbolic(source: Path, link: Path) -> None:
    link.symlink_to(source)


def hard(source: Path, link: Path) -> None:
    link.hardlink_to(source)


@pytest.mark.parametrize("link", [symbolic, hard, None])
@pytest.mark.parametrize("name", COMMANDS)
def test_an_input_is_no_output(
    name: str, link: Callable[[Path, Path], None] | None, key_file: Path, tmp_path: Path
) -> None:
    source = out = inputs(tmp_path / "in.jsonl", 2)
    before = source.read_bytes()
    if link:
        out = tmp_path / "link.jsonl"
        link(source, out)
    refused = run(*command(name, source, out, key_file))
    assert (refused.exit_code, source.read_bytes()) == (2, before), refused.output
    assert "which is read" in refused.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_standard_input_is_no_output(name: str, key_file: Path, tmp_path: Path) -> None:
    source = inputs(tmp_path / "in.jsonl", 2)
    before = source.read_bytes()
    with open(source) as given:
        code, said = finished(process(command(name, "-", source, key_file), stdin=given))
    assert (code, source.read_bytes()) == (2, before), said
    assert "the same file as standard input" in " ".join(said.split())


def test_a_hard_link_of_a_file_in_a_folder_that_is_read_is_no_output(key_file: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "texts" / "deep", tmp_path / "out.jsonl"
    folder.mkdir(parents=True)
    source = inputs(folder / "in.jsonl", 2)
    out.hardlink_to(source)
    before = source.read_bytes()
    assert run(*command("detect", tmp_path / "texts", out, key_file)).exit_code == 2
    assert source.read_bytes() == before


def test_a_link_stays_a_link(key_file: Path, tmp_path: Path) -> None:
    source, out, link = inputs(tmp_path / "in.jsonl", 2), tmp_path / "real" / "out.jsonl", tmp_path / "link"
    out.parent.mkdir()
    link.symlink_to(out)
    for _ in range(2):
        assert run(*command("detect", source, link, key_file)).exit_code == 0
    assert link.is_symlink()
    assert len(rows(out.read_text())) == 2


@pytest.mark.parametrize("device", ["/dev/full", "/dev/null"])
def test_a_device_is_no_output(device: str, key_file: Path, tmp_path: Path) -> None:
    refused = run(*command("detect", inputs(tmp_path / "in.jsonl", 2), device, key_file))
    assert refused.exit_code == 4
    assert f"{device} is not a file that can hold rows" in refused.stderr


# --- no room -------------------------------------------------------------------------------------


def limited(size: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@pytest.mark.parametrize(
    ("name", "number", "size"),
    [
        ("detect", 50, 15_000),
        pytest.param("generate", 4, 2_000, marks=pytest.mark.slow),
    ],
)
def test_a_limit_on_the_size_of_files_leaves_whole_rows_and_a_file_that_resumes(
    name: str, number: int, size: int, key_file: Path, tmp_path: Path
) -> None:
    source, out, whole = inputs(tmp_path / "in.jsonl", number), tmp_path / "out.jsonl", tmp_path / "whole.jsonl"
    code, said = finished(process(command(name, source, out, key_file), preexec_fn=limited(size)))
    assert code == 4
    assert f"{out} cannot be written any further: File too large" in " ".join(said.split())
    kept = out.read_bytes()
    assert 0 < len(kept) <= size
    assert kept.endswith(b"\n")
    for path in (out, whole):
        assert run(*command(name, source, path, key_file)).exit_code == 0
    assert out.read_bytes() == whole.read_bytes()
    assert whole.read_bytes().startswith(kept)


def test_a_key_that_does_not_fit_on_the_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    code, said = finished(process(["keygen", path], preexec_fn=limited(100)))
    assert code == 5
    assert "could not be written (File too large); nothing was left behind" in " ".join(said.split())
    assert not path.exists()


# --- inputs that changed -------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMMANDS)
def test_an_input_that_changed_under_its_id_is_refused(name: str, key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"
    assert run(*command(name, source, out, key_file)).exit_code == 0
    before = out.read_bytes()
    source.write_text(source.read_text().replace("old house", "new house").replace("Once", "Twice"))
    refused = run(*command(name, source, out, key_file))
    assert (refused.exit_code, out.read_bytes()) == (4, before)
    assert "holds a row 'row 0' made from a different" in refused.stderr


def test_check_fails_where_the_text_changed(key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 1), tmp_path / "out.jsonl"
    checked = [*command("detect", source, out, key_file), "--check", "--fpr", 0.5]
    codes = [run(*checked).exit_code for _ in range(2)]
    assert codes[0] == codes[1] in (0, 1)
    source.write_text(source.read_text().replace("old", "new"))
    assert run(*checked).exit_code == 4


def test_infilled_rows_resume(key_file: Path, tmp_path: Path) -> None:
    source, out = inputs(tmp_path / "in.jsonl", 2), tmp_path / "out.jsonl"
    arguments = command("infill", source, out, key_file)
    assert run(*arguments).exit_code == 0
    whole = out.read_bytes()
    out.write_bytes(whole[: whole.index(b"\n") + 30])
    again = run(*arguments)
    assert "1 of 2 rows are already in" in again.stderr
    assert out.read_bytes() == whole
    refused = run(*arguments, "--count-from", "hole")
    assert (refused.exit_code, out.read_bytes()) == (4, whole)
    assert "differs in count_from" in refused.stderr
