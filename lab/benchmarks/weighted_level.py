"""How often the count and the weighted test call unmarked text marked: shares of p-values, with binomial limits.

    python lab/benchmarks/weighted_level.py HUMAN OUT [--texts 600] [--keys 200]

HUMAN holds rows of `text`. Texts of 200 tokens or more are read to token 400, once each, by the built-in language model
of the storyteller. Each pair of a text and a key has a key of its own, so that the pairs are independent draws. A
p-value is that of the verdict, for which the whole text and its parts share the rate, or that of the whole text alone.
OUT keeps a row for each round of keys, and a run that was stopped goes on after them. The last output is a table in
Markdown; brackets hold 99.9 % (Clopper and Pearson), and a share whose bracket lies above its level is bold.
"""

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import binomtest

from dgmark import Detector, LanguageModel, WatermarkKey
from dgmark.detection.bigram import BigramTest
from dgmark.detection.p_values import log_tail
from dgmark.detection.reader import ScoredIds
from dgmark.detection.weighted_coins import WeightedCoins
from dgmark.rows.jsonl import read_good_rows
from shared import arguments, print_header, print_made_with, print_row, random_key

LEVELS = (0.1, 0.01, 0.001)
SHORTEST, LONGEST = 200, 400
TESTS = ("count, verdict", "count, whole text", "weighted, verdict", "weighted, whole text")


def scored_texts(human: Path, most: int) -> list[ScoredIds]:
    """The tokens of so many texts, drawn at random, with their surprisal under the built-in model."""
    model = LanguageModel(device="cpu", dtype="fp32")
    reader = Detector(WatermarkKey.generate(subkeys=1), surprisal_model=model).reader
    texts = [row["text"] for row in read_good_rows(str(human))]
    random.Random("level of the weighted test").shuffle(texts)
    scored = list[ScoredIds]()
    for text in texts:
        offsets = reader.tokenizer.encode_with_offsets(text).offsets[:LONGEST]
        if len(scored) < most and len(offsets) >= SHORTEST:
            scored.append(reader.read(text[: offsets[-1][1]]))
    return scored


def p_values_of(key: WatermarkKey, text: ScoredIds, coins: WeightedCoins) -> list[float]:
    """The p-values of `TESTS`."""
    count, weighted = BigramTest(key, ScoredIds(text.ids, text.positions)), BigramTest(key, text)
    matches = weighted.matches(None)
    whole = log_tail(int(matches.sum()), weighted.pairs), coins.log_tail(int(weighted.evidence.values[matches].sum()))
    return [count.p_value(), math.exp(whole[0]), weighted.p_value(), math.exp(whole[1])]


def print_table(rounds: list[dict[str, Any]]) -> None:
    """A line for each test."""
    draws = sum(one["texts"] for one in rounds)
    print(f"{len(rounds)} rounds, {draws:,} pairs of a text and a key\n")
    print_header(["test", *(f"p <= {level:g}" for level in LEVELS)])
    for test, found in zip(TESTS, np.sum([one["found"] for one in rounds], axis=0).tolist(), strict=True):
        cells = [test]
        for level, number in zip(LEVELS, found, strict=True):
            low, high = binomtest(number, draws).proportion_ci(0.999)
            cell = f"{number / draws:.5f} [{low:.5f}, {high:.5f}]"
            cells.append(f"**{cell}**" if low > level else cell)
        print_row(cells)
    print_made_with("bigram")


def main() -> None:
    """Measure, and print the table."""
    parser = arguments()
    parser.add_argument("human", type=Path, help="JSON Lines with text")
    parser.add_argument("out", type=Path, help="JSON Lines that the rounds are kept in")
    parser.add_argument("--texts", type=int, default=600)
    parser.add_argument("--keys", type=int, default=200, help="keys of each text")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    rounds = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    spec = WatermarkKey.generate(rule="bigram", subkeys=1).spec
    texts = scored_texts(asked.human, asked.texts) if len(rounds) < asked.keys else []
    tests = [BigramTest(random_key(spec, 0), text) for text in texts]
    coins = [WeightedCoins(test.evidence.values) for test in tests]
    for number in range(len(rounds), asked.keys):
        keys = (random_key(spec, number * len(texts) + place) for place in range(len(texts)))
        p_values = [p_values_of(*one) for one in zip(keys, texts, coins, strict=True)]
        found = [[sum(p <= level for p in column) for level in LEVELS] for column in zip(*p_values, strict=True)]
        rounds.append({"texts": len(texts), "found": found})
        asked.out.write_text("".join(json.dumps(one) + "\n" for one in rounds))
    print_table(rounds)


if __name__ == "__main__":
    main()
