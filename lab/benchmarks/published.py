"""What publishing does to a mark: digits of evidence and texts that are found, as written and after each way.

    python lab/benchmarks/published.py --key KEY [KEY2] --texts FILE [FILE2] [--surprisal-model narrator-base]

FILE holds rows of `dgmark generate --out`, which were marked with KEY. Of two files the rows of one id are compared.
Digits are -log10 of the p-value under the sub-key that marked the text; found is the verdict of the whole key.
"""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dgmark import Detector, LanguageModel, WatermarkKey, load_tokenizer
from dgmark_lab.attacks import attack
from dgmark_lab.attacks.published import WAYS
from dgmark_lab.evaluate.estimates import mean
from shared import arguments, print_header, print_row

AS_WRITTEN = "as written"
Row = dict[str, Any]


def main() -> None:
    """Score, and print a row for each way."""
    parser = arguments()
    parser.add_argument("--key", type=Path, nargs="+", required=True)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--surprisal-model")
    parser.add_argument("--limit", type=int, default=48)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    keys = [WatermarkKey.load(path) for path in asked.key]
    files = [{row["id"]: row for row in map(json.loads, path.read_text().splitlines())} for path in asked.texts]
    ids = [one for one in files[0] if all(one in rows for rows in files)][: asked.limit]
    model = None if asked.surprisal_model is None else LanguageModel(asked.surprisal_model, device="cpu")
    paired = ("difference",) * (len(files) == 2)
    print(f"{len(ids)} texts of {', '.join(path.stem for path in asked.texts)}\n")
    print_header(["", *(f"{path.stem}: {what}" for path in asked.texts for what in ("digits", "found")), *paired])
    for way in (AS_WRITTEN, *WAYS):
        scored = [_scored(key, [rows[one] for one in ids], way, model) for key, rows in zip(keys, files, strict=True)]
        cells = [cell for digits, found in scored for cell in (_interval(digits), f"{np.mean(found):.2f}")]
        differences = [_interval(scored[1][0] - scored[0][0])] if paired else []
        print_row([way, *cells, *differences])


def _scored(key: WatermarkKey, rows: list[Row], way: str, model: LanguageModel | None) -> tuple[Any, Any]:
    """The digits of each text, and whether it is found."""
    change = None if way == AS_WRITTEN else attack("published", way=way)
    texts = [row["text"] if change is None else change(row["text"], np.random.default_rng(0)) for row in rows]
    tokenizer = load_tokenizer(key.spec.tokenizer)
    found = Detector(key, tokenizer=tokenizer, surprisal_model=model).detect_many(texts)
    digits = []
    for row, text in zip(rows, texts, strict=True):
        own = key if row.get("subkey") is None else key.subkey(row["subkey"])
        detection = Detector(own, tokenizer=tokenizer, surprisal_model=model).detect(text)
        digits.append(-math.log10(detection.p_value))
    return np.array(digits), np.array([one.verdict == "watermarked" for one in found])


def _interval(values: Any) -> str:
    estimate = mean(values)
    return f"{estimate.value:.1f} ({estimate.low:.1f} to {estimate.high:.1f})"


if __name__ == "__main__":
    main()
