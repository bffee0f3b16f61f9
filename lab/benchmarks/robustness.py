"""Measure detection of edited texts: the exact test, the paper's windows, alignment and their combination.

Run `python benchmarks/robustness.py MARKED.jsonl UNMARKED.jsonl --human HUMAN.jsonl`. Edits are made on token ids, with
seeds, by `dgmark_lab.attacks.edits`, which meets each budget exactly. Each cell is stored in `--out` and reused. The
threshold of the paper's statistics comes from the unmarked texts under the same edits and random keys; that of the
p-values holds for any text: p <= FPR.
"""

import argparse
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from corpus import RUNS
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.rows.row_file import RowFile
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.attacks import edits
from scoring import WINDOWS, Scores, random_key, score

TOKENS = 256
LEAST = 100
Ids = Int[np.ndarray, " n"]
Dice = np.random.Generator
ORDINARY = range(4, 8192)
Edit = Callable[[Ids, float, Dice], Ids]
STATISTICS = ("z", *(f"z_win {w}" for w in WINDOWS), "alignment", "combined")


def substitute(ids: Ids, budget: float, dice: Dice) -> Ids:
    """Replace round(budget * n) tokens by random ones."""
    return np.array(edits.substitute(ids.tolist(), budget, ORDINARY, dice))


def delete(ids: Ids, budget: float, dice: Dice) -> Ids:
    """Delete round(budget * n) tokens."""
    return np.array(edits.delete(ids.tolist(), budget, dice))


def insert(ids: Ids, budget: float, dice: Dice) -> Ids:
    """Insert a random token before each of round(budget * n) tokens."""
    return np.array(edits.insert(ids.tolist(), budget, ORDINARY, dice))


def crop(ids: Ids, share: float, _dice: Dice) -> Ids:
    """Cut the first part off."""
    return np.array(edits.crop(ids.tolist(), share, 0.0))


def swap_sentences(ids: Ids, swaps: float, dice: Dice) -> Ids:
    """Swap two neighbouring sentences (or clauses, by commas and semicolons), several times."""
    stops = np.isin(ids, [load_tokenizer().encode(mark)[0] for mark in ".,;"])
    parts = np.split(ids, np.flatnonzero(stops)[:-1] + 1)
    return np.concatenate(edits.swap_neighbours(parts, int(swaps), dice))


EDITS: list[tuple[str, Edit, tuple[float, ...]]] = [
    ("none", delete, (0.0,)),
    ("substitution", substitute, (0.05, 0.1, 0.2, 0.3, 0.4)),
    ("deletion", delete, (0.05, 0.1, 0.2, 0.3, 0.4)),
    ("insertion", insert, (0.05, 0.1, 0.2, 0.3, 0.4)),
    ("crop", crop, (0.1, 0.25, 0.5)),
    ("sentence swaps", swap_sentences, (2, 4, 8)),
]
PASTED = (0.1, 0.25, 0.5)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("marked", type=Path)
    parser.add_argument("unmarked", type=Path)
    parser.add_argument("--key", type=Path, default=RUNS / "key.json")
    parser.add_argument("--human", type=Path, help="JSON Lines of unmarked text to paste marked text into")
    parser.add_argument("--keys", type=int, default=16, help="random keys per text, for the false-positive rate")
    parser.add_argument(
        "--only", action="append", metavar="EDIT", help="only these edits, by their names in the tables"
    )
    parser.add_argument("--out", type=Path, default=RUNS / "robustness.jsonl")
    args = parser.parse_args()
    key = WatermarkKey.load(args.key)
    marked, unmarked = texts(args.marked), texts(args.unmarked)
    cells = [(name, edit, budget) for name, edit, budgets in EDITS for budget in budgets]
    if args.human:
        human = human_texts(args.human, max(len(marked), len(unmarked)))
        cells += [("pasted into human text", paster(human), share) for share in PASTED]
    inputs = hashlib.sha256(args.marked.read_bytes() + args.unmarked.read_bytes()).hexdigest()[:12]
    agree = {
        "inputs": inputs,
        "keys": args.keys,
        "budgets": "exact",
    }  # earlier tables edited each token with a probability
    with RowFile(args.out, agree, same=("cell",)) as out:
        for name, edit, budget in cells:
            row_id = f"{name} {budget:g}"
            if row_id not in out.done and row_id in (args.only or [row_id]):
                figures = cell(key, marked, unmarked, edit, budget, args.keys)
                row = {"id": row_id, **agree, "cell": figures}
                out.append([row])
                out.done[row_id] = row
        print(f"{len(marked)} marked texts; {len(unmarked)} unmarked, {args.keys} keys each: {args.marked.name}\n")
        for measure in ("auc", "tpr_01", "tpr_001"):
            table(measure, {row_id: out.done[row_id]["cell"] for row_id in out.done})


