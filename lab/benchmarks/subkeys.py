"""Measure what sub-keys cost: processor time and memory of a scan, and the marks of simulated texts still found.

Run `python lab/benchmarks/subkeys.py`, or with `cost`, `power`, `choice` or `payload` for some of the tables, or with
`models KEY.json MARKED.jsonl`, rows of `dgmark generate` and their key, for marks of real texts. One core.
The other texts are simulated; each has its own key and sub-key. N = 1 is one sub-key, tested alone.
"""

import json
import sys
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import numpy as np
from jaxtyping import Int

from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.detection.detector import KeyTest
from dgmark.detection.reader import ScoredIds
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.key import WatermarkKey
from keys_and_tables import bench_key, edited, print_header, print_row, random_key, simulated

SUBKEYS = (1, 16, 64, 256, 1024, 4096)
TEXTS = 60
RATE = 1e-4
LENGTHS, MATCH_RATES = (100, 200, 256, 400), (0.74, 0.94)
# for the choice of N: how many texts of how many tokens at which match rate, unedited
CHOICE, CHOICES = (1000, 200, 0.74), (1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096)
# share of the tokens deleted, share replaced
EDITS = ((0.0, 0.0), (0.1, 0.0), (0.0, 0.2))
# for payloads: how many texts, of how many tokens, and how many sub-keys
PAYLOAD_TEXTS, PAYLOAD_LENGTHS, PAYLOADS = 60, (256, 400), (2**12, 2**16)
SURE = 0.9
PAYLOAD_EDITS = ((0.0, 0.0), (0.0, 0.1), (0.1, 0.0))
# for real texts
MODEL_SUBKEYS, MODEL_LENGTHS = (1, 16, 256, 1024, 4096, 65_536), (64, 100, 128, 200, 256)
# a vocabulary of the size of LLaDA's, for time and memory
VOCABULARY = 126_464
ROUNDS = 9


def cost() -> None:
    """Print processor time and memory of one text of 256 tokens, unmarked and marked."""
    print_header(["sub-keys", "unmarked", "marked", "memory"])
    for number in (*SUBKEYS, 65_536):
        key = random_key(replace(bench_key().spec, subkeys=number, table_size=VOCABULARY), 1)
        rng = np.random.default_rng(0)
        plain = simulated(key.for_text(None if number == 1 else 7), 256, 0.5, rng)
        marked = simulated(key.for_text(None if number == 1 else 7), 256, 0.8, rng)
        took = [f"{milliseconds(key, ids):.1f} ms" for ids in (plain, marked)]
        print_row([f"{number:,}", *took, f"{_megabytes(key, plain):.0f} MB"])


def milliseconds(key: WatermarkKey, ids: Int[np.ndarray, " n"]) -> float:
    """Processor time of one text and one key, the median of several rounds."""
    tokens, times = ScoredIds(ids, np.arange(len(ids))), []
    for _ in range(ROUNDS):
        begin = time.process_time()
        KeyTest(key).score(tokens)
        times.append(time.process_time() - begin)
    return 1e3 * median(times[1:])


def _megabytes(key: WatermarkKey, ids: Int[np.ndarray, " n"]) -> float:
    """The most memory that a detection has allocated at a time."""
    tracemalloc.start()
    KeyTest(key).score(ScoredIds(ids, np.arange(len(ids))))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def power() -> None:
    """Print the share of marks found at the rate for each number of sub-keys, and of payloads that are right."""
    print_header(["tokens", "match rate", "deleted", "replaced", *(f"N = {n:,}" for n in SUBKEYS), "payload"])
    for match_rate in MATCH_RATES:
        for deleted, replaced in EDITS:
            for tokens in LENGTHS:
                each = np.array(
                    [_found(number, tokens, match_rate, SUBKEYS, deleted, replaced) for number in range(TEXTS)]
                )
                shares = [f"{share:.2f}" for share in each[:, :-1].mean(axis=0)]
                payload = f"{each[:, -1].sum()} of {each[:, -2].sum()}"
                print_row([tokens, match_rate, deleted, replaced, *shares, payload])


def choice() -> None:
    """Print the share of unedited marks found over more texts, each less that of one."""
    texts, tokens, match_rate = CHOICE
    each = np.array([_found(number, tokens, match_rate, CHOICES) for number in range(texts)])[:, :-1]
    print_header(["sub-keys", "found", "less than one sub-key finds"])
    for number, found in zip(CHOICES, each.T, strict=True):
        missed = each[:, 0] & ~found
        error = missed.std() / np.sqrt(texts)
        print_row([number, f"{found.mean():.3f}", f"{(each[:, 0].mean() - found.mean()):.3f} +- {error:.3f}"])


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
    ids = edited(simulated(keys[-1].subkey(subkey), tokens, match_rate, rng), deleted, replaced, rng)
    scored = ScoredIds(ids, np.arange(len(ids)))
    if KeyTest(keys[-1], fpr=RATE).score(scored).subkey_tested == subkey:
        p = KeyTest(keys[-1].subkey(subkey)).score(scored).p_value
        return [*(p * subkeys <= RATE for subkeys in numbers), p * numbers[-1] <= RATE]
    tests = [KeyTest(keys[-1].subkey(subkey)), *(KeyTest(key) for key in keys)]
    return [*(test.score(scored).p_value <= RATE for test in tests), False]


