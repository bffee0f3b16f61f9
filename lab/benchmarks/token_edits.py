"""Edits of committed tokens: how many there are, and what they leave of the mark, if they may lose matches and if not.

Run `python lab/benchmarks/token_edits.py`. The storyteller writes after the same prompts and seeds in every row; four
keys mark a quarter of the texts each. Scored from the text alone, with the detector's defaults.
"""

import argparse
from contextlib import nullcontext
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from dgmark import Detector, WatermarkKey, load_model
from dgmark.decode import Generation, generate
from dgmark.models.loaded import LoadedModel
from dgmark.watermark.spec import Rule
from dgmark_lab.evaluate.judge import Judge, load_judge
from dgmark_lab.evaluate.likelihood import token_nats
from dgmark_lab.experiments.estimates import percent, perplexity
from dgmark_lab.experiments.tables import with_interval
from keys_and_tables import builtin_prompts, print_header, print_made_with, print_row, random_key

RATE = 1e-4
# as diverse as unmarked text at 1, and LLaDA 2.1's own
CELLS: list[tuple[Rule, float]] = [("bigram", 0.5), ("position", 0.65), ("position", 0.0)]
TITLES = ["rule", "T", "edit threshold", "edits", "edits in 100 tokens", "matching", f"found at {RATE:g}", "median p"]


def main() -> None:
    """Print a row for each rule, temperature and threshold."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--texts", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--thresholds", type=float, nargs="*", default=[0.9, 0.5])
    args = parser.parse_args()
    print_header([*TITLES, "perplexity"])
    for rule, temperature in CELLS:
        keys = [random_key(WatermarkKey.generate(rule=rule, subkeys=1).spec, number) for number in range(4)]
        for threshold in [None, *args.thresholds]:
            for lossless in (True, False)[: 1 if threshold is None else 2]:
                settings = {"temperature": temperature, "length": args.length, "edit_threshold": threshold}
                lossy = patch("dgmark.decode.selection.lossless_edits", lambda edits, *_: edits)
                with nullcontext() if lossless else lossy:
                    made = [_texts(key, number, args.texts // 4, **settings) for number, key in enumerate(keys)]
                allowed = "" if threshold is None else "lose no match" if lossless else "any"
                print_row([rule, temperature, threshold or "none", allowed, *_figures(keys, made)])
    print_made_with("decoding", *(rule for rule, _ in CELLS), "storyteller", "judge")


@cache
def _models() -> tuple[LoadedModel, Judge]:
    return load_model(), load_judge()


def _texts(key: WatermarkKey, number: int, count: int, **settings: Any) -> list[Generation]:
    prompts = builtin_prompts()[count * number :][:count]
    return generate(_models()[0], prompts, key=key, seed=1000 * number, cache="dual", pad=True, **settings)


def _figures(keys: list[WatermarkKey], made: list[list[Generation]]) -> list[str]:
    texts = [one for of_key in made for one in of_key]
    commits, tokens = (sum(len(kind(one.trace.position)) for one in texts) for kind in (list, set))
    found = [Detector(key, fpr=RATE).detect(one.text) for key, of_key in zip(keys, made, strict=True) for one in of_key]
    p_values = np.array([one.p_value for one in found])
    nats = token_nats(_models()[1], [one.text for one in texts], [str(one.prompt) for one in texts])
    ppl = perplexity(np.array([one.sum() for one in nats]), np.array([float(len(one)) for one in nats]))
    return [
        f"{100 * (commits - tokens) / tokens:.1f}",
        f"{np.mean([one.green_fraction for one in found]):.3f}",
        with_interval(percent(p_values <= RATE), 0),
        f"{np.median(p_values):.0e}",
        with_interval(ppl, 1),
    ]


if __name__ == "__main__":
    main()
