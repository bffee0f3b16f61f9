"""Measure how often simulated marks are found at small rates.

Run `python lab/benchmarks/simulated.py`. Words have a power law, so that a text of 256 tokens has about 180 distinct
ones, and match with a chosen probability; tokens are deleted or replaced at random. Every text has its own key.
"""

from collections.abc import Iterator

import numpy as np

from dgmark.detection.detector import KeyTest
from dgmark.detection.reader import ScoredIds
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


def texts(tokens: int, match_rate: float, deleted: float, replaced: float) -> Iterator[tuple[WatermarkKey, ScoredIds]]:
    """Yield each text of one cell, with its key."""
    spec = bench_key().spec
    for number in range(TEXTS):
        rng = np.random.default_rng([3, number, tokens])
        key = random_key(spec, number)
        ids = edited(simulated(key, tokens, match_rate, rng), deleted, replaced, rng)
        yield key, ScoredIds(ids, np.arange(len(ids)))


def main() -> None:
    """Print the table."""
    print_header(["tokens", "match rate", "deleted", "replaced", *(f"{rate:g}" for rate in RATES)])
    for cell in CELLS:
        p = np.array([KeyTest(key).score(text).p_value for key, text in texts(*cell)])
        print_row([*(f"{value:g}" for value in cell), *(f"{np.mean(p <= rate):.2f}" for rate in RATES)])


if __name__ == "__main__":
    main()
