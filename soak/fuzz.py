"""Fuzzed files: a mutated key, tokenizer, checkpoint or row is refused, or does not change what was not touched."""

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

from dgmark.checkpoint.folder import BUILTIN, builtin_folder
from soak.bench import Bench, rows_of

STORYTELLER = builtin_folder(BUILTIN)
NESTED: list[Any] = [None, True, -1, 0, 1.5, 2**70, "", "x", [], {}, [[[]]], {"a": {}}, "\ud800", "x" * 100_000]


def mutated_bytes(content: bytes, rng: random.Random, most: int = 8) -> bytes:
    """Flip, delete, repeat or insert up to `most` stretches of bytes, or cut the end off."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(5):
            case 0 if changed:
                changed[min(at, len(changed) - 1)] = rng.randrange(256)
            case 1:
                del changed[at : at + rng.randint(1, 30)]
            case 2:
                changed[at:at] = changed[at : at + rng.randint(1, 30)]
            case 3:
                changed[at:at] = rng.choice([b"\0", b"\xff\xfe", b"\n", b'"', b"{", b"]", b"1e999", b"\\ud800", b"NaN"])
            case _ if rng.random() < 0.2:
                del changed[at:]
    return bytes(changed)


def mutated_json(value: Any, rng: random.Random) -> Any:
    """Replace, remove or add one value, somewhere in a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        match rng.randrange(6):
            case 0:
                return {key: kept for key, kept in value.items() if key != name}
            case 1:
                return {**value, str(rng.choice(["", "x", name.upper()])): rng.choice(NESTED)}
            case _:
                return {**value, name: mutated_json(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], mutated_json(value[at], rng), *value[at + 1 :]]
    return rng.choice(NESTED)


def _mutate(source: Path, target: Path, rng: random.Random) -> None:
    """Write a mutated copy of a JSON file: its bytes, or its values."""
    target.unlink(missing_ok=True)  # it may be a link to the source
    if rng.random() < 0.5:
        target.write_bytes(mutated_bytes(source.read_bytes(), rng))
    else:
        target.write_text(json.dumps(mutated_json(json.loads(source.read_text()), rng)))


def key_file(bench: Bench, rng: random.Random) -> list[str]:
    """A mutated key is refused, or still finds the marked text."""
    assert bench.marked
    path = bench.path("fuzzed-key.json")
    _mutate(bench.key, path, rng)
    path.chmod(0o600)
    return _still_found(
        bench, "fuzzed key", ["detect", "--key", path, "--format", "jsonl", bench.folder / "marked.txt"]
    )


def signed_report(bench: Bench, rng: random.Random) -> list[str]:
    """A signed report of which any byte was changed is refused, and so is one with its old payload attached."""
    assert bench.marked
    report, jwks = bench.signed_report
    content = report.read_bytes()
    changed = bench.path("changed.html")
    changed.write_bytes(mutated_bytes(content, rng))
    ran = bench.run("report", "verify", changed, "--jwks", jwks)
    problems = bench.problems(ran, 0, 4)
    if ran.code == 0 and changed.read_bytes() != content:
        problems.append("a changed report was verified as unchanged")
    return problems


def tokenizer(bench: Bench, rng: random.Random) -> list[str]:
    """A mutated tokenizer is refused, or still finds the marked text."""
    assert bench.marked
    folder = _checkpoint(bench)
    name = rng.choice(["tokenizer.json", "tokenizer.json", "tokenizer_config.json", "config.json"])
    _mutate(STORYTELLER / name, folder / name, rng)
    command = ["detect", "--key", bench.key, "--tokenizer", folder, "--format", "jsonl", bench.folder / "marked.txt"]
    return _still_found(bench, f"fuzzed {name}", command)


def _still_found(bench: Bench, what: str, command: list[object]) -> list[str]:
    ran = bench.run(*command)
    problems = bench.problems(ran, 0, 4, 5, 6)
    if ran.code == 0 and b'"verdict": "watermarked"' not in ran.output:
        problems.append(f"{what} was accepted, and the marked text is no longer found: {ran.output[-300:]!r}")
    return problems


def checkpoint(bench: Bench, rng: random.Random) -> list[str]:
    """A mutated checkpoint is refused, or writes."""
    folder = _checkpoint(bench)
    name = rng.choice(["config.json", "model.safetensors", "tokenizer.json"])
    if name == "model.safetensors":
        content = bytearray((STORYTELLER / name).read_bytes())
        head = 8 + int.from_bytes(content[:8], "little")
        end = rng.choice([head, len(content)])
        content[:head] = mutated_bytes(bytes(content[:head]), rng, 3) if rng.random() < 0.7 else content[:head]
        (folder / name).unlink()  # a link to the source
        (folder / name).write_bytes(bytes(content if rng.random() < 0.5 else content[: rng.randrange(end)]))
    else:
        _mutate(STORYTELLER / name, folder / name, rng)
    ran = bench.run(
        "generate", "--key", bench.key, "--model", folder, "--prompt", "Once", "--length", 8, "--block-length", 8
    )
    return [f"fuzzed {name}: {problem}" for problem in bench.problems(ran, 0, 2, 4, 5, 6)]


def _checkpoint(bench: Bench) -> Path:
    folder = bench.folder / "checkpoint"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in STORYTELLER.iterdir():
        os.symlink(file, folder / file.name)
    return folder


def json_lines(bench: Bench, rng: random.Random) -> list[str]:
    """Mutated lines become error rows or rows of another text; the other lines give what they gave before."""
    lines = bench.few_rows.read_bytes().splitlines(keepends=True)
    touched = set(rng.sample(range(len(lines)), rng.randint(1, 5)))
    for at in touched:
        row = json.loads(lines[at])
        lines[at] = (
            mutated_bytes(lines[at][:-1], rng).replace(b"\n", b" ") + b"\n"
            if rng.random() < 0.5
            else json.dumps(mutated_json(row, rng)).encode() + b"\n"
        )
    path, out = bench.path("fuzzed.jsonl"), bench.path("fuzzed-out.jsonl")
    path.write_bytes(b"".join(lines))
    ran = bench.run("detect", "--key", bench.key, "--out", out, path)
    problems = bench.problems(ran, 0, 4)
    if ran.code == 0:
        untouched = {f"r{at}" for at in range(len(lines)) if at not in touched}
        return problems + _as_before(bench, out, untouched)
    # the only reason to refuse a whole file is an id that two rows have
    if b"same id" not in ran.output and b"have the id" not in ran.output:
        problems.append(f"a file with {len(touched)} mutated lines was refused: {ran.output[-300:]!r}")
    return problems


def _as_before(bench: Bench, out: Path, ids: set[str]) -> list[str]:
    before = {row["id"]: row for row in rows_of(bench.undisturbed("detect"))[0]}
    rows, broken = rows_of(out.read_bytes())
    now = {str(row.get("id")): row for row in rows}
    wrong = [name for name in sorted(ids) if now.get(name) != before[name]]
    problems = [f"{len(wrong)} untouched rows changed or were lost, such as {wrong[0]}"] if wrong else []
    return [*problems, f"{broken} broken lines in --out"] if broken else problems
