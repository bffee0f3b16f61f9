"""How far p-values of the weighted test differ if the language model computes in bfloat16 instead of float32.

    python lab/benchmarks/weighted_formats.py FILE KEY [--model narrator-base] [--texts 40]

FILE holds rows of `dgmark generate --json`, KEY is their key. Both run on this CPU. Prints of all pairs how many
weights move, and how far, and of the p-values the changes in digits and the verdicts that change at the default rate.
"""

import math
from pathlib import Path

import numpy as np
import torch

from dgmark import Detector, LanguageModel, WatermarkKey
from dgmark.detection.statistics.bigram import BigramTest
from dgmark.rows.jsonl import read_good_rows
from shared import arguments


def main() -> None:
    """Measure, and print."""
    parser = arguments()
    parser.add_argument("file", type=Path)
    parser.add_argument("key", type=Path)
    parser.add_argument("--model", default="narrator-base")
    parser.add_argument("--texts", type=int, default=40)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    key = WatermarkKey.load(asked.key)
    texts = [row["text"] for row in read_good_rows(str(asked.file))][: asked.texts]
    weights, digits, verdicts = [], [], []
    for dtype in ("fp32", "bf16"):
        detector = Detector(key, surprisal_model=LanguageModel(asked.model, device="cpu", dtype=dtype))
        own = [BigramTest(key, detector.reader.read(text)).evidence.values for text in texts]
        found = [detector.detect(text) for text in texts]
        weights.append(np.concatenate([each for each in own if each is not None]))
        digits.append(np.array([-math.log10(one.p_value) for one in found]))
        verdicts.append([one.verdict for one in found])
    moved, change = np.abs(weights[1] - weights[0]), np.abs(digits[1] - digits[0])
    print(f"{len(texts)} texts, {len(moved)} pairs, {asked.model}")
    print(f"weights that move: {np.mean(moved > 0):.4f}; by more than 1: {np.mean(moved > 1):.5f}; most: {moved.max()}")
    print(f"digits: median {np.median(digits[0]):.2f}, change: median {np.median(change):.3f}, most {change.max():.2f}")
    print(f"verdicts that change: {sum(one != other for one, other in zip(*verdicts, strict=True))}")


if __name__ == "__main__":
    main()
