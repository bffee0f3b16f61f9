"""Measure how often simulated marks are found at small rates, how far draws decide, and how exact the null of spans is.

Run `python lab/benchmarks/simulated.py`. Words have a power law, so that a text of 256 tokens has about 180 distinct
ones, and match with a chosen probability; tokens are deleted or replaced at random. Every text has its own key.
"""

from collections.abc import Iterator
from functools import partial
from unittest.mock import patch

import numpy as np

from dgmark.detection import edit_test
from dgmark.detection.detector import KeyTest
from dgmark.detection.edit_test import aligned_test
from dgmark.detection.importance_sampling import DeterministicDraws
from dgmark.detection.reader import ScoredIds
from dgmark.detection.spans import find_spans
from dgmark.watermark.key import WatermarkKey
from keys_and_tables import bench_key, edited, print_header, print_row, random_key, simulated

TEXTS = 150
RATES = (1e-2, 1e-4, 1e-5, 1e-6, 1e-8)
# tokens, match rate, share deleted, share replaced
CELLS = (
    (200, 0.74, 0.05, 0.0),
    (256, 0.74, 0.1, 0.0),
    (400, 0.74, 0.1, 0.0),
    (400, 0.74, 0.05, 0.0),
    (256, 0.74, 0.0, 0.4),
    (100, 0.94, 0.1, 0.0),
    (110, 0.74, 0.0, 0.0),
    (28, 0.94, 0.0, 0.0),
)
UNMARKED = 300
SETS_OF_DRAWS = 8


def texts(tokens: int, match_rate: float, deleted: float, replaced: float) -> Iterator[tuple[WatermarkKey, ScoredIds]]:
    """Yield each text of one cell, with its key."""
    spec = bench_key().spec
    for number in range(TEXTS):
        rng = np.random.default_rng([3, number, tokens])
        key = random_key(spec, number)
        ids = edited(simulated(key, tokens, match_rate, rng), deleted, replaced, rng)
        yield key, ScoredIds(ids, np.arange(len(ids)))


def draws() -> None:
    """Print how much the p-values of the texts with deletions depend on which keys are drawn."""
    cut = [text for cell in CELLS[:4] for text in texts(*cell)]
    sets = []
    for number in range(SETS_OF_DRAWS):
        with patch.object(edit_test, "DeterministicDraws", partial(DeterministicDraws, secret=bytes([number]))):
            sets.append([aligned_test(key.tables, text.ids, text.positions, "any")[0] for key, text in cut])
    logs = np.log10(sets)
    median, share = np.median(logs, axis=0), (logs <= -4).mean(axis=0)
    differ = 2 * share * (1 - share) * SETS_OF_DRAWS / (SETS_OF_DRAWS - 1)
    print(
        f"\n{len(cut)} texts, {SETS_OF_DRAWS} sets of draws: log10 p has a deviation of {logs.std(axis=0).mean():.3f}"
    )
    print(f"two sets differ in the verdict at 1e-4 for {differ.mean():.3f} of the texts")
    for factor in (1.5, 10):
        near = np.abs(median + 4) < np.log10(factor)
        print(f"... of those with p within a factor of {factor:g}: {differ[near].mean():.3f} of {near.sum()}")


def main() -> None:
    """Print the tables."""
    print_header(["tokens", "match rate", "deleted", "replaced", *(f"{rate:g}" for rate in RATES)])
    for cell in CELLS:
        p = np.array([KeyTest(key).score(text).p_value for key, text in texts(*cell)])
        print_row([*(f"{value:g}" for value in cell), *(f"{np.mean(p <= rate):.2f}" for rate in RATES)])
    draws()
    reported = {0.3: 0, 0.1: 0, 0.02: 0}
    spec = bench_key().spec
    for number in range(UNMARKED):
        ids = simulated(random_key(spec, number), 256, 0.5, np.random.default_rng([7, number]))
        found_spans = find_spans(random_key(spec, 10_000 + number), ScoredIds(ids, np.arange(256)), 0.3)
        best = min((span.p_value for _, span in found_spans), default=1.0)
        for rate in reported:
            reported[rate] += best <= rate
    shares = ", ".join(f"{count / UNMARKED:.3f} at {rate:g}" for rate, count in reported.items())
    print(f"\nunmarked texts with any span, of {UNMARKED}: {shares}")


if __name__ == "__main__":
    main()
