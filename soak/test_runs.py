"""Attempts that disturb a run: races, kills, ended workers, full disks, bombs."""

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from soak.bench import HANGS, TEXT, Bench

MEMORY = f"--as={3 * 2**30}"  # address space that a bomb may take


def test_race(bench: Bench, rng: random.Random) -> None:
    """Two processes write one --out: each row is there once, and a refused writer says so with exit code 4."""
    out = bench.path("race.jsonl")
    command = bench.command("detect", out)
    first = bench.start(command)
    time.sleep(rng.random())
    second = bench.start(command)
    assert 0 in {bench.end(one, 0, 4).code for one in (first, second)}
    bench.check_rows("detect", out)


@pytest.mark.parametrize("name", ["detect", "generate"])
def test_kill(bench: Bench, rng: random.Random, name: str) -> None:
    """SIGKILL up to three times, then run to the end."""
    out = bench.path("killed.jsonl")
    command = bench.command(name, out)
    for _ in range(rng.randint(1, 3)):
        process = bench.start(command)
        time.sleep(rng.uniform(0.2, 6))
        process.kill()
        bench.end(process, 0, -signal.SIGKILL)
    bench.finish(command, out)


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_workers(bench: Bench, rng: random.Random, ended_by: signal.Signals) -> None:
    """End a run with workers by a signal: no process is left, and the rest of the rows follows when it is run again."""
    out = bench.path("workers.jsonl")
    command = [*bench.command("detect", out), "--workers", 2]
    process = bench.start(command)
    _await_handler(process)
    time.sleep(rng.uniform(0, 4))
    process.send_signal(ended_by)
    if ended_by == signal.SIGKILL:  # a worker that was just starting shows a traceback before dgmark's code runs in it
        process.communicate(timeout=HANGS)
    else:  # a signal after the last row meets Python's own shutdown: to a shell -15 is 143, too
        bench.end(process, 0, 130, 143, -ended_by)
    until = time.monotonic() + 10
    while (left := _of_group(process.pid)) and time.monotonic() < until:
        time.sleep(0.2)
    if left:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"{len(left)} processes live 10 s after their parent was ended")
    bench.finish(command, out)


def test_disk(bench: Bench, rng: random.Random) -> None:
    """No room: exit code 4 and a whole prefix of the rows; with room again, the rest follows. No torn key is left."""
    key, out, expected = bench.path("new-key.json"), bench.path("disk.jsonl"), bench.undisturbed("detect")
    bench.run("keygen", key, codes=(4, 5), limits=["--fsize=64"])
    assert not key.exists()
    command = bench.command("detect", out)
    bench.run(*command, codes=(4,), limits=[f"--fsize={rng.randint(0, len(expected) - 1)}"])
    whole, _, _ = (out.read_bytes() if out.exists() else b"").rpartition(b"\n")
    assert expected.startswith(whole)
    bench.finish(command, out)


@pytest.mark.parametrize("kind", ["selectors", "long text", "long line", "deep JSON", "many ids"])
def test_bomb(bench: Bench, rng: random.Random, kind: str) -> None:
    """An input that unpacks to far more, or that slow code never ends on: a verdict or an error, in bounded memory."""
    text = "the king said "
    path = bench.path("bomb.txt" if kind in ("selectors", "long text") else "bomb.jsonl")
    good = json.dumps({"id": "b", "text": TEXT})
    content = {
        "selectors": lambda: TEXT + chr(0xFE00 + rng.randrange(16)) * rng.randint(20_000, 200_000),
        "long text": lambda: text * rng.randint(10_000, 300_000),
        "long line": lambda: json.dumps({"id": "a", "text": text * 2_000_000}) + "\n",
        "deep JSON": lambda: '{"id": "a", "text": ' + "[" * 200_000 + "\n" + good,
        "many ids": lambda: json.dumps({"id": "a", "token_ids": [rng.randrange(8000) for _ in range(300_000)]}) + "\n",
    }
    path.write_text(content[kind]())
    options = ["--normalise", "all"] if kind == "selectors" else []
    command = ["detect", "--key", bench.key, "--format", "jsonl", *options, path]
    ran = bench.run(*command, codes=(0, 4), limits=[MEMORY])
    assert kind != "deep JSON" or b'"watermarked"' in ran.output, "the good row beside the bad one has no verdict"


def _await_handler(process: subprocess.Popen[bytes]) -> None:
    """Wait until dgmark handles SIGTERM; before that, Python is still starting, and any signal ends it."""
    status = Path(f"/proc/{process.pid}/status")
    until = time.monotonic() + HANGS
    while process.poll() is None and time.monotonic() < until:
        caught = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.02)


def _of_group(group: int) -> list[str]:
    """The live processes of a process group."""
    listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat="], capture_output=True, text=True, check=True)
    pairs = (line.split() for line in listed.stdout.splitlines())
    return [state for pgid, state in pairs if int(pgid) == group and state[0] != "Z"]
