"""Detectability: error rates at the paper's thresholds, TPR at a false-positive rate, and figures of the texts."""

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from dgmark.rows.jsonl import Row
from dgmark_lab.evaluate.diversity import repeated_ngrams
from dgmark_lab.experiments.cells import CellRows, Scores
from dgmark_lab.experiments.estimates import Estimate, auc, mean, median, perplexity, share
from dgmark_lab.experiments.figures import Panel, Scale, rows_figure
from dgmark_lab.experiments.schemes import DGMARK
from dgmark_lab.experiments.spec import RATES, PaperNumbers, Rates
from dgmark_lab.experiments.tables import Column, Quantity, Table, quantity_table
from dgmark_lab.experiments.views.section import Context, Section, tables_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THRESHOLDS = (4.0, 5.0)


def detection(context: Context) -> Section:
    """Show the tables of detectability."""
    quantities = [q for cell in context.cells.values() for q in cell_quantities(context, cell)]
    tables = tables_of(*detection_tables(list(context.cells), quantities))
    figures = {} if (drawn := _overview(context, quantities)) is None else {"overview": drawn}
    return Section(quantities=quantities, tables=tables, figures=figures)


def _overview(context: Context, quantities: Sequence[Quantity]) -> "Figure | None":
    """Draw what the tables say in short: how often each mark is found, false alarms, and what the text costs."""
    known = {(q.cell, q.name): q for q in quantities}
    cells = [cell for cell in context.cells.values() if any(q.cell == cell.name for q in quantities)]
    if not any(cell.rows for cell in cells):
        return None
    panels = [
        _panel("found at p <= 0.01 %,\n% of marked texts", cells, known, "TPR deployed p<=0.01%", "TPR p<=0.01%"),
        _panel("found at z > 4,\n% of marked texts", cells, known, "TPR z>4", times=100),
        _panel("false alarms at p <= 1 %,\n% of unmarked texts with any key", cells, known, "FPR p<=1%"),
        _panel("perplexity\nunder the judge", cells, known, "perplexity"),
    ]
    shown = [panel for panel in panels if any(panel.ours)]
    names = [f"{cell.name} (n = {len(cell.rows):,})" if cell.rows else f"{cell.name} (paper)" for cell in cells]
    return rows_figure(names, shown, title=context.experiment.title) if shown else None


def _panel(
    x: str,
    cells: Sequence[CellRows],
    known: Mapping[tuple[str, str], Quantity],
    *names: str,
    times: float = 1.0,
) -> Panel:
    """A panel of the first of these quantities that a cell has, in percent if multiplied by 100."""
    found = [next((q for name in names if (q := known.get((cell.name, name))) and q.ours), None) for cell in cells]
    papers = [known.get((cell.name, names[-1])) for cell in cells]
    ours = [_times(q.ours, times) if q and q.ours else None for q in found]
    paper = [q.paper * times if q and q.paper is not None else None for q in papers]
    kind = names[-1].partition(" ")[0]
    scales: dict[str, Scale] = {"TPR": "percent", "FPR": "zero", "perplexity": "log"}
    return Panel(x, ours, paper, 1.0 if kind == "FPR" else None, scales[kind])


def _times(one: Estimate, factor: float) -> Estimate:
    return Estimate(factor * one.value, factor * one.low, factor * one.high, one.count)


def detection_tables(names: Sequence[str], quantities: Sequence[Quantity]) -> list[Table | None]:
    """Build the tables of error rates, TPR at false-positive rates, and the texts."""
    rates = [
        Column(f"{rate} {words} {z:g}", f"{rate} z>{z:g}")
        for z in THRESHOLDS
        for rate, words in (("FPR", "z >"), ("TPR", "z >"))
    ]
    exact = [Column(f"exact p <= {rate}", f"TPR p<={rate}", paper="paper, by z") for rate in RATES]
    false = [Column(f"exact p <= {rate}", f"FPR p<={rate}") for rate in RATES]
    deployed = [Column(f"p <= {rate}", f"TPR deployed p<={rate}") for rate in RATES]
    own_ids = [Column(f"p <= {rate}", f"TPR ids p<={rate}") for rate in RATES]
    normal = [Column(f"z at {rate}", f"TPR z at {rate}") for rate in RATES]
    texts = [
        Column("tokens", "tokens"),
        Column("green", "green fraction"),
        Column("median z", "median z"),
        Column("AUC of z", "AUC"),
        Column("4-grams again, %", "repeated 4-grams"),
        Column("perplexity", "perplexity"),
    ]
    return [
        quantity_table("Error rates at the paper's thresholds", names, quantities, rates),
        quantity_table("TPR in percent, exact p-value at or below the rate", names, quantities, exact),
        quantity_table("FPR in percent, exact p-value at or below the rate", names, quantities, false),
        quantity_table("TPR in percent, p-value of dgmark detect as it comes (mode auto)", names, quantities, deployed),
        quantity_table("TPR in percent, exact p-value of the ids that the model wrote", names, quantities, own_ids),
        quantity_table(
            "TPR in percent, z above the normal quantile of the rate (the paper's way)", names, quantities, normal
        ),
        quantity_table("The texts", names, quantities, texts),
    ]


