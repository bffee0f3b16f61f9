"""Quality, diversity and evidence over temperatures: tables at equal diversity, and two pictures.

dgMARK is scored as `dgmark detect` comes, from the text; the baselines by their own detectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from dgmark_lab.evaluate.diversity import distinct_ngrams, repeated_ngrams, token_entropy
from dgmark_lab.experiments.cells import DGMARK, CellRows, StoredRun
from dgmark_lab.experiments.estimates import Estimate, mean, percent, perplexity, quantile
from dgmark_lab.experiments.figures import Line, line_figure
from dgmark_lab.experiments.frontier import WORST, Matched, Measured, matched
from dgmark_lab.experiments.spec import Experiment
from dgmark_lab.experiments.tables import Quantity, Section, Table, number, quantity_table, with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# response tokens that the detector is given
LENGTHS = (64, 128, 256)
RATE = 1e-4

_COLUMNS = {
    "perplexity": "perplexity",
    "its worst decile": "worst decile",
    "distinct-2": "distinct-2",
    "distinct-3": "distinct-3",
    "token entropy, bits": "token entropy",
    "repeated 4-grams, %": "repeated 4-grams",
    "evidence, bits a token": "bits",
    **{f"found in {n} tokens, %": f"TPR {n}" for n in LENGTHS},
    "survive re-tokenization, %": "survive re-tokenization",
}
_DIGITS = {
    "perplexity": 1,
    "worst decile": 1,
    "token entropy": 2,
    "repeated 4-grams": 1,
    "survive re-tokenization": 1,
} | {f"TPR {n}": 1 for n in LENGTHS}
# heading, quantity and digits of the columns of the table at equal diversity
_MATCHED = [
    ("at T", "temperature", 2),
    ("perplexity", "perplexity", 1),
    ("over unmarked", "perplexity ratio", 2),
    ("worst decile", "worst decile", 1),
    ("repeated 4-grams, %", "repeated 4-grams", 1),
    ("bits a token", "bits", 3),
    *((f"found in {n}, %", f"TPR {n}", 1) for n in LENGTHS),
]


def frontier(run: StoredRun) -> Section:
    """Show every cell, and every scheme at the diversity of unmarked text."""
    measured = {cell.name: one for cell in run.present if (one := _measured(run, cell)) is not None}
    curves = {name: [cell for cell in cells if cell in measured] for name, cells in _sweeps(run.experiment).items()}
    quantities = [q for cell in run.present for q in _quantities(cell, measured.get(cell.name))]
    in_order = [cell for cells in _sweeps(run.experiment).values() for cell in cells]
    texts = quantity_table("The texts", in_order, quantities, _COLUMNS)
    by_reference = {name: _all_matched(curves, measured, name) for name in _references(run, curves)}
    quantities += [
        Quantity(_at_equal_diversity(scheme, reference), name, estimate)
        for reference, found in by_reference.items()
        for scheme, one in found.items()
        for name, estimate in {"temperature": one.temperature, "perplexity ratio": one.ratio, **one.figures}.items()
    ]
    tables = [*_matched_tables(measured, by_reference), texts]
    return Section(quantities, tables, figures=frontier_figures(run.experiment, quantities) if measured else {})


def _sweeps(experiment: Experiment) -> dict[str, list[str]]:
    """The names of the cells of each curve, in the order of their temperatures."""
    groups: dict[str, list[str]] = {cell.group: [] for cell in experiment.cells}
    for cell in sorted(experiment.cells, key=lambda cell: cell.at or 0.0):
        groups[cell.group].append(cell.name)
    return groups


def _at_equal_diversity(scheme: str, reference: str) -> str:
    """What numbers.csv calls a scheme at the diversity of the reference."""
    return f"{scheme}, as diverse as {reference}"


def frontier_figures(experiment: Experiment, quantities: Sequence[Quantity]) -> "dict[str, Figure]":
    """Draw the curves that the experiment pictures, and how often their texts are found, with what they cost."""
    known = {(q.cell, q.name): q.ours for q in quantities if q.ours is not None}
    curves, found = [], []
    for name, cells in _sweeps(experiment).items():
        if experiment.pictured and name not in experiment.pictured:
            continue
        shown = [cell for cell in cells if (cell, "perplexity") in known]
        points = [(known[cell, "distinct-2"], known[cell, "perplexity"]) for cell in shown]
        curves.append(Line(name, points, [cell.rpartition(" = ")[2] for cell in shown]))
        there = _at_equal_diversity(name, str(experiment.null))
        rates = [(Estimate(n), known[there, f"TPR {n}"]) for n in LENGTHS if (there, f"TPR {n}") in known]
        cost = with_interval(known[there, "perplexity ratio"], 2) if rates else ""
        found.append(Line(f"{name}: {cost}", rates))
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
    if any(line.points for line in found):
        figures["found-by-length"] = line_figure(
            found,
            x="tokens of the text",
            y=f"found at p <= {RATE:g}, %",
            title=f"Texts as diverse as {experiment.null} (legend: perplexity over unmarked text)",
            width=9.5,
            log_x=True,
        )
    return figures


def _references(run: StoredRun, curves: Mapping[str, Sequence[str]]) -> list[str]:
    """The cells to compare at: the experiment's unmarked cell, then the others of its curve, from the highest T."""
    null = run.experiment.null
    curve = next((cells for cells in curves.values() if null in cells), [])
    return [str(null), *(name for name in reversed(curve) if name != null)] if curve else []


