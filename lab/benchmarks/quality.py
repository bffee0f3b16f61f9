"""Measure strength, error rates and repetition of the texts that `corpus.py` wrote, and print the README's table.

Marked texts are scored with their key; unmarked ones with many random keys, since a false-positive rate is a rate over
keys.
"""

import json
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

import numpy as np

from corpus import MARKS, RUNS, SAMPLING, bench_key, corpus_file
from dgmark import Detector, WatermarkKey
from dgmark.watermark.groups import SECRET_BYTES
from dgmark_lab.evaluate.diversity import repeated_ngrams

NULL_KEYS = 200
RATES = (1e-2, 1e-4)


def main() -> None:
    """Print the table and write its figures to runs/quality.json."""
    detector = Detector(bench_key(), mode="intact")
    rng = np.random.default_rng(0)
    others = [
        Detector(
            WatermarkKey(bench_key().spec, "null", rng.bytes(SECRET_BYTES)), tokenizer=detector.tokenizer, mode="intact"
        )
        for _ in range(NULL_KEYS)
    ]
    figures = {}
    for sampling in SAMPLING:
        for mark in MARKS:
            rows = [json.loads(line) for line in corpus_file(sampling, mark).read_text().splitlines()]
            null = []
            if mark == "unmarked":
                read_back = detector.tokenizer.encode_batch([row["text"] for row in rows])
                null = [found.p_value for other in others for found in other.detect_many(read_back)]
            figures[f"{sampling}, {mark}"] = cell(detector, rows, null)
    (RUNS / "quality.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))


def cell(detector: Detector, rows: Sequence[dict[str, Any]], null: Sequence[float]) -> dict[str, float]:
    """Compute the figures of one cell, scored from the texts.

    `hits` counts p-values at or below each rate: those of the texts with their own key, or `null`, those of unmarked
    texts with random keys. `read_back` is the share of texts that the tokenizer encodes to their own ids.
    """
    found = detector.detect_many([row["text"] for row in rows])
    by_ids = detector.detect_many([row["token_ids"] for row in rows])
    ids = detector.tokenizer.encode_batch([row["text"] for row in rows])
    p_values = np.array(null or [one.p_value for one in found])
    return {
        "texts": len(rows),
        "tokens": fmean(one.num_tokens_scored for one in found),
        "match_ratio": fmean(one.green_fraction for one in found),
        "match_ratio_of_ids": fmean(one.green_fraction for one in by_ids),
        "median_z": median(one.z_score for one in found),
        "trials": len(p_values),
        **{f"hits_{rate:g}": int((p_values <= rate).sum()) for rate in RATES},
        "read_back": fmean(row["token_ids"] == read for row, read in zip(rows, ids, strict=True)),
        "repeated_4_grams": fmean(map(repeated_ngrams, ids)),
    }


def table(figures: dict[str, dict[str, float]]) -> str:
    """Format the figures as Markdown."""
    lines = [
        "| sampling | texts | tokens | match ratio | of ids | z | p <= 1e-2 | p <= 1e-4 | read back | 4-grams again |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in figures.items():
        hits = (
            f"{row[f'hits_{rate:g}'] / row['trials']:.3g} ({row[f'hits_{rate:g}']}/{row['trials']})" for rate in RATES
        )
        lines.append(
            f"| {name} | {row['texts']} | {row['tokens']:.0f} | {row['match_ratio']:.3f} "
            f"| {row['match_ratio_of_ids']:.3f} | {row['median_z']:.1f} | {' | '.join(hits)} "
            f"| {row['read_back']:.0%} | {row['repeated_4_grams']:.1%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
