"""What several benchmarks share: the key, simulated texts, tables in Markdown."""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from jaxtyping import Int

from dgmark.watermark.groups import SECRET_BYTES, WatermarkSpec
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.experiments.prompt_sets import BUILTIN_PROMPTS

HERE = Path(__file__).parent
RUNS = HERE.parents[1] / "runs"


def bench_key() -> WatermarkKey:
    """Make the benchmark's key: the paper's i mod 2, no rotation, bound to the built-in model.

    It is derived from a public phrase, so that everybody gets the same texts on a machine with the same rounding; it
    protects nothing.
    """
    fresh = WatermarkKey.generate(code_length=0)
    secret = hashlib.sha256(b"dgmark benchmark key: not a secret").digest()
    return WatermarkKey(spec=fresh.spec, key_id="benchmark", secret=secret)


def random_key(spec: WatermarkSpec, number: int) -> WatermarkKey:
    """Return key `number` of a fixed series."""
    return WatermarkKey(spec, f"bench-{number}", np.random.default_rng([5, number]).bytes(SECRET_BYTES))


def builtin_prompts() -> list[str]:
    """The prompts of the built-in set."""
    return [json.loads(line)["prompt"] for line in BUILTIN_PROMPTS.read_text().splitlines()]


def simulated(key: WatermarkKey, tokens: int, match_rate: float, rng: np.random.Generator) -> Int[np.ndarray, " n"]:
    """Draw ids that match with this probability (.5: unmarked), from 900 words with a power law."""
    words = rng.permutation(np.arange(300, 8000))[:900]
    groups, weights = key.tables.groups_in(words, 0), 1 / np.arange(16, 916)
    shares = [np.where(groups == group, weights, 0) / weights[groups == group].sum() for group in (0, 1)]
    wanted = (key.tables.residues(np.arange(tokens)) + (rng.random(tokens) >= match_rate)) % 2
    return np.array([rng.choice(words, p=shares[group]) for group in wanted])


def edited(
    ids: Int[np.ndarray, " n"],
    deleted: float,
    replaced: float,
    rng: np.random.Generator,
    words: Int[np.ndarray, " _"] | None = None,
) -> Int[np.ndarray, " m"]:
    """Replace and delete tokens at random; replacements are drawn from `words`, or from the vocabulary."""
    chosen = rng.random(len(ids)) < replaced
    other = rng.integers(300, 8000, len(ids)) if words is None else rng.choice(words, len(ids))
    changed = np.where(chosen, other, ids)
    return changed[rng.random(len(ids)) >= deleted]


def print_header(titles: Sequence[str]) -> None:
    """Print the head of a table."""
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")


def print_row(cells: Sequence[object]) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def family(process: int) -> list[int]:
    """A process and all below it (Linux)."""
    parents = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            number, _, rest = status.read_text().partition(" (")
            parents[int(number)] = int(rest.rpartition(") ")[2].split()[1])
    found = [process]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def resident_bytes(process: int) -> int:
    """Resident bytes of a process (Linux)."""
    return os.sysconf("SC_PAGE_SIZE") * int(Path(f"/proc/{process}/statm").read_text().split()[1])