def texts(path: Path) -> list[Ids]:
    """Read up to 256 ids of each text that has at least 100."""
    rows = (json.loads(line) for line in path.read_bytes().splitlines())
    ids = (np.array(row["token_ids"][:TOKENS]) for row in rows)
    return [each for each in ids if len(each) >= LEAST]


def human_texts(path: Path, most: int) -> list[Ids]:
    """Read English passages of at least 256 tokens, cut to 256."""
    rows = (json.loads(line) for line in path.read_bytes().splitlines())
    passages = [row["text"] for row in rows if row["lang"] == "en" and len(row["text"]) > 1500]
    ids = load_tokenizer().encode_batch(passages[:: max(1, len(passages) // (2 * most))])
    return [np.array(each[:TOKENS]) for each in ids if len(each) >= TOKENS]


def paster(human: list[Ids]) -> Edit:
    """Return an edit that pastes a stretch of the text into human text of 256 tokens, as a share of the result."""

    def paste(ids: Ids, share: float, dice: Dice) -> Ids:
        host = human[int(dice.integers(len(human)))]
        return np.array(edits.paste(ids.tolist(), host.tolist(), share, dice))

    return paste


def cell(
    key: WatermarkKey, marked: list[Ids], unmarked: list[Ids], edit: Edit, budget: float, keys: int
) -> dict[str, dict[str, float]]:
    """Compute each statistic's AUC and true-positive rates under one edit."""
    positives = [score(key, edit(ids, budget, np.random.default_rng([1, n]))) for n, ids in enumerate(marked)]
    edited = [edit(ids, budget, np.random.default_rng([2, n])) for n, ids in enumerate(unmarked)]
    # each pair has its own key: texts share frequent tokens, so a key that matches one by chance matches many
    pairs = enumerate(ids for ids in edited for _ in range(keys))
    negatives = [score(random_key(key.spec, number), ids) for number, ids in pairs]
    figures = {}
    for name, yes, no in zip(STATISTICS, columns(positives), columns(negatives), strict=True):
        exact = name in ("alignment", "combined")
        figures[name] = {"auc": auc(yes, no)}
        for measure, fpr in (("tpr_01", 0.01), ("tpr_001", 0.001)):
            figures[name][measure] = float(np.mean(yes >= -np.log(fpr))) if exact else tpr(yes, no, fpr)
            figures[name][measure.replace("tpr", "fpr")] = float(np.mean(no >= -np.log(fpr))) if exact else fpr
    return figures


def columns(scores: list[Scores]) -> Float[np.ndarray, "statistics texts"]:
    """Return the statistics' values, larger for marked text."""
    rows: list[list[Any]] = [[s.z, *s.windows, -np.log(s.p_edited), -np.log(s.p_auto)] for s in scores]
    return np.array(rows).T


def auc(yes: Float[np.ndarray, " a"], no: Float[np.ndarray, " b"]) -> float:
    """Compute the AUC: the probability that a marked text scores above an unmarked one, ties half."""
    ordered = np.sort(no)
    below, upto = np.searchsorted(ordered, yes, "left"), np.searchsorted(ordered, yes, "right")
    return float((below + upto).mean() / 2 / len(no))


def tpr(yes: Float[np.ndarray, " a"], no: Float[np.ndarray, " b"], fpr: float) -> float:
    """Compute the share of marked texts above the threshold that at most `fpr` of the unmarked ones exceed."""
    allowed = int(fpr * len(no))
    threshold = np.sort(no)[::-1][allowed]
    return float(np.mean(yes > threshold))


def table(measure: str, cells: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print one measure as Markdown; the best single statistic is bold."""
    titles = {"auc": "AUC", "tpr_01": "TPR at FPR 1e-2", "tpr_001": "TPR at FPR 1e-3"}
    print(f"{titles[measure]}\n\n| edit | " + " | ".join(STATISTICS) + " |\n|---|" + "---|" * len(STATISTICS))
    for row_id, found in cells.items():
        values = [found[name][measure] for name in STATISTICS]
        best = max(values[:-1])
        shown = [f"**{value:.3f}**" if value >= best else f"{value:.3f}" for value in values]
        print(f"| {row_id} | " + " | ".join(shown) + " |")
    if measure != "auc":
        held = max(found[name][measure.replace("tpr", "fpr")] for found in cells.values() for name in STATISTICS[-2:])
        print(f"\nlargest share of unmarked texts under an edit that a p-value called marked: {held:.4f}")
    print()


if __name__ == "__main__":
    main()