def cell_quantities(context: Context, cell: CellRows) -> list[Quantity]:
    """Return all numbers of one cell; only the paper's if it has no texts."""
    ours = _measured(context, cell) if cell.rows else {}
    paper = paper_numbers(cell.cell.paper)
    digits = {"tokens": 1, "median z": 2, "perplexity": 2, "repeated 4-grams": 1}
    names = dict.fromkeys([*ours, *paper])
    return [
        Quantity(
            cell.name,
            name,
            ours.get(name),
            paper.get(name),
            2 if name.endswith("%") else digits.get(name, 3),
        )
        for name in names
    ]


def paper_numbers(paper: PaperNumbers) -> dict[str, float]:
    """Return the paper's numbers under the names of our quantities."""
    found: dict[str, float] = {}
    if paper.perplexity is not None:
        found["perplexity"] = paper.perplexity
    for z, rates in zip(THRESHOLDS, (paper.z4, paper.z5), strict=True):
        if rates is not None:
            found |= _error_rates(rates, z)
    for rate, value in paper.tpr_at.items():
        found |= {f"TPR p<={rate}": value, f"TPR z at {rate}": value}
    return found


def _error_rates(rates: Rates, z: float) -> dict[str, float]:
    return {f"{name.upper()} z>{z:g}": value for name, value in rates.model_dump().items()}


def _measured(context: Context, cell: CellRows) -> dict[str, Estimate]:
    found = {
        "tokens": mean(cell.scores.tokens),
        "repeated 4-grams": mean(100 * np.array([repeated_ngrams(ids) for ids in cell.ids])),
    }
    under_judge = perplexity_of(context, cell)
    if under_judge is not None:
        found["perplexity"] = under_judge
    found |= {"green fraction": mean(cell.scores.green), "median z": median(cell.scores.z)}
    if cell.cell.scheme is not None:
        found |= _true_positives(cell.scores)
        if cell.cell.scheme == DGMARK:
            found |= _at_rates("TPR deployed", cell.score(cell.ids, deployed=True))
        found |= _at_rates("TPR ids", cell.score([row["token_ids"] for row in cell.rows]))
        null = context.null_of(cell)
        if null is not None:
            found |= _false_positives(cell, context.null_scores(cell, null))
    return found


def _true_positives(scores: Scores) -> dict[str, Estimate]:
    found: dict[str, Estimate] = {}
    for z in THRESHOLDS:
        hits = int((scores.z > z).sum())
        found |= {
            f"TPR z>{z:g}": share(hits, len(scores.z)),
            f"FNR z>{z:g}": share(len(scores.z) - hits, len(scores.z)),
        }
    found |= _at_rates("TPR", scores)
    for rate, level in RATES.items():
        found[f"TPR z at {rate}"] = _percent(scores.z > NormalDist().inv_cdf(1 - level))
    return found


def _false_positives(cell: CellRows, null: list[Scores]) -> dict[str, Estimate]:
    """False positives over the unmarked texts, under the run's key and the null keys; and the AUC under the run's."""
    z = np.concatenate([scores.z for scores in null])
    p = np.concatenate([scores.p for scores in null])
    found: dict[str, Estimate] = {"AUC": auc(cell.scores.z, null[0].z)}
    for threshold in THRESHOLDS:
        hits = int((z > threshold).sum())
        found |= {f"FPR z>{threshold:g}": share(hits, len(z)), f"TNR z>{threshold:g}": share(len(z) - hits, len(z))}
    return found | {f"FPR p<={rate}": _percent(p <= level) for rate, level in RATES.items()}


def _at_rates(name: str, scores: Scores) -> dict[str, Estimate]:
    return {f"{name} p<={rate}": _percent(scores.p <= level) for rate, level in RATES.items()}


def _percent(hits: np.ndarray) -> Estimate:
    one = share(int(hits.sum()), len(hits))
    return Estimate(100 * one.value, 100 * one.low, 100 * one.high, one.count)


def perplexity_of(context: Context, cell: CellRows) -> Estimate | None:
    """Return the perplexity of the cell's texts under the run's judge; None if it is not computed yet."""
    rows = perplexity_rows(context, cell)
    if not rows:
        return None
    return perplexity(np.array([row["nats"] for row in rows]), np.array([float(row["tokens"]) for row in rows]))


def perplexity_rows(context: Context, cell: CellRows) -> list[Row]:
    """Read nats and tokens of the cell's texts under the run's judge, where they exist; empty texts have none."""
    judge = context.plan.get("judge")
    if judge is None:
        return []
    stored = context.store.read("perplexity", judge["hash"], [row["id"] for row in cell.rows])
    return [stored[row["id"]] for row in cell.rows if row["id"] in stored and stored[row["id"]]["tokens"]]
