"""Measure the speed of detection: exact p-values, and text to verdict against the bare tokenizer. One core.

Every figure is the median of several rounds; the last ones are ratios of two interleaved measurements.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np

from dgmark import Detector, Keyring
from dgmark.detection.statistics.match_null import MatchNull, residue_counts
from dgmark.watermark.key import SECRET_BYTES
from dgmark.watermark.position import group_table, tables_of
from dgmark_lab.experiments.prompt_sets import builtin_prompts
from shared import arguments, bench_key, random_key, seconds_of

ROUNDS = 15
SCRIPT = "import dgmark; dgmark.detect('Once upon a time', dgmark.WatermarkKey.generate())"


def main() -> None:
    """Print the figures."""
    arguments().parse_args()
    key = bench_key()
    spec = tables_of(key).spec
    detector, coded = Detector(key), Detector(random_key(replace(spec, code_length=16), 0))
    tokenizer = detector.tokenizer
    prose = tokenizer.encode(" ".join(builtin_prompts()))
    print(f"prose: the benchmark's prompts, {len(prose)} tokens")
    windows = [np.array(prose[at : at + 256]) for at in range(0, len(prose) - 256, 64)]
    residues = np.arange(256) % 2

    # tables are kept by their secrets
    show("group table of 150,000 ids", lambda: group_table(os.urandom(SECRET_BYTES), 2, 150_000))
    show(
        "a process that imports dgmark and detects once",
        lambda: subprocess.run([sys.executable, "-c", SCRIPT], check=True),
    )
    for name, work in (
        ("exact p-value", lambda: [MatchNull.of(residue_counts(ids, residues, 2)).tail(150) for ids in windows]),
        ("ids to verdict, i mod 2", lambda: [detector.detect(ids) for ids in windows]),
        ("ids to verdict, position code 16", lambda: [coded.detect(ids) for ids in windows]),
    ):
        show(f"{name}, n = 256", work, count=len(windows))
    for name, keys, changed in (
        ("i mod 2", 1000, spec),
        ("position code 64", 100, replace(spec, code_length=64)),
        ("rotation 64", 100, replace(spec, rotation=64)),
    ):
        ring = Keyring([random_key(changed, number) for number in range(keys)])
        show(f"{keys:,} keys, {name}, n = 256", partial(ring.detect, windows[0]), rounds=3)
    million = np.resize(np.array(prose), 1_000_000)
    show("a text of 1,000,000 tokens", lambda: detector.detect(million), rounds=3)

    texts = [tokenizer.decode(ids.tolist()) for ids in windows]
    backend = tokenizer.backend
    each, together = one_by_one(detector.detect, texts), partial(detector.detect_many, texts)
    fast = one_by_one(lambda text: backend.encode_batch_fast([text]), texts)
    for name, ours, bare in (
        ("text to verdict / encode", each, one_by_one(backend.encode, texts)),
        ("text to verdict / encode_batch_fast of one", each, fast),
        ("texts to verdicts / encode_batch of all", together, partial(backend.encode_batch, texts)),
    ):
        ratios = [seconds_of(ours) / seconds_of(bare) for _ in range(ROUNDS)]
        print(f"{name}, n = 256: {median(ratios):.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})")


def show(name: str, work: Callable[[], object], *, count: int = 1, rounds: int = ROUNDS) -> None:
    """Print the median time of some work, for each of the `count` texts that it takes, after a warm-up call."""
    work()
    took = median(seconds_of(work) for _ in range(rounds)) / count
    print(f"{name}: {1e3 * took:.3f} ms")


def one_by_one(work: Callable[[str], object], texts: list[str]) -> Callable[[], object]:
    """Work on texts one after another."""
    return lambda: [work(text) for text in texts]


if __name__ == "__main__":
    main()
