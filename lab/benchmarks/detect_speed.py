"""Measure the speed of detection: exact p-values, and text to verdict against the bare tokenizer. One core.

Every figure is the median of several rounds; the last ones are ratios of two interleaved measurements.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

import numpy as np

from dgmark import Detector, Keyring
from dgmark.detection.match_null import MatchNull, residue_counts
from dgmark.watermark.groups import group_table
from dgmark.watermark.key_file import SECRET_BYTES
from dgmark_lab.experiments.prompt_sets import builtin_prompts
from keys_and_tables import bench_key, random_key

ROUNDS = 15


def main() -> None:
    """Print the figures."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None).parse_args()
    key = bench_key()
    detector = Detector(key)
    tokenizer = detector.tokenizer

    prose = tokenizer.encode(" ".join(builtin_prompts()))
    print(f"prose: the benchmark's prompts, {len(prose)} tokens")

    took = rounds(lambda: group_table(b"\0" * SECRET_BYTES, 2, 150_000))
    print(f"group table of 150,000 ids: {1e3 * took:.1f} ms")

    script = "import dgmark; dgmark.detect('Once upon a time', dgmark.WatermarkKey.generate())"
    took = rounds(lambda: subprocess.run([sys.executable, "-c", script], check=True))
    print(f"a process that imports dgmark and detects once: {took:.2f} s")

    windows = [np.array(prose[at : at + 256]) for at in range(0, len(prose) - 256, 64)]
    positions = np.arange(256)
    took = rounds(lambda: [MatchNull.of(residue_counts(ids, positions % 2, 2)).tail(150) for ids in windows])
    print(f"exact p-value, n = 256: {1e3 * took / len(windows):.3f} ms")

    took = rounds(lambda: [detector.detect(ids) for ids in windows])
    print(f"ids to verdict, i mod 2, n = 256: {1e3 * took / len(windows):.3f} ms ({len(windows) / took:.0f} texts/s)")
    coded = Detector(random_key(replace(key.tables.spec, code_length=16), 0))
    took = rounds(lambda: [coded.detect(ids) for ids in windows])
    print(f"ids to verdict, position code 16, n = 256: {1e3 * took / len(windows):.3f} ms")

    ring = Keyring([random_key(key.spec, number) for number in range(1000)])
    took = median(once(lambda: ring.detect(windows[0])) for _ in range(3))
    print(f"1,000 keys, n = 256: {took:.2f} s")
    for name, spec in (
        ("position code 64", replace(key.tables.spec, code_length=64)),
        ("rotation 64", replace(key.tables.spec, rotation=64)),
    ):
        ring = Keyring([random_key(spec, number) for number in range(100)])
        took = median(once(lambda: ring.detect(windows[0])) for _ in range(3))  # noqa: B023
        print(f"100 keys, {name}, n = 256: {took:.2f} s")

    million = np.resize(np.array(prose), 1_000_000)
    took = median(once(lambda: detector.detect(million)) for _ in range(3))
    print(f"a text of 1,000,000 tokens: {took:.2f} s")

    texts = [tokenizer.decode(ids.tolist()) for ids in windows]
    fast = tokenizer.backend.encode_batch_fast
    ratio(
        "text to verdict / encode",
        lambda: [detector.detect(text) for text in texts],
        lambda: [tokenizer.backend.encode(text) for text in texts],
    )
    ratio(
        "text to verdict / encode_batch_fast of one",
        lambda: [detector.detect(text) for text in texts],
        lambda: [fast([text]) for text in texts],
    )
    ratio(
        "texts to verdicts / encode_batch of all",
        lambda: detector.detect_many(texts),
        lambda: tokenizer.backend.encode_batch(texts),
    )


def ratio(name: str, ours: Callable[[], object], bare: Callable[[], object]) -> None:
    """Print the ratio of two times, measured in turn."""
    ratios = [once(ours) / once(bare) for _ in range(ROUNDS)]
    print(f"{name}, n = 256: {median(ratios):.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})")


def once(work: Callable[[], object]) -> float:
    """Measure the seconds of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def rounds(work: Callable[[], object]) -> float:
    """Measure the median seconds of a call, after a warm-up call."""
    work()
    return median(once(work) for _ in range(ROUNDS))


if __name__ == "__main__":
    main()
