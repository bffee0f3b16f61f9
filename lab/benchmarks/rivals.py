"""Compare dgmark, counted and weighted by a language model, with its rivals: texts of experiment `rivals`.

    dgmark-lab experiment run rivals --prompts c4=FILE --runs RUNS --dtype bf16
    python lab/benchmarks/rivals.py RUNS OUT [--dtype bf16]

RUNS is the store of the run, and OUT a folder, in which `numbers.csv`, `table.md` and `rivals.png` are written. Texts
of fewer than 100 tokens are left out, as in the paper; column n says how many are left. Brackets hold 95 % (Wilson for
shares, bootstrap over texts for perplexity). ReplayMark's detector reads each text with the model that wrote it, in the
number format of --dtype. Scores are kept in OUT/scores.jsonl, and a run that was stopped goes on behind them.
"""

import argparse
import csv
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dgmark import Detector, WatermarkKey, load_model
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.models.language_model import LanguageModel
from dgmark_lab.baselines.replaymark import lend
from dgmark_lab.baselines.rules import REPLAYMARK
from dgmark_lab.evaluate.diversity import distinct_ngrams
from dgmark_lab.evaluate.estimates import Estimate, mean, percent, perplexity, quantile
from dgmark_lab.experiments.cells import CellRows, StoredRun
from dgmark_lab.experiments.conditions import EDITS
from dgmark_lab.experiments.figures import Line, line_panels
from dgmark_lab.experiments.spec import DGMARK, load_experiment
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.tables import with_interval

FPR = 1e-4
SHORTEST = 100
EDITED = ("deletion 0.1", "insertion 0.2", "substitution 0.2")
SHOWN = {"as written": (), **{name: EDITS[name].steps for name in EDITED}}
# the curves of the picture, at most six
DRAWN = (
    "dgmark, default key",
    "dgmark, default key, weighted",
    "dgmark, one key",
    "dgmark, one key, weighted",
    "DMark, delta 2",
    "ReplayMark",
)


