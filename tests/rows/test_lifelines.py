"""Worker processes end with the process that started them, and an interrupted file keeps whole rows."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dgmark.detection.detect_files import detect_file
from dgmark.errors import InputError, SettingsError
from dgmark.rows.workers import map_in_order
from support.known_keys import known_key
from support.unchecked import unchecked

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the processes are found in /proc")
PATIENCE = 60.0


def children(pid: int) -> set[int]:
    """All processes below a process."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                stat = (folder / "stat").read_text()
            except OSError:
                continue
            parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    below: set[int] = set()
    fresh = {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - below
        below |= fresh
    return below


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def wait_for_end(pids: set[int]) -> set[int]:
    """The processes that are still alive after a while."""
    end = time.monotonic() + PATIENCE
    while (left := {pid for pid in pids if alive(pid)}) and time.monotonic() < end:
        time.sleep(0.05)
    return left


def started(tmp_path: Path, workers: int) -> tuple["subprocess.Popen[str]", Path]:
    """A run of detect with many rows to go, and the file it writes."""
    known_key("lifeline").save(tmp_path / "key.json")
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"id": str(n), "text": f"{n} grey cats sat by the sea. " * 40}) + "\n" for n in range(20000))
    )
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-m", "dgmark", "detect", "--key", "key.json", "--workers", str(workers)]
    # a shell's background job ignores SIGINT, and so would the run
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = subprocess.Popen(
        [*command, "--out", str(out), "in.jsonl"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    return run, out


def detecting(tmp_path: Path, workers: int) -> tuple["subprocess.Popen[str]", Path, set[int]]:
    """A run of detect with some rows written, its file, and its child processes."""
    run, out = started(tmp_path, workers)
    end = time.monotonic() + PATIENCE
    while not (out.exists() and out.stat().st_size) and time.monotonic() < end and run.poll() is None:
        time.sleep(0.05)
    assert run.poll() is None, run.communicate()[1]
    below = children(run.pid)
    assert len(below) >= workers - (workers == 1)
    return run, out, below


def whole_rows(out: Path) -> list[str]:
    """The ids of a file's rows; a torn last line, which the next run cuts off, has none."""
    lines = out.read_bytes().splitlines(keepends=True)
    return [json.loads(line)["id"] for line in lines if line.endswith(b"\n")]


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_worker_outlives_the_process_that_started_it(tmp_path: Path, sent: signal.Signals) -> None:
    run, out, below = detecting(tmp_path, workers=2)
    run.send_signal(sent)
    _, said = run.communicate(timeout=PATIENCE)
    assert wait_for_end(below) == set()
    assert run.returncode == {signal.SIGKILL: -9, signal.SIGTERM: 143, signal.SIGINT: 130}[sent]
    assert "Traceback" not in said
    ids = whole_rows(out)
    assert 0 < len(ids) < 20000
    assert ids == [str(n) for n in range(len(ids))]


def starting(pid: int) -> bool:
    """Whether a process is a worker, perhaps one that has not read its work yet."""
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_ctrl_c_leaves_no_worker_half_started(tmp_path: Path) -> None:
    run, _ = started(tmp_path, workers=2)
    end = time.monotonic() + PATIENCE
    while not any(map(starting, below := children(run.pid))) and time.monotonic() < end:
        time.sleep(0.002)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 130
    assert "Traceback" not in said
    assert wait_for_end(below) == set()


def test_a_run_of_one_process_ends_by_sigterm_as_by_ctrl_c(tmp_path: Path) -> None:
    run, out, _ = detecting(tmp_path, workers=1)
    run.send_signal(signal.SIGTERM)
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == 143
    assert "what was finished is kept" in said
    assert out.read_bytes().endswith(b"\n")


def killed(chunk: list[int]) -> list[int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return chunk


def test_a_killed_worker_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(InputError, match="fewer workers"):
        list(map_in_order(killed, range(10), workers=2))


@pytest.mark.parametrize("workers", [0, -1, 10**6, True, 1.5, "2"])
def test_absurd_numbers_of_workers_are_refused(tmp_path: Path, workers: int) -> None:
    with unchecked(), pytest.raises(SettingsError, match="not a whole number from 1 to 256"):
        list(map_in_order(killed, [], workers=workers))
    with unchecked(), pytest.raises(SettingsError, match="not a whole number from 1 to 256"):
        detect_file(known_key("w"), "x", tmp_path / "out.jsonl", workers=workers)
