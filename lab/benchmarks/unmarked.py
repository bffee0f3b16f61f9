"""Unmarked texts of many kinds: human ones of a file, and those that a program makes (tables, code, verse, loops)."""

import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dgmark import Detector, LanguageModel, WatermarkKey
from dgmark.detection.reading.reader import ScoredIds
from dgmark.rows.jsonl import read_good_rows


def csv(dice: random.Random) -> str:
    """Make rows of small whole numbers."""
    return "\n".join(",".join(str(dice.randint(0, 99)) for _ in range(5)) for _ in range(60))


def markdown(dice: random.Random) -> str:
    """Make a table of symbols and numbers."""
    rows = (f"| item {n} | {dice.choice('xo-')} | {dice.randint(0, 20)} |" for n in range(60))
    return "| name | mark | count |\n|---|---|---|\n" + "\n".join(rows)


def json_rows(dice: random.Random) -> str:
    """Make objects of one shape."""
    return json.dumps([{"id": n, "x": dice.random(), "ok": dice.random() < 0.5} for n in range(40)], indent=1)


def code(dice: random.Random) -> str:
    """Make functions of one shape."""
    names = [dice.choice(["width", "count", "total", "index", "limit"]) for _ in range(20)]
    return "\n\n".join(f"def get_{n}(self):\n    if self.{n} < {dice.randint(0, 9)}:\n        return 0" for n in names)


def verse(dice: random.Random) -> str:
    """Make couplets with a refrain."""
    ends = ["day", "way", "bay", "may", "sea", "tree", "lee", "me"]
    lines = (f"And all the {dice.choice(ends)} went down the {dice.choice(ends)},\nO, sing hey ho!" for _ in range(40))
    return "\n".join(lines)


def loop(dice: random.Random) -> str:
    """Repeat one sentence."""
    words = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "it", "rain", "while", "old", "men", "sang"]
    return (" ".join(dice.sample(words, dice.randint(3, 12))).capitalize() + ". ") * 80


BUILT: dict[str, Callable[[random.Random], str]] = {
    "built: CSV": csv,
    "built: Markdown tables": markdown,
    "built: JSON": json_rows,
    "built: code": code,
    "built: verse": verse,
    "built: a repeated sentence": loop,
}


def texts_by_kind(
    human: Path | None, most: int, tokens: tuple[int, int], model: LanguageModel | None
) -> dict[str, list[ScoredIds]]:
    """The first tokens of texts of each kind.

    Args:
        human: JSON Lines of `text`, and the `domain` and `lang` that tell kinds apart; None for built texts alone.
        most: texts of each kind, drawn by a fixed shuffle; 0 for all (120 built ones).
        tokens: texts with fewer tokens are left out, and longer ones cut.
        model: the language model that reads the texts; None for none.
    """
    texts = defaultdict[str, list[str]](list)
    for row in read_good_rows(str(human)) if human else ():
        language = row.get("lang", "en")
        texts[row.get("domain", "human") + ("" if language == "en" else f", {language}")].append(row["text"])
    for name, build in BUILT.items():
        texts[name] = [build(random.Random(f"{name} {n}")) for n in range(most or 120)]
    reader = Detector(WatermarkKey.generate(subkeys=1), surprisal_model=model).reader
    fewest, longest = tokens
    found = defaultdict[str, list[ScoredIds]](list)
    for name, every in texts.items():
        random.Random(name).shuffle(every)
        for text in every[: most or None]:
            encoded = reader.tokenizer.encode_with_offsets(text)
            ids = np.array(encoded.ids[:longest])
            if len(ids) >= fewest:
                cut = text[: encoded.offsets[len(ids) - 1][1]]
                found[name].append(ScoredIds(ids, np.arange(len(ids))) if model is None else reader.read(cut))
    return found
