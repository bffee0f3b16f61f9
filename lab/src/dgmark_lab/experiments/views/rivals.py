"""Watermarks side by side: what they cost, what is found of them as written and after edits, by count and by weights.

Scores are made by the run and stored, as a test may need a model: that of ReplayMark, or a language model that reads
along where the rule has a weighted test.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from dgmark import Detector
from dgmark.detection.statistics.rules import rule_test
from dgmark.models.language_model import LanguageModel
from dgmark.rows.item import Row
from dgmark_lab.evaluate.diversity import distinct_ngrams
from dgmark_lab.evaluate.estimates import Estimate, mean, percent
from dgmark_lab.experiments.cells import RATE, CellRows, StoredRun
from dgmark_lab.experiments.made_with import identifier
from dgmark_lab.experiments.matched_curves import Measured
from dgmark_lab.experiments.store import Progress, digest
from dgmark_lab.experiments.tables import Quantity, Section, quantities_of, quantity_table
from dgmark_lab.experiments.views.drawn import WEIGHTED

_COUNT = "count"
_DIGITS = {"perplexity": 1, "worst decile": 1}


def rivals(run: StoredRun) -> Section:
    """Show cost, diversity, the shares found and the evidence of each cell, twice if its rule has a weighted test."""
    quantities = [q for cell in run.present for q in _of_cell(run, cell)]
    cells = dict.fromkeys(q.cell for q in quantities)
    columns = {name: name for name in ("perplexity", "worst decile", "distinct-2")}
    columns |= {f"found, {name}, %": f"found, {name}" for name in run.scored_under}
    tables = {
        f"Cost, and what is found at p <= {RATE:g}": columns,
        "Digits of evidence: -log10 of p": {name: f"digits, {name}" for name in run.scored_under},
    }
    digits = _DIGITS | {f"found, {name}": 0 for name in run.scored_under}
    digits |= {f"digits, {name}": 1 for name in run.scored_under}
    shown = [quantity_table(title, cells, quantities, columns, digits=digits) for title, columns in tables.items()]
    return Section(quantities, shown)


def make_scores(
    run: StoredRun, reader: LanguageModel | None, identity: Mapping[str, Any] | None, progress: Progress
) -> None:
    """Score the texts of the marked cells under each condition, as far as it was not done yet.

    Weighted tests are among them if there is a `reader`, the language model whose `judge_identity` is `identity`.
    """
    for cell in (cell for cell in run.present if cell.cell.key is not None):
        readers = [None] if reader is None or not rule_test(cell.key).weighs else [None, reader]
        for one in readers:
            file = _file(cell, None if one is None else identity)
            todo = {
                _score_id(row, name): row
                for name, condition in run.scored_under.items()
                for row in run.attacked(cell, condition.steps).rows
            }
            make, what = partial(_scored, cell, one), f"{cell.name}, scores"
            run.store.complete("scores", file, {"scores": file}, todo, make, batch=1, what=what, progress=progress)


def _file(cell: CellRows, reader: Mapping[str, Any] | None) -> str:
    """The name of the file of scores by a rule's test of today, weighted if a language model reads."""
    return digest([cell.cell.rule, identifier(str(cell.cell.rule)), reader["hash"] if reader else _COUNT])


def _score_id(row: Row, condition: str) -> str:
    return digest([row["id"], condition])


def _scored(cell: CellRows, reader: LanguageModel | None, rows: list[Row]) -> list[Row]:
    """The p-values of texts as `dgmark detect` has them."""
    if reader is None:
        p = cell.over(rows).score([row["text"] for row in rows], deployed=True).p.tolist()
    else:
        detectors = [Detector(cell.key_of(row), tokenizer=cell.tokenizer, surprisal_model=reader) for row in rows]
        p = [detector.detect(row["text"]).p_value for detector, row in zip(detectors, rows, strict=True)]
    return [{"p": one} for one in p]


def _of_cell(run: StoredRun, cell: CellRows) -> list[Quantity]:
    """The numbers of a cell by each of its tests; of an unmarked one what it costs."""
    diversity = np.array([distinct_ngrams(ids, 2) for ids in cell.ids])
    cost = Measured(cell.temperature, diversity, *run.nats_and_tokens(cell), {}, {}).cost
    at = f", T = {cell.temperature:g}"
    if cell.cell.key is None:
        return quantities_of(f"{cell.cell.group or cell.name}{at}", cost)
    found = []
    for suffix, reader in (("", None), (WEIGHTED, run.plan.get("reader"))):
        if suffix and reader is None:
            continue
        if shares := _shares(run, cell, _file(cell, reader)):
            name = f"{cell.cell.group or cell.name}{suffix}{at}"
            found += quantities_of(name, {**cost, **shares})
    return found


def _shares(run: StoredRun, cell: CellRows, file: str) -> dict[str, Estimate]:
    """What is found, and the evidence, where all texts were scored."""
    stored = run.store.read("scores", file)
    found: dict[str, Estimate] = {}
    for name in run.scored_under:
        rows = [stored[one] for row in cell.rows if (one := _score_id(row, name)) in stored]
        if len(rows) == len(cell.rows):
            p = np.array([row["p"] for row in rows])
            found |= {f"found, {name}": percent(p <= RATE), f"digits, {name}": mean(-np.log10(p))}
    return found
