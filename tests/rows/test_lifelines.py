"""Worker processes end with the process that started them, and an interrupted file keeps whole rows."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from dgmark.errors import InputError, SettingsError
from dgmark.rows.scoring import detect_file
from dgmark.rows.workers import map_in_order
from support.child_processes import alive, children, workers
from support.known_keys import known_key
from support.unchecked import unchecked

PATIENCE = 60.0


def started(tmp_path: Path, workers: int) -> tuple["subprocess.Popen[str]", Path]:
    """A run of detect with many rows to go, and the file it writes."""
    known_key("lifeline").save(tmp_path / "key.json")
    (tmp_path / "in.jsonl").write_text(
        "".join(json.dumps({"id": str(n), "text": f"{n} grey cats sat by the sea. " * 40}) + "\n" for n in range(20000))
    )
    command = [sys.executable, "-m", "dgmark", "detect", "--key", "key.json", "--workers", str(workers)]
    # a shell's background job ignores SIGINT, and so would the run
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run = subprocess.Popen(
        [*command, "--out", "out.jsonl", "in.jsonl"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    return run, tmp_path / "out.jsonl"


def wait_until(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not reached() and time.monotonic() < end:
        time.sleep(0.005)


def ended(run: "subprocess.Popen[str]", sent: signal.Signals, below: set[psutil.Process]) -> str:
    """Send a signal, wait until nothing is left of the run, and return what it said."""
    run.send_signal(sent)
    _, said = run.communicate(timeout=PATIENCE)
    wait_until(lambda: not any(map(alive, below)))
    assert not any(map(alive, below))
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize(
    ("sent", "workers", "code"),
    [
        (signal.SIGKILL, 2, -9),
        (signal.SIGTERM, 2, 143),
        pytest.param(signal.SIGINT, 2, 130, marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, 1, 143, marks=pytest.mark.soak),
    ],
)
def test_no_worker_outlives_the_process_that_started_it(
    tmp_path: Path, sent: signal.Signals, workers: int, code: int
) -> None:
    run, out = started(tmp_path, workers)
    wait_until(lambda: run.poll() is not None or (out.exists() and out.stat().st_size > 0))
    below = children(run.pid)
    assert len(below) >= workers - (workers == 1)
    said = ended(run, sent, below)
    assert run.returncode == code
    assert code != 143 or "what was finished is kept" in said
    # the next run cuts off a torn last line
    ids = [json.loads(line)["id"] for line in out.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    assert 0 < len(ids) < 20000
    assert ids == [str(n) for n in range(len(ids))]


def test_ctrl_c_leaves_no_worker_half_started(tmp_path: Path) -> None:
    run, _ = started(tmp_path, workers=2)
    wait_until(lambda: bool(children(run.pid)))
    below = children(run.pid)
    ended(run, signal.SIGINT, below)
    assert run.returncode == 130


def test_a_worker_that_is_killed_while_it_starts_ends_the_run_with_a_message(tmp_path: Path) -> None:
    run, _ = started(tmp_path, workers=2)
    wait_until(lambda: run.poll() is not None or bool(workers(run.pid)))
    for child in workers(run.pid):
        child.kill()
    _, said = run.communicate(timeout=PATIENCE)
    assert run.returncode == InputError.exit_code
    assert "go on with fewer workers" in said


def test_a_script_without_a_main_guard_ends_with_an_error_that_names_it(tmp_path: Path) -> None:
    known_key("lifeline").save(tmp_path / "key.json")
    rows = "".join(json.dumps({"id": str(n), "text": "Grey cats sat by the sea."}) + "\n" for n in range(200))
    (tmp_path / "in.jsonl").write_text(rows)
    (tmp_path / "script.py").write_text(
        'import dgmark\ndetector = dgmark.Detector(dgmark.WatermarkKey.load("key.json"))\n'
        'dgmark.detect_file(detector, ["in.jsonl"], "out.jsonl", workers=2)\n'
    )
    run = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert run.returncode == 1
    assert '`if __name__ == "__main__":`' in run.stderr.splitlines()[-1]


def killed(chunk: list[int]) -> list[int]:
    os.kill(os.getpid(), signal.SIGKILL)
    return chunk


def test_a_killed_worker_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(InputError, match="fewer workers"):
        list(map_in_order(killed, range(10), workers=2))


@pytest.mark.parametrize("workers", [0, 10**6, True, 1.5])
def test_absurd_numbers_of_workers_are_refused(tmp_path: Path, workers: int) -> None:
    with unchecked(), pytest.raises(SettingsError, match="not a whole number from 1 to 256"):
        detect_file(known_key("w"), "x", tmp_path / "out.jsonl", workers=workers)
