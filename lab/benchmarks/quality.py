"""Strength, error rates and repetition of texts of 100 held-out prompts, marked and unmarked, sampled and greedy.

Run `python lab/benchmarks/quality.py`, which makes the missing texts first and resumes where it stopped; `--texts-only`
stops there. Marked texts are scored with their key; unmarked ones with many random keys, since a false-positive rate is
a rate over keys.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from dgmark import Detector, WatermarkKey
from dgmark.watermark.groups import SECRET_BYTES
from dgmark_lab.evaluate.diversity import repeated_ngrams
from dgmark_lab.experiments.prompt_sets import BUILTIN_PROMPTS
from keys_and_tables import RUNS, bench_key, print_header, print_row

SAMPLING = {"multinomial": "1.0", "greedy": "0"}
MARKS = ("marked", "unmarked")
NULL_KEYS = 200
RATES = (1e-2, 1e-4)


def main() -> None:
    """Generate the missing texts and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sampling", choices=SAMPLING, action="append", help="only these cells")
    parser.add_argument("--limit", type=int, default=100, help="number of prompts, from the first on")
    parser.add_argument("--texts-only", action="store_true", help="print no table")
    args = parser.parse_args()
    RUNS.mkdir(exist_ok=True)
    cells = [(sampling, mark) for sampling in args.sampling or SAMPLING for mark in MARKS]
    for sampling, mark in cells:
        make_texts(sampling, mark, args.limit)
    if not args.texts_only:
        table(cells)


def texts_of(sampling: str, mark: str) -> Path:
    """Return the file of one cell's texts."""
    return RUNS / f"{sampling}-{mark}.jsonl"


def make_texts(sampling: str, mark: str, limit: int) -> None:
    """Generate the missing texts of a cell."""
    key_file, prompts = RUNS / "key.json", RUNS / f"prompts-{limit}.jsonl"
    if not key_file.exists():
        bench_key().save(key_file)
    prompts.write_text("".join(BUILTIN_PROMPTS.read_text().splitlines(keepends=True)[:limit]))
    command = [sys.executable, "-m", "dgmark", "generate", "--prompts", str(prompts), "--batch-size", "4"]
    command += ["--out", str(texts_of(sampling, mark)), "--temperature", SAMPLING[sampling]]
    command += ["--key", str(key_file)] if mark == "marked" else ["--no-watermark"]
    print(" ".join(command), file=sys.stderr)
    subprocess.run(command, check=True)


def table(cells: Sequence[tuple[str, str]]) -> None:
    """Print the figures of the cells."""
    detector = Detector(bench_key())
    spec, rng = bench_key().spec, np.random.default_rng(0)
    others = [
        Detector(WatermarkKey(spec, "null", rng.bytes(SECRET_BYTES)), tokenizer=detector.tokenizer)
        for _ in range(NULL_KEYS)
    ]
    rates = [f"p <= {rate:g}" for rate in RATES]
    titles = ["sampling", "texts", "tokens", "match ratio", "of ids", "z", *rates, "survive re-tokenization"]
    print_header([*titles, "repeated 4-grams"])
    for sampling, mark in cells:
        rows = [json.loads(line) for line in texts_of(sampling, mark).read_text().splitlines()]
        print_row([f"{sampling}, {mark}", *figures(detector, rows, others if mark == "unmarked" else [detector])])


def figures(detector: Detector, rows: Sequence[dict[str, Any]], scorers: Sequence[Detector]) -> list[str]:
    """Compute the figures of one cell, scored from the texts; p-values are those of all `scorers`."""
    found = detector.detect_many([row["text"] for row in rows])
    by_ids = detector.detect_many([row["token_ids"] for row in rows])
    ids = detector.tokenizer.encode_batch([row["text"] for row in rows])
    p_values = np.array([one.p_value for scorer in scorers for one in scorer.detect_many(ids)])
    hits = [int((p_values <= rate).sum()) for rate in RATES]
    return [
        str(len(rows)),
        f"{fmean(one.num_tokens_scored for one in found):.0f}",
        f"{fmean(one.green_fraction for one in found):.3f}",
        f"{fmean(one.green_fraction for one in by_ids):.3f}",
        f"{median(one.z_score for one in found):.1f}",
        *(f"{count / len(p_values):.3g} ({count}/{len(p_values)})" for count in hits),
        f"{fmean(row['token_ids'] == read for row, read in zip(rows, ids, strict=True)):.0%}",
        f"{fmean(map(repeated_ngrams, ids)):.1%}",
    ]


if __name__ == "__main__":
    main()