def main() -> None:
    """Score the texts, and write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("runs", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--edits", nargs="*", default=EDITED, choices=EDITED, help="edits of ReplayMark's texts")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    run = read_run(asked.runs)
    model = load_model("narrator", dtype=asked.dtype)
    lend(model)
    asked.out.mkdir(parents=True, exist_ok=True)
    scores = Scores(
        asked.out / "scores.jsonl", asked.edits, LanguageModel(str(asked.runs / "narrator-base"), dtype="fp32")
    )
    write(asked.out, [one for cell in run.present for one in figures(run, cell, scores)])


def read_run(folder: Path) -> StoredRun:
    """The stored run, with the key that it made."""
    keys = {key.fingerprint: key for key in map(WatermarkKey.load, (folder / "keys").glob("*.json"))}
    return StoredRun.read(load_experiment("rivals"), Store(folder), "builtin", keys)


class Scores:
    """P-values of texts, kept in a file, by the id of the text, its edit and the test."""

    def __init__(self, path: Path, edits: Sequence[str], reader: LanguageModel) -> None:
        self._path, self._edits, self._reader = path, edits, reader
        lines = path.read_text().splitlines() if path.exists() else []
        self._kept = {(row["id"], row["edit"], row["test"]): row for row in map(json.loads, lines)}

    def of(self, run: StoredRun, cell: CellRows, edit: str, *, weighted: bool) -> list[float]:
        """The p-values of the texts of a cell that are long enough, after an edit; none if it was not edited."""
        texts = run.attacked(cell, SHOWN[edit])
        test = "weighted" if weighted else "count"
        slow = cell.cell.scheme == REPLAYMARK.name
        if len(texts) < len(cell.rows) or (slow and edit in EDITED and edit not in self._edits):
            return []
        found = []
        for row, text in zip(cell.rows, texts, strict=True):
            if len(row["token_ids"]) < SHORTEST:
                continue
            name = row["id"], edit, test
            if name not in self._kept:
                start = time.process_time()
                p = self._weighted(cell, row, text) if weighted else counted(cell, row, text)
                taken = time.process_time() - start
                self._kept[name] = {"id": row["id"], "edit": edit, "test": test, "p": p, "seconds": taken}
                with self._path.open("a") as file:
                    file.write(json.dumps(self._kept[name]) + "\n")
            found.append(self._kept[name]["p"])
        return found

    def seconds(self, cell: CellRows, *, weighted: bool) -> float:
        """The median processor time of a text of a cell as it was written."""
        test = "weighted" if weighted else "count"
        names = [(row["id"], "as written", test) for row in cell.rows]
        return float(np.median([self._kept[name]["seconds"] for name in names if name in self._kept]))

    def _weighted(self, cell: CellRows, row: dict[str, Any], text: str) -> float:
        return (
            Detector(cell.key_of(row), tokenizer=tokenizer_of(cell), surprisal_model=self._reader).detect(text).p_value
        )


def counted(cell: CellRows, row: dict[str, Any], text: str) -> float:
    """The p-value of a text by the test of its rule, as `dgmark detect` has it."""
    one = CellRows(cell.cell, 1, rows=[row], keys=[cell.key_of(row)], tokenizer=cell.tokenizer)
    return float(one.score([text], deployed=True).p[0])


def tokenizer_of(cell: CellRows) -> Tokenizer:
    """The tokenizer of a cell that was run."""
    assert cell.tokenizer is not None
    return cell.tokenizer


def figures(run: StoredRun, cell: CellRows, scores: Scores) -> list[dict[str, Any]]:
    """The figures of a cell, twice if its rule has a weighted test."""
    chosen = [number for number, row in enumerate(cell.rows) if len(row["token_ids"]) >= SHORTEST]
    judged = run.perplexities(cell)
    nats, tokens = (np.array([float(judged[n][name]) for n in chosen]) for name in ("nats", "tokens"))
    diversity = np.array([distinct_ngrams(cell.ids[n], 2) for n in chosen])
    cost = {
        "perplexity": perplexity(nats, tokens),
        "worst decile": quantile(np.exp(nats / np.maximum(tokens, 1)), 0.9),
        "distinct-2": mean(diversity),
    }
    name, at = cell.cell.group, cell.cell.at
    if cell.cell.scheme is None:
        return [{"name": name, "at": at, "n": len(chosen), **cost}]
    rows = []
    for weighted in (False, True) if cell.cell.scheme == DGMARK else (False,):
        found = {
            f"found, {edit}": percent(np.array(values) <= FPR)
            for edit in SHOWN
            if (values := scores.of(run, cell, edit, weighted=weighted))
        }
        seconds = {"seconds": Estimate(scores.seconds(cell, weighted=weighted))}
        rows.append(
            {"name": f"{name}, weighted" if weighted else name, "at": at, "n": len(chosen), **cost, **found, **seconds}
        )
    return rows


def write(out: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write numbers, table and picture."""
    rows = sorted(rows, key=lambda row: (row["name"], row["at"]))
    with (out / "numbers.csv").open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(("watermark", "temperature", "texts", "quantity", "value", "low", "high"))
        for row in rows:
            for name, one in row.items():
                if isinstance(one, Estimate):
                    lines.writerow((row["name"], row["at"], row["n"], name, one.value, one.low, one.high))
    found = [f"found, {edit}" for edit in SHOWN]
    head = ["watermark", "T", "n", "perplexity", "worst decile", "distinct-2", *found, "seconds a text"]
    table = [head, ["---"] * len(head)]
    for row in rows:
        shown = [f"{row[name].value:.3g}" if name in row else "" for name in ("worst decile", "distinct-2")]
        marks = [f"{with_interval(row[name], 0)} %" if name in row else "" for name in found]
        seconds = f"{row['seconds'].value:.3f}" if "seconds" in row else ""
        table.append(
            [row["name"], f"{row['at']:g}", str(row["n"]), with_interval(row["perplexity"], 1), *shown, *marks, seconds]
        )
    (out / "table.md").write_text("".join(f"| {' | '.join(cells)} |\n" for cells in table))
    picture(rows).savefig(out / "rivals.png", dpi=110)


def picture(rows: Sequence[dict[str, Any]]) -> Any:
    """Found as written by perplexity, a line for each watermark over its temperatures."""
    lines = []
    for name in DRAWN:
        own = [row for row in rows if row["name"] == name]
        points = [(row["perplexity"], row["found, as written"]) for row in own]
        lines.append(Line(name, points, [f"{row['at']:g}, {row['distinct-2'].value:.2f}" for row in own]))
    title = "Texts found at p <= 1e-4, by what they cost (labels: temperature, distinct-2)"
    return line_panels({title: lines}, x="perplexity under the narrator's base", y="found, %", width=8.5)


if __name__ == "__main__":
    main()
