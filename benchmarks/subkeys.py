"""Measure what sub-keys cost: processor time and memory of a scan, and the marks of simulated texts still found.

Run `python benchmarks/subkeys.py`, or with `cost`, `power` or `choice` for one of the tables. One core. Texts are those
of `simulated.py`; each has its own key and sub-key. N = 1 is one sub-key, tested alone.
"""

import sys
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from statistics import median

import numpy as np
from jaxtyping import Int

from corpus import bench_key
from dgmark.detection.evidence import KeyTest
from dgmark.detection.reader import ScoredIds
from dgmark.detection.result import Mode
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.key import WatermarkKey
from scoring import random_key
from simulated import simulated

SUBKEYS = (1, 16, 64, 256, 1024, 4096)
TEXTS = 60
RATE = 1e-4
LENGTHS, MATCH_RATES = (100, 200, 256, 400), (0.74, 0.94)
# for the choice of N: how many texts of how many tokens at which match rate, unedited
CHOICE, CHOICES = (1000, 200, 0.74), (1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096)
# share of the tokens deleted, share replaced
EDITS = ((0.0, 0.0), (0.1, 0.0), (0.0, 0.2))
# a vocabulary of the size of LLaDA's, for time and memory
VOCABULARY = 126_464
ROUNDS = 9


def cost() -> None:
    """Print processor time and memory of one text of 256 tokens, unmarked and marked."""
    print("| sub-keys | intact, unmarked | intact, marked | auto, unmarked | auto, 5 % cut out | memory |")
    print("|---|---|---|---|---|---|")
    for number in (*SUBKEYS, 65_536):
        key = random_key(replace(bench_key().spec, subkeys=number, table_size=VOCABULARY), 1)
        rng = np.random.default_rng(0)
        plain = simulated(key.for_text(None if number == 1 else 7), 256, 0.5, rng)
        marked = simulated(key.for_text(None if number == 1 else 7), 256, 0.8, rng)
        cut = marked[rng.random(256) >= 0.05]
        took = [
            *(milliseconds(key, "intact", ids) for ids in (plain, marked)),
            *(milliseconds(key, "auto", ids) for ids in (plain, cut)),
        ]
        print(
            f"| {number:,} | "
            + " | ".join(f"{each:.0f} ms" for each in took)
            + f" | {_megabytes(key, plain):.0f} MB |",
            flush=True,
        )


def milliseconds(key: WatermarkKey, mode: Mode, ids: Int[np.ndarray, " n"]) -> float:
    """Processor time of one text and one key, the median of several rounds."""
    tokens, times = ScoredIds(ids, np.arange(len(ids))), []
    for _ in range(ROUNDS):
        begin = time.process_time()
        KeyTest(key, mode=mode).detect(tokens)
        times.append(time.process_time() - begin)
    return 1e3 * median(times[1:])


def _megabytes(key: WatermarkKey, ids: Int[np.ndarray, " n"]) -> float:
    """The most memory that a detection in mode auto has allocated at a time."""
    tracemalloc.start()
    KeyTest(key).detect(ScoredIds(ids, np.arange(len(ids))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def power() -> None:
    """Print the share of marks found at the rate for each number of sub-keys, and of payloads that are right."""
    print("| tokens | match rate | deleted | replaced | " + " | ".join(f"N = {n:,}" for n in SUBKEYS) + " | payload |")
    print("|---|---|---|---|" + "---|" * (len(SUBKEYS) + 1))
    for match_rate in MATCH_RATES:
        for deleted, replaced in EDITS:
            for tokens in LENGTHS:
                each = np.array(
                    [_found(number, tokens, match_rate, SUBKEYS, deleted, replaced) for number in range(TEXTS)]
                )
                shares = " | ".join(f"{share:.2f}" for share in each[:, :-1].mean(axis=0))
                payload = f"{each[:, -1].sum()} of {each[:, -2].sum()}"
                print(f"| {tokens} | {match_rate} | {deleted:g} | {replaced:g} | {shares} | {payload} |", flush=True)


def choice() -> None:
    """Print the share of unedited marks found over more texts, each less that of one."""
    texts, tokens, match_rate = CHOICE
    each = np.array([_found(number, tokens, match_rate, CHOICES) for number in range(texts)])[:, :-1]
    print("| sub-keys | found | less than one sub-key finds |\n|---|---|---|")
    for number, found in zip(CHOICES, each.T, strict=True):
        missed = each[:, 0] & ~found
        error = missed.std() / np.sqrt(texts)
        print(f"| {number} | {found.mean():.3f} | {(each[:, 0].mean() - found.mean()):.3f} +- {error:.3f} |")


def _found(
    number: int,
    tokens: int,
    match_rate: float,
    numbers: Sequence[int],
    deleted: float = 0.0,
    replaced: float = 0.0,
) -> list[bool]:
    """Whether the mark of one text is found among each number of sub-keys, and its payload among the most.

    The first sub-keys of a key are those of the same key with fewer. So a sub-key that the scan of all ranks first is
    first among fewer as well, and its p-value is multiplied by their number. If another one is first, fewer are scanned
    by themselves.
    """
    rng = np.random.default_rng([5, number, tokens])
    keys = [random_key(replace(_spec(), subkeys=subkeys), number) for subkeys in numbers[1:]]
    subkey = int(rng.integers(numbers[1]))
    ids = simulated(keys[-1].subkey(subkey), tokens, match_rate, rng)
    ids = np.where(rng.random(tokens) < replaced, rng.integers(300, 8000, tokens), ids)
    ids = ids[rng.random(tokens) >= deleted]
    scored = ScoredIds(ids, np.arange(len(ids)))
    most = KeyTest(keys[-1], fpr=RATE).evidence(scored)
    if most.key.number == subkey:
        return [*(most.p_value * subkeys <= RATE for subkeys in numbers), most.p_value * numbers[-1] <= RATE]
    tests = [KeyTest(keys[-1].subkey(subkey)), *(KeyTest(key) for key in keys)]
    return [*(test.evidence(scored).p_value * test.tried <= RATE for test in tests), False]


@cache
def _spec() -> WatermarkSpec:
    return bench_key().spec


if __name__ == "__main__":
    for table in sys.argv[1:] or ("cost", "power", "choice"):
        {"cost": cost, "power": power, "choice": choice}[table]()
        print()
