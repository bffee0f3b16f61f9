"""Fuzzed files: a mutated key, tokenizer, checkpoint or row is refused, or does not change what was not touched."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from dgmark.checkpoint.folder import BUILTIN, builtin_folder
from soak.bench import Bench

STORYTELLER = builtin_folder(BUILTIN)
NESTED: list[Any] = [None, True, -1, 0, 1.5, 2**70, "", "x", [], {}, [[[]]], {"a": {}}, "\ud800", "x" * 100_000]
INSERTED = [b"\0", b"\xff\xfe", b"\n", b'"', b"{", b"]", b"1e999", b"\\ud800", b"NaN"]


def mutated_bytes(content: bytes, rng: random.Random) -> bytes:
    """Change, delete, repeat or insert up to eight stretches of bytes, or cut the end off."""
    for _ in range(rng.randint(1, 8)):
        start = rng.randrange(len(content) + 1)
        end = start + rng.randint(1, 30)
        before, stretch, after = content[:start], content[start:end], content[end:]
        content = rng.choice(
            [
                before + bytes([rng.randrange(256)]) + content[start + 1 :],
                before + after,
                before + stretch + stretch + after,
                before + rng.choice(INSERTED) + stretch + after,
                content if rng.random() < 0.8 else before,
            ]
        )
    return content


def mutated_json(value: Any, rng: random.Random) -> Any:
    """Replace, remove or add one value, somewhere in a JSON value."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        match rng.randrange(6):
            case 0:
                return {key: kept for key, kept in value.items() if key != name}
            case 1:
                return {**value, rng.choice(["", "x", name.upper()]): rng.choice(NESTED)}
            case _:
                return {**value, name: mutated_json(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        return [*value[:at], mutated_json(value[at], rng), *value[at + 1 :]]
    return rng.choice(NESTED)


def mutated(content: bytes, rng: random.Random) -> bytes:
    """Mutate the bytes or the values of a JSON text."""
    if rng.random() < 0.5:
        return mutated_bytes(content, rng)
    return json.dumps(mutated_json(json.loads(content), rng)).encode()


@pytest.fixture
def checkpoint(bench: Bench) -> Path:
    """A model folder whose files are links to those of the storyteller."""
    folder = bench.folder / "checkpoint"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file in STORYTELLER.iterdir():
        (folder / file.name).symlink_to(file)
    return folder


@pytest.mark.parametrize("name", ["key.json", "tokenizer.json", "tokenizer_config.json", "config.json"])
def test_fuzzed_for_detection(bench: Bench, rng: random.Random, checkpoint: Path, name: str) -> None:
    """A mutated key or tokenizer is refused, or still finds the marked text."""
    key = bench.path("fuzzed-key.json")
    shutil.copy(bench.key, key)
    path = key if name == "key.json" else checkpoint / name
    content = path.read_bytes()
    path.unlink()  # it may be a link to the source
    path.write_bytes(mutated(content, rng))
    path.chmod(0o600)
    command = ["detect", "--key", key, "--tokenizer", checkpoint, "--format", "jsonl", bench.marked]
    ran = bench.run(*command, codes=(0, 4, 5, 6))
    assert ran.code or b'"verdict": "watermarked"' in ran.output, "it was accepted, and the mark is no longer found"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_fuzzed_checkpoint(bench: Bench, rng: random.Random, checkpoint: Path, name: str) -> None:
    """A mutated checkpoint is refused, or writes."""
    content = (STORYTELLER / name).read_bytes()
    (checkpoint / name).unlink()  # a link to the source
    if name == "model.safetensors":
        head = 8 + int.from_bytes(content[:8], "little")
        content = mutated_bytes(content[:head], rng) + content[head:]
        content = content[: rng.choice([len(content), rng.randrange(len(content)), rng.randrange(head)])]
    else:
        content = mutated(content, rng)
    (checkpoint / name).write_bytes(content)
    options = ["--model", checkpoint, "--prompt", "Once", "--length", 8, "--block-length", 8]
    bench.run("generate", "--key", bench.key, *options, codes=(0, 2, 4, 5, 6))


def test_fuzzed_rows(bench: Bench, rng: random.Random) -> None:
    """Mutated lines become error rows or rows of another text; the other lines give what they gave before."""
    lines = bench.few_rows.read_bytes().splitlines()
    touched = rng.sample(range(len(lines)), rng.randint(1, 5))
    for at in touched:
        lines[at] = mutated(lines[at], rng).replace(b"\n", b" ")
    path, out = bench.path("fuzzed.jsonl"), bench.path("fuzzed-out.jsonl")
    path.write_bytes(b"\n".join(lines) + b"\n")
    ran = bench.run("detect", "--key", bench.key, "--out", out, path, codes=(0, 4))
    if ran.code:  # the only reason to refuse a whole file is an id that two rows have
        assert b"same id" in ran.output or b"have the id" in ran.output
        return
    assert all(json.loads(row) for row in out.read_bytes().splitlines())
    before = bench.undisturbed("detect").splitlines()[: len(lines)]
    lost = {row for at, row in enumerate(before) if at not in touched} - set(out.read_bytes().splitlines())
    assert not lost, f"{len(lost)} untouched rows changed or were lost"
