"""Quality, diversity and evidence over temperatures, and what is found under each condition.

The tables show every cell, and every scheme where its texts are as diverse as unmarked text. dgMARK is scored as
`dgmark detect` comes, from the text; the baselines by their own detectors.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dgmark.detection.normalise import STEPS
from dgmark_lab.evaluate.diversity import distinct_ngrams, repeated_ngrams, token_entropy
from dgmark_lab.evaluate.intervals import MIN_TEXTS
from dgmark_lab.experiments.cells import CellRows, PerText, Scores, StoredRun
from dgmark_lab.experiments.conditions import CONDITIONS, EDITS
from dgmark_lab.experiments.estimates import Estimate, mean, percent, perplexity, quantile
from dgmark_lab.experiments.figures import Line, heat_figure, line_figure
from dgmark_lab.experiments.frontier import WORST, Matched, Measured, matched
from dgmark_lab.experiments.spec import DGMARK, Experiment
from dgmark_lab.experiments.tables import Quantity, Section, Table, quantity_table, transposed, with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATE = 1e-4
EDITED = "mean of edits"
# a table of more columns is shown with its columns as rows
_WIDE = 20
_COLUMNS = {
    "perplexity": "perplexity",
    "its worst decile": "worst decile",
    "distinct-2": "distinct-2",
    "distinct-3": "distinct-3",
    "token entropy, bits": "token entropy",
    "repeated 4-grams, %": "repeated 4-grams",
    "share of matches": "matching",
    "evidence, bits a token": "bits",
    "survive re-tokenization, %": "survive re-tokenization",
}
# the first columns of the table at equal diversity
_MATCHED = {
    "at T": "temperature",
    "perplexity": "perplexity",
    "over unmarked": "perplexity ratio",
    "worst decile": "worst decile",
    "repeated 4-grams, %": "repeated 4-grams",
    "bits a token": "bits",
    EDITED: EDITED,
}
_DIGITS = {
    "temperature": 2,
    "perplexity": 1,
    "perplexity ratio": 2,
    "worst decile": 1,
    "token entropy": 2,
    "repeated 4-grams": 1,
    "survive re-tokenization": 1,
    EDITED: 0,
    **{name: 0 for names in CONDITIONS.values() for name in names},
}


def frontier(run: StoredRun) -> Section:
    """Show every cell, and every scheme at the diversity of unmarked text."""
    scores = {cell.name: _scores(run, cell) for cell in run.present}
    measured = {cell.name: one for cell in run.present if (one := _measured(run, cell, scores[cell.name])) is not None}
    curves = {name: [cell for cell in cells if cell in measured] for name, cells in _sweeps(run.experiment).items()}
    quantities = [q for cell in run.present for q in _quantities(cell, measured.get(cell.name), scores[cell.name])]
    by_reference = {name: _all_matched(curves, measured, name) for name in _references(run, curves)}
    for reference, found in by_reference.items():
        for scheme, there in found.items():
            figures = {"temperature": there.temperature, "perplexity ratio": there.ratio, **there.figures}
            quantities += _named(_at_equal_diversity(scheme, reference), figures)
    in_order = [cell for cells in _sweeps(run.experiment).values() for cell in cells]
    conditions = list(CONDITIONS[run.experiment.conditions])
    tables = [
        *(_matched_table(reference, found, quantities, conditions) for reference, found in by_reference.items()),
        quantity_table("The texts", in_order, quantities, _COLUMNS),
        _found_table({name: scores[name] for name in in_order if scores.get(name)}, conditions),
    ]
    pictures = frontier_figures(run.experiment, quantities) if measured else {}
    return Section(quantities, tables, figures=pictures | _evidence_figure(run, scores))


def _sweeps(experiment: Experiment) -> dict[str, list[str]]:
    """The names of the cells of each curve, in the order of their temperatures."""
    groups: dict[str, list[str]] = {cell.group: [] for cell in experiment.cells}
    for cell in sorted(experiment.cells, key=lambda cell: cell.at or 0.0):
        groups[cell.group].append(cell.name)
    return groups


def _at_equal_diversity(scheme: str, reference: str) -> str:
    """What numbers.csv calls a scheme at the diversity of the reference."""
    return f"{scheme}, as diverse as {reference}"


def _references(run: StoredRun, curves: Mapping[str, Sequence[str]]) -> list[str]:
    """The cells to compare at: the experiment's unmarked cell, then the others of its curve, from the highest T."""
    null = run.experiment.null
    curve = next((cells for cells in curves.values() if null in cells), [])
    return [str(null), *(name for name in reversed(curve) if name != null)] if curve else []


