"""Measure how often marks of real texts would be found under keys of several N, with and without edits.

Run `python benchmarks/subkey_models.py KEY.json MARKED.jsonl`, with rows of `dgmark generate` and their key, which has
no sub-keys. The p-value of a text is multiplied by N: this is what the scan of N sub-keys says if it ranks the right
one first, as it does whenever that p-value passes (`subkeys.py payload`). Texts are read back and edited as token ids.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from jaxtyping import Int

from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.detection.detector import DEFAULT_FPR, KeyTest
from dgmark.detection.reader import ScoredIds
from dgmark.watermark.key import WatermarkKey
from stealing import header, table_row

SUBKEYS, LENGTHS = (1, 16, 256, 1024, 4096, 65_536), (64, 100, 128, 200, 256)
# share of the tokens deleted, share replaced
EDITS = ((0.0, 0.0), (0.1, 0.0), (0.0, 0.2))
Ids = Int[np.ndarray, " n"]


def main(key: WatermarkKey, rows: list[dict[str, str]]) -> None:
    """Print the table."""
    tokenizer = load_tokenizer(key.spec.tokenizer)
    texts = [np.array(tokenizer.encode(row["text"])) for row in rows]
    header("edits", ["tokens", "texts", "matched", *(f"N = {number:,}" for number in SUBKEYS)])
    for deleted, replaced in EDITS:
        edit = f"{deleted:.0%} deleted" if deleted else f"{replaced:.0%} replaced" if replaced else "none"
        for tokens in LENGTHS:
            scored = [ScoredIds(ids, np.arange(len(ids))) for ids in edited(texts, tokens, deleted, replaced)]
            if scored:
                found = [KeyTest(key).score(each) for each in scored]
                p = np.array([each.p_value for each in found])
                matched = np.mean([each.green_fraction for each in found])
                shares = [f"{np.mean(p * number <= DEFAULT_FPR):.2f}" for number in SUBKEYS]
                print(table_row(edit, [f"{tokens}", f"{len(scored)}", f"{matched:.2f}", *shares]), flush=True)


def edited(texts: list[Ids], tokens: int, deleted: float, replaced: float) -> Iterator[Ids]:
    """The first tokens of each text that has so many, or few less, edited at random."""
    words = np.concatenate(texts)
    for number, ids in enumerate(texts):
        if len(ids) >= 0.95 * tokens:
            rng, some = np.random.default_rng([27, number, tokens]), ids[:tokens]
            some = np.where(rng.random(len(some)) < replaced, rng.choice(words, len(some)), some)
            yield some[rng.random(len(some)) >= deleted]


if __name__ == "__main__":
    marked = Path(sys.argv[2]).read_bytes().splitlines()
    main(WatermarkKey.load(sys.argv[1]), [json.loads(line) for line in marked])