def payload() -> None:
    """Print how often payloads are found, and read right, by their bits.

    *One known* tests the right sub-key alone, and *all tried* multiplies its p-value by the number of sub-keys: no scan
    can find more. *Sure* is a confidence of .9 or more. *Likeliest is right* counts texts whose mark is not found, too.
    """
    columns = ("one known", "all tried", "found", "found and wrong", "sure and wrong", "likeliest is right")
    print_header(["match rate", "deleted", "replaced", "tokens", "bits", *columns])
    for match_rate in MATCH_RATES:
        for deleted, replaced in PAYLOAD_EDITS:
            for tokens in PAYLOAD_LENGTHS:
                for number in PAYLOADS:
                    texts = range(PAYLOAD_TEXTS)
                    each = np.array([_read(n, number, tokens, match_rate, deleted, replaced) for n in texts])
                    alone, tried, found, sure, right = each.T
                    cells = [f"{share.mean():.2f}" for share in (alone, tried, found)]
                    cells += [
                        f"{np.count_nonzero(some & ~right)} of {np.count_nonzero(some)}" for some in (found, sure)
                    ]
                    cells.append(f"{right.mean():.2f}")
                    print_row([match_rate, deleted, replaced, tokens, number.bit_length() - 1, *cells])


def _read(
    number: int, subkeys: int, tokens: int, match_rate: float, deleted: float, replaced: float
) -> tuple[bool, bool, bool, bool, bool]:
    """Of one text: found if known, found if all are tried, found, found surely, and whether the likeliest is right."""
    rng = np.random.default_rng([6, number, tokens])
    key = random_key(replace(_spec(), subkeys=subkeys), number)
    subkey = int(rng.integers(subkeys))
    ids = edited(simulated(key.subkey(subkey), tokens, match_rate, rng), deleted, replaced, rng)
    scored = ScoredIds(ids, np.arange(len(ids)))
    alone = KeyTest(key.subkey(subkey)).score(scored).p_value
    read = KeyTest(key, fpr=RATE).score(scored)
    found, sure = read.verdict == "watermarked", (read.subkey_confidence or 0) >= SURE
    return alone <= RATE, alone * subkeys <= RATE, found, found and sure, read.subkey_tested == subkey


def models(key_file: str, marked: str) -> None:
    """Print the share of marks of real texts found, with and without edits; their key has no sub-keys.

    The p-value of a text is multiplied by N: this is what the scan of N sub-keys says if it ranks the right one first,
    as it does whenever that p-value passes (`payload`). Texts are read back and edited as token ids.
    """
    key = WatermarkKey.load(key_file)
    tokenizer = load_tokenizer(key.spec.tokenizer)
    rows = (json.loads(line) for line in Path(marked).read_bytes().splitlines())
    texts = [np.array(tokenizer.encode(row["text"])) for row in rows]
    words = np.concatenate(texts)
    print_header(
        ["deleted", "replaced", "tokens", "texts", "matched", *(f"N = {number:,}" for number in MODEL_SUBKEYS)]
    )
    for deleted, replaced in EDITS:
        for tokens in MODEL_LENGTHS:
            found = []
            for number, ids in enumerate(texts):
                if len(ids) >= 0.95 * tokens:
                    rng = np.random.default_rng([27, number, tokens])
                    some = edited(ids[:tokens], deleted, replaced, rng, words)
                    found.append(KeyTest(key).score(ScoredIds(some, np.arange(len(some)))))
            if found:
                p = np.array([each.p_value for each in found])
                matched = f"{np.mean([each.green_fraction for each in found]):.2f}"
                shares = [f"{np.mean(p * number <= RATE):.2f}" for number in MODEL_SUBKEYS]
                print_row([deleted, replaced, tokens, len(found), matched, *shares])


@cache
def _spec() -> WatermarkSpec:
    return bench_key().spec


if __name__ == "__main__":
    tables = {"cost": cost, "power": power, "choice": choice, "payload": payload}
    if sys.argv[1:2] == ["models"]:
        models(*sys.argv[2:4])
    for table in sys.argv[1:] or tables:
        if table in tables:
            tables[table]()
            print()
