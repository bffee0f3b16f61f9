"""Attempts that disturb a run: races, kills, ended workers, full disks, bombs."""

import json
import os
import random
import resource
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from soak.bench import HANGS, Bench, limited, rows_of

COMMANDS = ("detect", "generate")
MEMORY = 3 * 2**30  # address space that a bomb may take


def race(bench: Bench, rng: random.Random) -> list[str]:
    """Two processes write one --out: each row is there once, and a refused writer says so with exit code 4."""
    out = bench.path("race.jsonl")
    first = bench.start(bench.command("detect", out))
    time.sleep(rng.random())
    second = bench.start(bench.command("detect", out))
    ends = [bench.end(first), bench.end(second)]
    problems = [p for ran in ends for p in bench.problems(ran, 0, 4)]
    if all(ran.code != 0 for ran in ends):
        problems.append("neither of two writers finished")
    return problems + _same("race", out, bench.undisturbed("detect"))


def kill(bench: Bench, rng: random.Random) -> list[str]:
    """SIGKILL up to three times, then run to the end: the file is that of an undisturbed run, byte for byte."""
    name = rng.choice(COMMANDS)
    expected = bench.undisturbed(name)
    out = bench.path("killed.jsonl")
    for _ in range(rng.randint(1, 3)):
        process = bench.start(bench.command(name, out))
        time.sleep(rng.uniform(0.2, 6))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        bench.end(process)
    last = bench.run(*bench.command(name, out))
    problems = bench.problems(last, 0)
    return problems + _same(f"{name} after kills", out, expected)


def workers(bench: Bench, rng: random.Random) -> list[str]:
    """End a run with workers by a signal: no process is left, and the rest of the rows follows when it is run again."""
    out = bench.path("workers.jsonl")
    command = [*bench.command("detect", out), "--workers", 2]
    process = bench.start(command)
    _await_handler(process)
    time.sleep(rng.uniform(0, 4))
    ended_by = rng.choice([signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
    process.send_signal(ended_by)
    ran = bench.end(process)
    if ended_by == signal.SIGKILL:  # a worker that was just starting says so, and no code of dgmark runs in it yet
        ran = replace(ran, output=ran.output.replace(b"Traceback", b"") if b"spawn_main" in ran.output else ran.output)
    # a signal after the last row meets Python's own shutdown: to a shell -15 is 143, too
    problems = bench.problems(ran, 0, 130, 143, -ended_by)
    until = time.monotonic() + 10
    while (left := _of_group(process.pid)) and time.monotonic() < until:
        time.sleep(0.2)
    if left:
        problems.append(f"{len(left)} processes live 10 s after {ended_by.name} ended their parent")
        os.killpg(process.pid, signal.SIGKILL)
    problems += bench.problems(bench.run(*command), 0)
    return problems + _same(f"detect --workers after {ended_by.name}", out, bench.undisturbed("detect"))


def disk(bench: Bench, rng: random.Random) -> list[str]:
    """No room: exit code 4 and a whole prefix of the rows; with room again, the rest follows. No torn key is left."""
    expected = bench.undisturbed("detect")
    key = bench.path("new-key.json")
    problems = bench.problems(bench.run("keygen", key, limit=limited(resource.RLIMIT_FSIZE, 64)), 4, 5)
    if key.exists():
        problems.append("a torn key file was left")
    out = bench.path("disk.jsonl")
    size = rng.randint(0, len(expected) - 1)
    ran = bench.run(*bench.command("detect", out), limit=limited(resource.RLIMIT_FSIZE, size))
    problems += bench.problems(ran, 4)
    rows, broken = rows_of(out.read_bytes() if out.exists() else b"")
    if broken or rows != rows_of(expected)[0][: len(rows)]:
        problems.append(f"what fits in {size} bytes is not a prefix of the rows")
    problems += bench.problems(bench.run(*bench.command("detect", out)), 0)
    return problems + _same("detect after a full disk", out, expected)


def bomb(bench: Bench, rng: random.Random) -> list[str]:
    """An input that unpacks to far more, or that slow code never ends on: a verdict or an error, in bounded memory."""
    kind = rng.choice(["selectors", "long text", "long line", "deep JSON", "many ids"])
    path = bench.path("bomb.jsonl")
    options: list[object] = []
    text = "the king said "
    match kind:
        case "selectors":
            path = bench.path("bomb.txt")
            path.write_text(bench.marked + chr(0xFE00 + rng.randrange(16)) * rng.randint(20_000, 200_000))
            options = ["--normalise", "all"]
        case "long text":
            path = bench.path("bomb.txt")
            path.write_text(text * rng.randint(10_000, 300_000))
        case "long line":
            path.write_text(json.dumps({"id": "a", "text": text * 2_000_000}) + "\n")
        case "deep JSON":
            path.write_text(
                '{"id": "a", "text": ' + "[" * 200_000 + "\n" + json.dumps({"id": "b", "text": bench.marked})
            )
        case _:
            path.write_text(json.dumps({"id": "a", "token_ids": [rng.randrange(8000) for _ in range(300_000)]}) + "\n")
    ran = bench.run(
        "detect", "--key", bench.key, "--format", "jsonl", *options, path, limit=limited(resource.RLIMIT_AS, MEMORY)
    )
    problems = bench.problems(ran, 0, 4)
    if kind == "deep JSON" and b'"watermarked"' not in ran.output:
        problems.append(f"{kind}: the good row beside the bad one has no verdict: {ran.output[-300:]!r}")
    return [f"{kind}: {problem}" for problem in problems]


def _same(what: str, out: Path, expected: bytes) -> list[str]:
    """Whether a file is the expected one; if not, how many rows it has, and how many are changed or broken."""
    content = out.read_bytes() if out.exists() else b""
    if content == expected:
        return []
    (rows, broken), (wanted, _) = rows_of(content), rows_of(expected)
    changed = sum(row not in wanted for row in rows)
    return [f"{what}: {len(rows)} rows in place of {len(wanted)}, {changed} changed, {broken} lines broken"]


def _await_handler(process: subprocess.Popen[bytes]) -> None:
    """Wait until dgmark handles SIGTERM; before that, Python is still starting, and any signal ends it."""
    status = Path(f"/proc/{process.pid}/status")
    until = time.monotonic() + HANGS
    while process.poll() is None and time.monotonic() < until:
        caught = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) >> (signal.SIGTERM - 1) & 1:
            return
        time.sleep(0.02)


def _of_group(group: int) -> list[int]:
    """The live processes of a process group."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry.name))
    return found
