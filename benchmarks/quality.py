"""Strength, error rates and repetition of the corpus that `corpus.py` wrote; prints the README's table.

Marked texts are scored with the key they were marked with; unmarked ones with many random keys, since a false-positive
rate is a rate over keys.
"""

import json
from collections.abc import Sequence
from statistics import fmean, median

import numpy as np

from corpus import RUNS, SAMPLING, bench_key, corpus_file
from dgmark import Detection, Detector, WatermarkKey
from dgmark.watermark import SECRET_BYTES

NULL_KEYS = 200
RATES = (1e-2, 1e-4)


def main() -> None:
    """Print the table and write its figures to runs/quality.json."""
    detector = Detector(bench_key())
    rng = np.random.default_rng(0)
    others = [
        Detector(WatermarkKey(bench_key().spec, "null", rng.bytes(SECRET_BYTES)), tokenizer=detector.tokenizer)
        for _ in range(NULL_KEYS)
    ]
    figures = {}
    for sampling in SAMPLING:
        for mark in ("marked", "unmarked"):
            texts = [
                row["text"]
                for row in map(json.loads, corpus_file(sampling, mark).read_text().splitlines())
                if "text" in row
            ]
            found = detector.detect_many(texts)
            ids = [detector.tokenizer.encode(text) for text in texts]
            null = [d.p_value for other in others for d in other.detect_many(ids)] if mark == "unmarked" else []
            figures[f"{sampling}, {mark}"] = cell(found, ids, null)
    (RUNS / "quality.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))


def cell(found: Sequence[Detection], ids: Sequence[Sequence[int]], null: Sequence[float]) -> dict[str, float]:
    """Figures of one cell; `hit` is the TPR of marked texts, or the FPR of unmarked ones over random keys."""
    p_values = np.array(null or [d.p_value for d in found])
    return {
        "texts": len(found),
        "tokens": fmean(d.num_tokens_scored for d in found),
        "match_ratio": fmean(d.green_fraction for d in found),
        "median_z": median(d.z_score for d in found),
        **{f"hit_{rate:g}": float((p_values <= rate).mean()) for rate in RATES},
        "trials": len(p_values),
        "repeated_4_grams": fmean(repeated(text, 4) for text in ids),
    }


def repeated(ids: Sequence[int], n: int) -> float:
    """Share of a text's n-grams that stood in it before."""
    grams = [tuple(ids[i : i + n]) for i in range(len(ids) - n + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def table(figures: dict[str, dict[str, float]]) -> str:
    """The figures as Markdown."""
    lines = [
        "| sampling | texts | tokens | match ratio | median z | p <= 1e-2 | p <= 1e-4 | repeated 4-grams |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in figures.items():
        lines.append(
            f"| {name} | {row['texts']} | {row['tokens']:.0f} | {row['match_ratio']:.3f} | {row['median_z']:.1f} "
            f"| {row['hit_0.01']:.4g} | {row['hit_0.0001']:.4g} | {row['repeated_4_grams']:.1%} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
