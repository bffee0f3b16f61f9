"""Measure how often a marked span in human text is found, and how exactly.

Run `python lab/benchmarks/spans.py MARKED.jsonl HUMAN.jsonl`.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.detection.reader import ScoredIds
from dgmark.detection.spans import find_spans
from dgmark.watermark.key import WatermarkKey
from keys_and_tables import RUNS, print_header, print_row

LENGTH = 512
TRIALS = 30


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("marked", type=Path)
    parser.add_argument("human", type=Path, help="JSON Lines of unmarked text")
    parser.add_argument("--key", type=Path, default=RUNS / "key.json")
    args = parser.parse_args()
    key = WatermarkKey.load(args.key)
    marked = [np.array(json.loads(line)["token_ids"]) for line in args.marked.read_bytes().splitlines()]
    rows = [json.loads(line) for line in args.human.read_bytes().splitlines()[:3000:60]]
    human = [np.array(ids[:LENGTH]) for ids in load_tokenizer().encode_batch([row["text"] for row in rows])]
    human = [ids for ids in human if len(ids) == LENGTH]
    print(f"{len(human)} human passages of {LENGTH} tokens, {TRIALS} trials a cell\n")
    print_header(["rate", "marked share", "found", "overlap", "spans without marked text"])
    for fpr in (1e-2, 1e-4):
        rng = np.random.default_rng(0)
        for share in (0.1, 0.25, 0.5):
            cells = [
                trial(key, human[n % len(human)], marked[n], int(share * LENGTH), fpr, rng)
                for n in range(min(TRIALS, len(marked)))
            ]
            found, overlap, wrong = np.array(cells).T
            print_row([f"{fpr:g}", share, f"{found.mean():.2f}", f"{overlap.mean():.2f}", int(wrong.sum())])


def trial(
    key: WatermarkKey, host: np.ndarray, marked: np.ndarray, length: int, fpr: float, rng: np.random.Generator
) -> tuple[bool, float, int]:
    """Return whether a span was found, its overlap with the truth, and how many spans hold no marked text."""
    length = min(length, len(marked))
    at = int(rng.integers(0, len(host) - length))
    ids = host.copy()
    ids[at : at + length] = marked[:length]
    truth, covered, wrong = np.zeros(len(ids), dtype=bool), np.zeros(len(ids), dtype=bool), 0
    truth[at : at + length] = True
    for _, span in find_spans(key, ScoredIds(ids, np.arange(len(ids))), fpr):
        covered[span.first : span.last] = True
        wrong += not truth[span.first : span.last].any()
    return bool(covered.any()), float((covered & truth).sum() / (covered | truth).sum()), wrong


if __name__ == "__main__":
    main()
