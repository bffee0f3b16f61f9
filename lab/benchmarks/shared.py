"""What several benchmarks share: arguments, keys, times, tables in Markdown."""

import hashlib
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dgmark.checkpoint.folder import BUILTIN
from dgmark.watermark.key import SECRET_BYTES, ModelLike, WatermarkKey
from dgmark.watermark.spec import WatermarkSpec
from dgmark_lab.experiments.made_with import made_with

RUNS = Path(__file__).parents[2] / "runs"


def arguments() -> ArgumentParser:
    """The parser of the script that runs; its help begins with the first line of the script."""
    return ArgumentParser(description=(sys.modules["__main__"].__doc__ or "").split("\n")[0])


def bench_key(rule: str = "position", model: str | ModelLike = BUILTIN, subkeys: int = 1) -> WatermarkKey:
    """Make the benchmark's key for a model: the paper's i mod 2, or pairs, by default without sub-keys.

    It is derived from a public phrase, so that everybody gets the same texts on a machine with the same rounding; it
    protects nothing.
    """
    fresh = WatermarkKey.generate(model, rule=rule, code_length=0 if rule == "position" else None, subkeys=subkeys)
    secret = hashlib.sha256(b"dgmark benchmark key: not a secret").digest()
    return WatermarkKey(spec=fresh.spec, key_id="benchmark", secret=secret)


def random_key(spec: WatermarkSpec, number: int) -> WatermarkKey:
    """Return key `number` of a fixed series."""
    return WatermarkKey(spec, f"bench-{number}", np.random.default_rng([5, number]).bytes(SECRET_BYTES))


def seconds_of(work: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    """Measure the seconds of one call, by this clock."""
    begin = clock()
    work()
    return clock() - begin


def print_header(titles: Sequence[str]) -> None:
    """Print the head of a table."""
    print(f"| {' | '.join(titles)} |\n|{'---|' * len(titles)}")


def print_row(cells: Sequence[object]) -> None:
    """Print a row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def print_made_with(*names: str) -> None:
    """Print what the tables depend on, as the pages state it."""
    print(f"\n{made_with(*dict.fromkeys(names))}")