# --- numbers of a cell ---


def _scores(run: StoredRun, cell: CellRows) -> dict[str, Scores]:
    """The scores of a marked cell's texts under each condition whose texts were made."""
    found: dict[str, Scores] = {}
    if cell.cell.scheme is None:
        return found
    for name, condition in CONDITIONS[run.experiment.conditions].items():
        texts: Sequence[str | list[int]] = run.attacked(cell, condition.steps)
        if len(texts) < len(cell.rows):
            continue
        if condition.first:
            texts = [ids[: condition.first] for ids in cell.ids]
        steps = tuple(STEPS) if condition.normalise else ()
        found[name] = cell.score(texts, deployed=cell.cell.scheme == DGMARK, normalise=steps)
    return found


def _measured(run: StoredRun, cell: CellRows, scores: Mapping[str, Scores]) -> Measured | None:
    """Measure the texts of a cell; None if some of its texts or perplexities are missing."""
    judge = run.plan.get("judge")
    if judge is None or not cell.complete:
        return None
    stored = run.store.read("perplexity", judge["hash"], [row["id"] for row in cell.rows])
    if len(stored) < len(cell.rows):
        return None
    judged = [stored[row["id"]] for row in cell.rows]
    found = {name: 100.0 * (one.p <= RATE) for name, one in scores.items()}
    edited = [found[name] for name in EDITS if name in found]
    return Measured(
        temperature=float(cell.cell.at or 0.0),
        diversity=np.array([distinct_ngrams(ids, 2) for ids in cell.ids]),
        nats=np.array([float(row["nats"]) for row in judged]),
        tokens=np.array([float(row["tokens"]) for row in judged]),
        others=_variety(cell) | _evidence(cell, scores) | ({EDITED: np.mean(edited, axis=0)} if edited else {}),
        found=found,
    )


def _variety(cell: CellRows) -> dict[str, PerText]:
    return {
        "distinct-3": np.array([distinct_ngrams(ids, 3) for ids in cell.ids]),
        "token entropy": np.array([token_entropy(ids) for ids in cell.ids]),
        "repeated 4-grams": 100 * np.array([repeated_ngrams(ids) for ids in cell.ids]),
    }


def _evidence(cell: CellRows, scores: Mapping[str, Scores]) -> dict[str, PerText]:
    """The share of matches in each text, and the bits of evidence in each of its tokens."""
    if not scores:
        return {}
    whole = scores.get("none") or list(scores.values())[-1]
    tokens = np.array([float(len(ids)) for ids in cell.ids])
    return {"matching": whole.green, "bits": -np.log2(whole.p) / np.maximum(tokens, 1)}


def _quantities(cell: CellRows, one: Measured | None, scores: Mapping[str, Scores]) -> list[Quantity]:
    """The numbers of a cell; of one that is not measured, those that need no judge and few texts."""
    estimates = {name: mean(values) for name, values in (one.others if one else _variety(cell)).items()}
    survives = [row["token_ids"] == ids for row, ids in zip(cell.rows, cell.ids, strict=True)]
    estimates["survive re-tokenization"] = percent(np.array(survives))
    if one is not None:
        estimates = {
            "perplexity": perplexity(one.nats, one.tokens),
            "worst decile": quantile(one.each, WORST),
            "distinct-2": mean(one.diversity),
            **estimates,
            **{name: percent(values) for name, values in one.found.items()},
            **{f"median p, {name}": Estimate(float(np.median(found.p))) for name, found in scores.items()},
        }
    return _named(cell.name, estimates)


def _named(cell: str, estimates: Mapping[str, Estimate]) -> list[Quantity]:
    return [Quantity(cell, name, estimate, digits=_DIGITS.get(name, 3)) for name, estimate in estimates.items()]


# --- tables ---


def _found_table(scores: Mapping[str, Mapping[str, Scores]], conditions: Sequence[str]) -> Table | None:
    """What is found of every cell under each condition, and the median p."""
    rows = [[name, *(_found(of_cell.get(condition)) for condition in conditions)] for name, of_cell in scores.items()]
    table = Table(f"Found at p <= {RATE:g} in percent, and the median p", ["", *conditions], rows)
    return _narrow(table) if rows else None


def _found(scores: Scores | None) -> str:
    if scores is None:
        return "–"
    return f"{with_interval(percent(scores.p <= RATE), 0)} ({np.median(scores.p):.0e})"


