"""How fast detection is: match counts, exact p-values, and text to verdict against the bare tokenizer. One core.

Every figure is the median of several rounds; the last one is a ratio of two interleaved in one run.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from corpus import PROMPTS, bench_key
from dgmark import Detector
from dgmark.statistics import MatchNull, phase_counts, residue_counts
from dgmark.watermark import SECRET_BYTES, group_table

ROUNDS = 15


def main() -> None:
    """Print the figures."""
    key = bench_key()
    detector = Detector(key)
    tokenizer = detector.tokenizer
    rng = np.random.default_rng(0)

    prose = tokenizer.encode(" ".join(json.loads(line)["prompt"] for line in PROMPTS.read_text().splitlines()))
    print(f"prose: the benchmark's prompts, {len(prose)} tokens")

    took = rounds(lambda: group_table(b"\0" * SECRET_BYTES, 2, 150_000))
    print(f"group table of 150,000 ids: {1e3 * took:.1f} ms")

    script = "import dgmark; dgmark.detect('Once upon a time', dgmark.WatermarkKey.generate())"
    took = rounds(lambda: subprocess.run([sys.executable, "-c", script], check=True))
    print(f"a process that imports dgmark and detects once: {took:.2f} s")

    lengths = rng.integers(50, 500, 10_000)
    starts = np.cumsum(lengths) - lengths
    flat = np.resize(np.array(prose), int(lengths.sum()))
    took = rounds(lambda: phase_counts(flat, starts, key.tables.table(), 2))
    print(f"match count, ragged batch of 10,000 texts: {len(flat) / took / 1e6:.0f} M tokens/s")

    windows = [np.array(prose[at : at + 256]) for at in range(0, len(prose) - 256, 64)]
    positions = np.arange(256)
    took = rounds(lambda: [MatchNull.of(residue_counts(ids, positions % 2, 2)).tail(150) for ids in windows])
    print(f"exact p-value, n = 256: {1e3 * took / len(windows):.3f} ms")

    took = rounds(lambda: [detector.detect(ids) for ids in windows])
    print(f"ids to verdict, n = 256: {1e3 * took / len(windows):.3f} ms ({len(windows) / took:.0f} texts/s)")

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
    """Print the ratio of two, measured in turn."""
    ratios = [once(ours) / once(bare) for _ in range(ROUNDS)]
    print(f"{name}, n = 256: {median(ratios):.2f} (min {min(ratios):.2f}, max {max(ratios):.2f})")


def once(work: Callable[[], object]) -> float:
    """Seconds of one call."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def rounds(work: Callable[[], object]) -> float:
    """Median seconds of a call, after one to warm up."""
    work()
    return median(once(work) for _ in range(ROUNDS))


if __name__ == "__main__":
    main()
