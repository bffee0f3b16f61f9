"""Processes that work for this one: what they answer, their limits, and their ends."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dgmark.errors import SettingsError
from dgmark.rows import processes
from dgmark.rows.processes import Worker, WorkerLost
from support.child_processes import workers

pytestmark = pytest.mark.skipif(
    sys.version_info[:3] == (3, 12, 1), reason="Python 3.12.1 crashes when it collects garbage in some of these tests"
)

GB = 2**30


def answer(shared: str, number: int) -> tuple[str, int]:
    return shared, number


def refuse(shared: str) -> None:
    raise SettingsError(f"{shared} is wrong")


def fail(shared: str) -> None:
    raise LookupError(shared)


def hog(shared: str) -> int:
    return len(bytearray(64 * GB))


def sleep(shared: str) -> None:
    time.sleep(600)


def end(shared: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def function(shared: str) -> Callable[[], None]:
    return lambda: None


def ask_another() -> object:
    worker = Worker("shared")
    try:
        return worker.call(answer, 5)
    finally:
        worker.kill()


class Unreadable:
    """Something that can be sent and not be read."""

    def __reduce__(self) -> tuple[object, ...]:
        return int, ("no number",)


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker("shared", memory=16 * GB)
    yield made
    made.kill()


def test_calls_answer_or_raise_and_cost_the_process_nothing(worker: Worker) -> None:
    assert worker.call(answer, 5) == ("shared", 5)
    with pytest.raises(SettingsError, match="shared is wrong"):
        worker.call(refuse)
    with pytest.raises(LookupError) as raised:
        worker.call(fail)
    assert "in fail" in raised.value.__notes__[0]  # the traceback of the process
    if sys.platform == "linux":
        with pytest.raises(MemoryError):
            worker.call(hog)
    with pytest.raises(RuntimeError, match="cannot be sent"):
        worker.call(function)
    with pytest.raises(ValueError, match="no number"):
        worker.call(answer, Unreadable())
    assert worker.call(answer, 6) == ("shared", 6)


def test_a_call_has_a_time_limit(worker: Worker) -> None:
    with pytest.raises(TimeoutError):
        worker.call(sleep, seconds=0.01)


def test_a_process_that_ends_is_lost(worker: Worker) -> None:
    with pytest.raises(WorkerLost):
        worker.call(end)
    with pytest.raises(WorkerLost):
        worker.call(answer, 5)


def test_one_that_is_ended_while_it_starts_is_lost() -> None:
    worker = Worker("shared")
    worker.kill()
    with pytest.raises(WorkerLost):
        worker.call(answer, 5)


def test_one_that_ends_before_it_has_read_a_long_command_line_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 gives it the command line through a pipe, and waits for ever until somebody reads that."""
    monkeypatch.setattr(sys, "argv", ["dgmark", *(f"{number}.txt" for number in range(100_000))])
    monkeypatch.setattr(processes, "_SPAWN_SECONDS", 1.0)
    worker, end = Worker("shared"), time.monotonic() + 60
    while not (begun := workers(os.getpid())) and time.monotonic() < end:
        time.sleep(0)
    for child in begun:
        child.kill()
    with pytest.raises(WorkerLost):
        worker.call(answer, 5)


def test_a_daemonic_process_may_start_one() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(ask_another) == ("shared", 5)


def test_whatever_keeps_one_from_starting_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise TypeError("no keys here")  # as in Celery's processes

    monkeypatch.setattr("multiprocessing.spawn.get_preparation_data", refuse)
    with pytest.raises(WorkerLost, match="a process cannot be started: no keys here"):
        Worker("shared").call(answer, 5)


IMPORT, CALL = "from dgmark.rows.workers import map_in_order", "print([*map_in_order(list, 'ab', workers=2)])"
BARE, GUARDED = f"{IMPORT}\n{CALL}\n", f"{IMPORT}\nif __name__ == '__main__':\n    {CALL}\n"
WORKED = "[('a', 'a'), ('b', 'b')]"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "command", "said"),
    [
        (GUARDED, "python script.py", WORKED),
        (GUARDED, "python /dev/stdin < script.py", WORKED),
        (GUARDED, "python - < script.py", "<stdin> is no file: save the script as a file"),
        (GUARDED, "python <(cat script.py)", " is no file: save the script as a file"),
        (BARE, "python script.py", 'need `if __name__ == "__main__":` around them'),
    ],
)
def test_a_script_with_workers_runs_or_is_told_what_it_lacks(
    tmp_path: Path, script: str, command: str, said: str
) -> None:
    (tmp_path / "script.py").write_text(script)
    line = f'python() {{ "{sys.executable}" "$@"; }}; {command} 2>&1 | tail -n 1'
    done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    assert said in done.stdout
    assert ("__name__" in done.stdout) == (script == BARE)