def _measured(run: StoredRun, cell: CellRows) -> Measured | None:
    """Measure the texts of a cell; None if some of its texts or perplexities are missing."""
    one = quality(run, cell)
    return None if one is None else replace(one, others=_variety(cell) | _bits(cell), found=_found(cell))


def quality(run: StoredRun, cell: CellRows) -> Measured | None:
    """Diversity and perplexity of the texts of a cell; None if some of its texts or perplexities are missing."""
    judge = run.plan.get("judge")
    if judge is None or not cell.complete:
        return None
    stored = run.store.read("perplexity", judge["hash"], [row["id"] for row in cell.rows])
    if len(stored) < len(cell.rows):
        return None
    scored = [stored[row["id"]] for row in cell.rows]
    return Measured(
        temperature=float(cell.cell.at or 0.0),
        diversity=np.array([distinct_ngrams(ids, 2) for ids in cell.ids]),
        nats=np.array([float(row["nats"]) for row in scored]),
        tokens=np.array([float(row["tokens"]) for row in scored]),
        others={},
        found={},
    )


_Figures = dict[str, Float[np.ndarray, " texts"]]


def _variety(cell: CellRows) -> _Figures:
    return {
        "distinct-3": np.array([distinct_ngrams(ids, 3) for ids in cell.ids]),
        "token entropy": np.array([token_entropy(ids) for ids in cell.ids]),
        "repeated 4-grams": 100 * np.array([repeated_ngrams(ids) for ids in cell.ids]),
    }


def _p_values(cell: CellRows, length: int) -> Float[np.ndarray, " texts"]:
    return cell.score([ids[:length] for ids in cell.ids], deployed=cell.cell.scheme == DGMARK).p


def _bits(cell: CellRows) -> _Figures:
    """The bits of evidence in each token of each text."""
    if cell.cell.scheme is None:
        return {}
    tokens = np.array([float(len(ids)) for ids in cell.ids])
    return {"bits": -np.log2(_p_values(cell, LENGTHS[-1])) / np.maximum(tokens, 1)}


def _found(cell: CellRows) -> _Figures:
    """Whether each text is found after 64, 128 and 256 tokens: 100 or 0."""
    if cell.cell.scheme is None:
        return {}
    return {f"TPR {length}": 100.0 * (_p_values(cell, length) <= RATE) for length in LENGTHS}


def _quantities(cell: CellRows, one: Measured | None) -> list[Quantity]:
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
        }
    return [Quantity(cell.name, name, estimate, digits=_DIGITS.get(name, 3)) for name, estimate in estimates.items()]


def _all_matched(
    curves: Mapping[str, Sequence[str]], measured: Mapping[str, Measured], reference: str
) -> dict[str, Matched]:
    """Every other curve at the diversity of the reference, by its name."""
    others = {name: cells for name, cells in curves.items() if reference not in cells}
    found = {name: matched([measured[cell] for cell in cells], measured[reference]) for name, cells in others.items()}
    return {name: one for name, one in found.items() if one is not None}


def _matched_tables(measured: Mapping[str, Measured], by_reference: Mapping[str, Mapping[str, Matched]]) -> list[Table]:
    """All schemes at the diversity of the first reference, and their perplexity over that of every reference."""
    shown = {reference: found for reference, found in by_reference.items() if found}
    first = next(iter(by_reference), None)
    if first not in shown:
        return []
    own = measured[first]
    means = {
        "temperature": own.temperature,
        "perplexity": own.perplexity,
        "worst decile": float(np.quantile(own.each, WORST)),
        "repeated 4-grams": float(own.others["repeated 4-grams"].mean()),
    }
    rows = [[first, *(number(means.get(key, float("nan")), digits) for _, key, digits in _MATCHED)]]
    for name, one in shown[first].items():
        figures: dict[str, Estimate] = {"temperature": one.temperature, "perplexity ratio": one.ratio, **one.figures}
        rows.append([name, *(with_interval(figures.get(key), digits) for _, key, digits in _MATCHED)])
    title = f"As diverse as {first} (distinct-2 {own.diversity.mean():.3f})"
    tables = [Table(title, ["", *(heading for heading, _, _ in _MATCHED)], rows)]
    if len(shown) > 1:
        schemes = dict.fromkeys(name for found in shown.values() for name in found)
        ratios = {name: [found[name].ratio if name in found else None for found in shown.values()] for name in schemes}
        rows = [[name, *(with_interval(one, 2) for one in line)] for name, line in ratios.items()]
        tables.append(Table("Perplexity over that of unmarked text, at the same diversity", ["", *shown], rows))
    return tables
