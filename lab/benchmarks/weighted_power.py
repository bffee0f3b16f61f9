"""What the weighted test finds beside the count, in marked texts as written and with tokens edited at random.

    python lab/benchmarks/weighted_power.py FILE KEY OUT [--models narrator-base builtin] [--edits "as written"]
        [--texts 24] [--tokens 64] [--oracle narrator]

FILE holds rows of `dgmark generate --json`, KEY is their key, which has sub-keys. Each text is tested with all sub-keys
and with its own as the only key, as a count and with the surprisal of each language model. With the model that wrote
the texts, --oracle adds what a detector would find that knew the distribution of each draw, in texts as written
(`oracle.py`). OUT keeps a row for each text and edit, and a run that was stopped goes on after them. The last output
is a table in Markdown; brackets hold 95 % of the share of texts found at p <= 1e-4 (Wilson), and of its difference from
the share that the count finds of the same texts with all sub-keys (Agresti and Min, 2005).
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import binomtest

from dgmark import Detector, Tokenizer, WatermarkKey, load_model
from dgmark.models.language_model import LanguageModel
from dgmark.models.loaded import LoadedModel
from oracle import oracle_digits
from shared import print_header, print_row

FPR = 1e-4
SHORTEST = 100
EDITS = ("as written", "10 % deleted", "20 % deleted", "20 % inserted", "20 % replaced")
COLUMNS = ("texts", "test", "found, all sub-keys", "less the count's", "found, one key", "median digits, one key")
# ids of words, as the built-in vocabularies order them; random edits draw from these
WORDS = (300, 8000)


class Remembering:
    """A language model that reads each text once, though two detectors ask; of the last texts asked for."""

    def __init__(self, model: LanguageModel) -> None:
        self.model, self.name, self.fingerprint = model, model.name, model.fingerprint
        self._read: dict[str, Any] = {}

    def surprisals(self, texts: Sequence[str]) -> list[Any]:
        """See `LanguageModel.surprisals`."""
        self._read = {text: self._read.get(text) or self.model.surprisals([text])[0] for text in texts}
        return [self._read[text] for text in texts]


def edited(ids: NDArray[np.int64], how: str, dice: np.random.Generator) -> NDArray[np.int64]:
    """The ids with some deleted, inserted or replaced at random."""
    if how == EDITS[0]:
        return ids
    share, _, kind = how.partition(" % ")
    hit = dice.random(len(ids)) < int(share) / 100
    drawn = dice.integers(*WORDS, len(ids))
    if kind == "deleted":
        return ids[~hit]
    if kind == "inserted":
        return np.insert(ids, np.flatnonzero(hit), drawn[hit])
    return np.where(hit, drawn, ids)


def measured(
    row: dict[str, Any],
    key: WatermarkKey,
    tokenizer: Tokenizer,
    models: Sequence[Any],
    edits: Sequence[str],
    writer: LoadedModel | None = None,
    tokens: int | None = None,
) -> Iterator[Any]:
    """For each edit of a text, digits of the p-value by test, with all sub-keys and with one key."""
    for how in edits:
        dice = np.random.default_rng([int(row["subkey"]), EDITS.index(how), len(row["token_ids"])])
        text = tokenizer.decode(edited(np.array(row["token_ids"][:tokens]), how, dice).tolist())
        digits = {}
        for model in models:
            settings = {} if model is None else {"surprisal_model": model}
            for name, own in (("all", key), ("one", key.subkey(row["subkey"]))):
                p = Detector(own, tokenizer=tokenizer, **settings).detect(text).p_value
                digits[f"{'count' if model is None else model.name}/{name}"] = -math.log10(p)
        if writer is not None and how == EDITS[0]:
            for test, one in oracle_digits(writer, row, key).items():
                digits[f"oracle, {test}/all"] = max(0.0, one - math.log10(key.num_subkeys))
                digits[f"oracle, {test}/one"] = one
        yield {"id": row["id"], "edit": how, "digits": digits}


def share(found: int, of: int) -> str:
    """A share with its interval."""
    low, high = binomtest(found, of).proportion_ci(method="wilson")
    return f"{found / of:.2f} [{low:.2f}, {high:.2f}]"


def difference(found: NDArray[np.bool_], by_count: NDArray[np.bool_]) -> str:
    """By how much a test finds a larger share of the same texts than the count, with its interval."""
    more, fewer, size = int((found & ~by_count).sum()), int((by_count & ~found).sum()), len(found)
    middle = (more - fewer) / (size + 2)
    half = 1.96 * math.sqrt((more + fewer + 1) / (size + 2) ** 2 - middle**2 / (size + 2))
    return f"{(more - fewer) / size:+.2f} [{middle - half:+.2f}, {middle + half:+.2f}]"


def print_table(rows: list[dict[str, Any]]) -> None:
    """A line for each edit and test."""
    print_header(COLUMNS)
    for how in [how for how in EDITS if any(row["edit"] == how for row in rows)]:
        some = [row["digits"] for row in rows if row["edit"] == how]
        for test in dict.fromkeys(name.rpartition("/")[0] for row in some for name in row):
            every, one = (np.array([row[f"{test}/{keys}"] for row in some]) for keys in ("all", "one"))
            found, alone = every >= -math.log10(FPR), one >= -math.log10(FPR)
            by_count = np.array([row["count/all"] for row in some]) >= -math.log10(FPR)
            less = "" if test == "count" else difference(found, by_count)
            shares = share(int(found.sum()), len(some)), less, share(int(alone.sum()), len(some))
            print_row([f"{how} (n = {len(some)})", test, *shares, f"{np.median(one):.1f}"])


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name in ("file", "key", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--models", nargs="*", default=["narrator-base", "builtin"])
    parser.add_argument("--edits", nargs="+", default=EDITS, choices=EDITS)
    parser.add_argument("--texts", type=int, help="the first so many texts")
    parser.add_argument("--tokens", type=int, help="of each text the first so many tokens")
    parser.add_argument("--oracle", metavar="MODEL", help="the model that wrote the texts")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    key = WatermarkKey.load(asked.key)
    tokenizer = Detector(key).tokenizer
    rows = [json.loads(line) for line in asked.file.read_text().splitlines()]
    rows = [row for row in rows if len(row["token_ids"]) >= SHORTEST][: asked.texts]
    done = [json.loads(line) for line in asked.out.read_text().splitlines()] if asked.out.exists() else []
    left = [row for row in rows if sum(one["id"] == row["id"] for one in done) < len(asked.edits)]
    done = [one for one in done if one["id"] not in {row["id"] for row in left}]
    models = [None, *(Remembering(LanguageModel(name)) for name in asked.models)] if left else []
    writer = load_model(asked.oracle, device="cpu", dtype=left[0]["dtype"]) if asked.oracle and left else None
    for row in left:
        done += measured(row, key, tokenizer, models, asked.edits, writer, asked.tokens)
        asked.out.write_text("".join(json.dumps(one) + "\n" for one in done))
    print_table(done)


if __name__ == "__main__":
    main()
