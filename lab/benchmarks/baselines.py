"""Measure the baselines: false alarms on human text by baseline, and the cost that a baseline adds to a step.

Run `python lab/benchmarks/baselines.py HUMAN.jsonl` with rows of `id` and `text`. Each text (its first 256 tokens) has
its own key, so the pairs are independent. Costs are CPU seconds on one thread, for a step of 8 rows and a block of 32
in which every other position is committed. The tables are printed as Markdown.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.decode import View
from dgmark.models.toy import ToyDenoiser
from dgmark.rows.jsonl import BadRow, read_rows
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import PositionSpec
from dgmark_lab.baselines import baseline
from keys_and_tables import bench_key, print_header, print_made_with, print_row, random_key

ALPHAS = (0.1, 0.01, 0.001)
TOKENS, MIN_TOKENS = 256, 50
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "kgw": ("kgw", {}),
    "unigram": ("unigram", {}),
    "pattern-mark": ("pattern-mark", {}),
    "pattern-mark, m = 4": ("pattern-mark", {"pattern_length": 4}),
    "gloaguen": ("gloaguen", {}),
    "gloaguen, offsets -1,1": ("gloaguen", {"offsets": (-1, 1)}),
    "dmark": ("dmark", {}),
    "lr-dwm": ("lr-dwm", {}),
    "cdmark": ("cdmark", {}),
    "gumbel": ("gumbel", {}),
}


def human(path: Path, most: int) -> list[np.ndarray]:
    """Read the token ids of human texts, cut to one length; short ones are left out."""
    tokenizer = load_tokenizer()
    texts: list[np.ndarray] = []
    for row in read_rows(str(path)):
        if isinstance(row, BadRow) or len(texts) == most:
            continue
        ids = np.array(tokenizer.encode(row["text"][: 8 * TOKENS]), dtype=np.int64)[:TOKENS]
        if len(ids) >= MIN_TOKENS:
            texts.append(ids)
    return texts


def level(texts: list[np.ndarray]) -> None:
    """Print the share of p-values at or below each alpha, conditional and published, and the cost of a detection."""
    special, spec = np.array(sorted(load_tokenizer().special_ids)), bench_key().spec
    print(f"{len(texts)} human texts of {MIN_TOKENS} to {TOKENS} tokens, each with its own key\n")
    print_header(["baseline", *(f"{kind} <= {a:g}" for kind in ("p", "published") for a in ALPHAS), "ms"])
    for form, (name, options) in FORMS.items():
        made, p_values, begin = baseline(name, **options), [], time.process_time()
        for number, ids in enumerate(texts):
            positions = (~np.isin(ids, special)).nonzero()[0]
            score = made.score(random_key(spec, number), ids[positions], positions, 1e-3)
            p_values.append((score.p_value, score.p_published))
        cost = 1000 * (time.process_time() - begin) / len(texts)
        shares = [f"{np.mean(np.array(p_values)[:, column] <= a):.4f}" for column in (0, 1) for a in ALPHAS]
        print_row([form, *shares, f"{cost:.2f}"])


def costs(vocab: int) -> None:
    """Print the cost that each baseline adds to a step for this vocabulary."""
    model = ToyDenoiser(words=vocab - 2, padding=0)
    spec = PositionSpec(table_size=vocab, tokenizer="toy", tokenizer_fingerprint="0" * 16)
    key = WatermarkKey(spec=spec, key_id="bench", secret=bytes(32))
    dice = torch.Generator().manual_seed(0)
    logits = torch.randn(8, 32, vocab, generator=dice) * 4
    print(f"\nVocabulary {vocab:,}: ms a step beside the forward\n")
    print_header(["baseline", "ms"])
    for form, (name, options) in FORMS.items():
        steering = baseline(name, **options).steering(key, model)
        taken = []
        for _ in range(6):  # a step needs nearly the same rows as the last
            ids = torch.randint(2, vocab, (8, 64), generator=dice)
            ids[:, 17:48:2] = model.mask_id
            view = View(logits, ids, 16, ids[:, 16:48] == 0, torch.arange(32), 0, torch.tensor([0]), 1.0)
            begin = time.process_time()
            if steering.bias is not None:
                steering.bias(view)
            if steering.noise is not None:
                steering.noise(view.positions)
            taken.append(1000 * (time.process_time() - begin))
        print_row([form, f"{np.median(taken):.1f}"])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("human", type=Path)
    parser.add_argument("--texts", type=int, default=2000)
    args = parser.parse_args()
    torch.set_num_threads(1)
    level(human(args.human, args.texts))
    for vocab in (8192, 126_464):
        costs(vocab)
    print_made_with(*(name for name, _ in FORMS.values()))


if __name__ == "__main__":
    main()