def _narrow(table: Table) -> Table:
    return transposed(table) if len(table.columns) > _WIDE else table


def _all_matched(
    curves: Mapping[str, Sequence[str]], measured: Mapping[str, Measured], reference: str
) -> dict[str, Matched]:
    """Every other curve at the diversity of the reference, by its name."""
    others = {name: cells for name, cells in curves.items() if reference not in cells}
    found = {name: matched([measured[cell] for cell in cells], measured[reference]) for name, cells in others.items()}
    return {name: one for name, one in found.items() if one is not None}


def _matched_table(
    reference: str, found: Mapping[str, Matched], quantities: Sequence[Quantity], conditions: Sequence[str]
) -> Table | None:
    """All schemes at the diversity of a reference, and the condition under which the fewest whole texts are found."""
    names = [_at_equal_diversity(scheme, reference) for scheme in found]
    columns = _MATCHED | {condition: condition for condition in conditions}
    table = quantity_table(f"At equal diversity; found at p <= {RATE:g}, in percent", names, quantities, columns)
    if table is None:
        return None
    whole = [condition for condition in conditions if not condition.endswith(" tokens")]
    least = [
        min((name for name in whole if name in one.figures), key=lambda name: one.figures[name].value, default="–")
        for one in found.values()
    ]
    rows = [[*row, condition] for row, condition in zip(table.rows, least, strict=True)]
    return _narrow(Table(table.title, [*table.columns, "found least after"], rows))


# --- figures ---


def frontier_figures(experiment: Experiment, quantities: Sequence[Quantity]) -> "dict[str, Figure]":
    """Draw the curves that the experiment pictures, and how often their texts are found, with what they cost."""
    known = {(q.cell, q.name): q.ours for q in quantities if q.ours is not None}
    conditions = CONDITIONS[experiment.conditions]
    lengths = {name: one.first for name, one in conditions.items() if one.first}
    curves, found, heat = [], [], dict[str, dict[str, Estimate]]()
    for name, cells in _sweeps(experiment).items():
        if experiment.pictured and name not in experiment.pictured:
            continue
        shown = [cell for cell in cells if (cell, "perplexity") in known]
        points = [(known[cell, "distinct-2"], known[cell, "perplexity"]) for cell in shown]
        curves.append(Line(name, points, [cell.rpartition(" = ")[2] for cell in shown]))
        there = _at_equal_diversity(name, str(experiment.null))
        rates = [(Estimate(n), known[there, length]) for length, n in lengths.items() if (there, length) in known]
        cost = with_interval(known[there, "perplexity ratio"], 2) if rates else ""
        found.append(Line(f"{name}: {cost}", rates))
        if all((there, condition) in known for condition in conditions):
            heat[name] = {condition: known[there, condition] for condition in conditions}
    figures = {
        "perplexity-by-diversity": line_figure(
            curves,
            x="distinct-2",
            y="perplexity under the judge",
            title="Quality and diversity, over temperatures (labels; 95 % intervals over texts)",
            width=8.5,
            log_y=True,
        )
    }
    if experiment.conditions == "lengths" and any(line.points for line in found):
        figures["found-by-length"] = line_figure(
            found,
            x="tokens of the text",
            y=f"found at p <= {RATE:g}, %",
            title=f"Texts as diverse as {experiment.null} (legend: perplexity over unmarked text)",
            width=9.5,
            log_x=True,
        )
    elif heat:
        figures["what-survives-what"] = heat_figure(heat, title=f"What survives what: texts found at p <= {RATE:g}")
    return figures


def _evidence_figure(run: StoredRun, scores: Mapping[str, Mapping[str, Scores]]) -> "dict[str, Figure]":
    """Draw the mean of -log10 p over the first tokens of the texts that are as long."""
    lines = []
    for cell in run.present if run.experiment.conditions == "lengths" else ():
        line, tokens = Line(cell.name), np.array([len(ids) for ids in cell.ids])
        for name, one in scores[cell.name].items():
            first = CONDITIONS["lengths"][name].first or 0
            long = tokens >= first
            if long.sum() >= MIN_TEXTS:
                line.points.append((Estimate(first), mean(-np.log10(one.p[long]))))
        lines.append(line)
    if not any(line.points for line in lines):
        return {}
    title = f"Evidence by length (dotted: p = {RATE:g})"
    figure = line_figure(lines, x="tokens", y="evidence, mean -log10 p", title=title, log_x=True)
    figure.axes[0].axhline(-np.log10(RATE), color="0.5", linestyle=":")
    return {"evidence-by-length": figure}
