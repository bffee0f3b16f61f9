"""Quality, diversity and evidence over temperatures: tables at equal diversity, and two pictures.

dgMARK is scored as `dgmark detect` comes (mode auto), from the text; the other schemes by their own detectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from dgmark_lab.evaluate.diversity import distinct_ngrams, repeated_ngrams, token_entropy
from dgmark_lab.experiments.cells import CellRows
from dgmark_lab.experiments.estimates import Estimate, mean, perplexity, quantile, share
from dgmark_lab.experiments.figures import Curve, Points, frontier_figure, points_figure
from dgmark_lab.experiments.frontier import WORST, Matched, Measured, matched
from dgmark_lab.experiments.schemes import DGMARK
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.tables import Column, Quantity, Table, number, quantity_table, with_interval
from dgmark_lab.experiments.views.section import Context, Section, tables_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# response tokens that the detector is given
LENGTHS = (64, 128, 256)
RATE = 1e-4

_COLUMNS = [
    Column("perplexity", "perplexity"),
    Column("its worst decile", "worst decile"),
    Column("distinct-2", "distinct-2"),
    Column("distinct-3", "distinct-3"),
    Column("token entropy, bits", "token entropy"),
    Column("4-grams again, %", "repeated 4-grams"),
    Column("evidence, bits a token", "bits"),
    *(Column(f"found in {n} tokens, %", f"TPR {n}") for n in LENGTHS),
    Column("read back, %", "read back"),
]
_DIGITS = {"perplexity": 1, "worst decile": 1, "token entropy": 2, "repeated 4-grams": 1, "read back": 1} | {
    f"TPR {n}": 1 for n in LENGTHS
}


def frontier(context: Context) -> Section:
    """Show every cell, and every scheme at the diversity of unmarked text."""
    measured = {cell.name: one for cell in context.present if (one := _measured(context, cell)) is not None}
    groups = _groups(context, measured)
    quantities = [q for cell in context.present for q in _quantities(cell, measured.get(cell.name))]
    texts = quantity_table("The texts", _in_order(context), quantities, _COLUMNS)
    by_reference = {name: _all_matched(groups, measured, name) for name in _references(context, measured)}
    quantities += [
        Quantity(f"{scheme}, as diverse as {reference}", name, estimate)
        for reference, found in by_reference.items()
        for scheme, one in found.items()
        for name, estimate in {"temperature": one.temperature, "perplexity ratio": one.ratio, **one.figures}.items()
    ]
    tables: list[Table | None] = []
    first = next(iter(by_reference), None)
    if first is not None and by_reference[first]:
        tables = [_matched_table(first, measured[first], by_reference[first]), _ratio_table(by_reference)]
    points = by_reference[first] if first is not None else {}
    figures = _figures(groups, measured, first, points)
    return Section(quantities, tables_of(*tables, texts), figures=figures)


def _figures(
    groups: Mapping[str, Sequence[CellRows]],
    measured: Mapping[str, Measured],
    reference: str | None,
    found: Mapping[str, Matched],
) -> "dict[str, Figure]":
    families = list(dict.fromkeys(_family(cells) for cells in groups.values()))
    curves = [_curve(name, cells, measured, families) for name, cells in groups.items()]
    colours = {curve.name: curve.colour for curve in curves}
    points = [
        Points(name, colours[name], [(one.ratio, one.figures[f"TPR {n}"]) for n in LENGTHS])
        for name, one in found.items()
        if "bits" in one.figures
    ]
    figures: dict[str, Figure] = {}
    if curves:
        figures["perplexity-by-diversity"] = frontier_figure(
            curves,
            x="distinct-2",
            y="perplexity under the judge",
            title="Quality and diversity, over temperatures",
            unit="bits of evidence a token",
        )
    if points and reference is not None:
        figures["found-by-perplexity"] = points_figure(
            points,
            [f"in {n} tokens" for n in LENGTHS],
            reference=1.0,
            x=f"perplexity over that of unmarked text, as diverse as {reference}",
            y=f"found at p <= {RATE:g}, %",
        )
    return figures


def _family(cells: Sequence[CellRows]) -> str:
    return cells[0].cell.scheme or "unmarked"


def _groups(context: Context, measured: Mapping[str, Measured]) -> dict[str, list[CellRows]]:
    """The measured cells of each curve, by its name, in the order of their temperatures."""
    groups: dict[str, list[CellRows]] = {}
    for cell in sorted(context.present, key=lambda one: one.cell.at or 0.0):
        if cell.name in measured and cell.cell.at is not None:
            groups.setdefault(cell.cell.group, []).append(cell)
    order = dict.fromkeys(cell.cell.group for cell in context.cells.values())
    return {name: groups[name] for name in order if name in groups}


def _in_order(context: Context) -> list[str]:
    """The names of all cells, curve by curve, in the order of their temperatures."""
    curves = list(dict.fromkeys(cell.cell.group for cell in context.cells.values()))
    order = sorted(context.cells.values(), key=lambda one: (curves.index(one.cell.group), one.cell.at or 0.0))
    return [cell.name for cell in order]


def _references(context: Context, measured: Mapping[str, Measured]) -> list[str]:
    """The cells to compare at: the experiment's unmarked cell first, then the others of its curve, hottest first."""
    null = context.experiment.null
    if null is None or null not in measured:
        return []
    group = [
        cell.name
        for cell in context.present
        if cell.cell.group == context.cells[null].cell.group and cell.name in measured and cell.name != null
    ]
    return [null, *sorted(group, key=lambda name: -measured[name].temperature)]


def _measured(context: Context, cell: CellRows) -> Measured | None:
    """Measure the texts of a cell; None if some of its texts or perplexities are missing."""
    one = quality(context.store, context.plan, cell)
    return None if one is None else replace(one, others=_variety(cell) | _bits(cell), found=_found(cell))


def quality(store: Store, plan: Mapping[str, Any], cell: CellRows) -> Measured | None:
    """Diversity and perplexity of the texts of a cell; None if some of its texts or perplexities are missing."""
    judge = plan.get("judge")
    if judge is None or not cell.complete:
        return None
    stored = store.read("perplexity", judge["hash"], [row["id"] for row in cell.rows])
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
    reads_back = [100.0 * (row["token_ids"] == ids) for row, ids in zip(cell.rows, cell.ids, strict=True)]
    estimates["read back"] = _percent(np.array(reads_back))
    if one is not None:
        estimates = {
            "perplexity": perplexity(one.nats, one.tokens),
            "worst decile": quantile(one.each, WORST),
            "distinct-2": mean(one.diversity),
            **estimates,
            **{name: _percent(values) for name, values in one.found.items()},
        }
    return [Quantity(cell.name, name, estimate, digits=_DIGITS.get(name, 3)) for name, estimate in estimates.items()]


def _percent(found: Float[np.ndarray, " texts"]) -> Estimate:
    one = share(int((found > 0).sum()), len(found))
    return Estimate(100 * one.value, 100 * one.low, 100 * one.high, one.count)


def _all_matched(
    groups: Mapping[str, Sequence[CellRows]], measured: Mapping[str, Measured], reference: str
) -> dict[str, Matched]:
    """Every other curve at the diversity of the reference, by its name."""
    others = {name: cells for name, cells in groups.items() if all(cell.name != reference for cell in cells)}
    found = {
        name: matched([measured[cell.name] for cell in cells], measured[reference]) for name, cells in others.items()
    }
    return {name: one for name, one in found.items() if one is not None}


_MATCHED = [
    ("at T", "temperature", 2),
    ("perplexity", "perplexity", 1),
    ("over unmarked", "perplexity ratio", 2),
    ("worst decile", "worst decile", 1),
    ("4-grams again, %", "repeated 4-grams", 1),
    ("bits a token", "bits", 3),
    *((f"found in {n}, %", f"TPR {n}", 1) for n in LENGTHS),
]


def _matched_table(reference: str, own: Measured, found: Mapping[str, Matched]) -> Table:
    """Tabulate all schemes at the diversity of the reference, which has the first row."""
    means = {
        "temperature": own.temperature,
        "perplexity": own.perplexity,
        "worst decile": float(np.quantile(own.each, WORST)),
        "repeated 4-grams": float(own.others["repeated 4-grams"].mean()),
    }
    rows = [[reference, *(number(means.get(key, float("nan")), digits) for _, key, digits in _MATCHED)]]
    for name, one in found.items():
        figures = {"temperature": one.temperature, "perplexity ratio": one.ratio, **one.figures}
        rows.append([name, *(_shown(figures.get(key), digits) for _, key, digits in _MATCHED)])
    title = f"As diverse as {reference} (distinct-2 {own.diversity.mean():.3f})"
    return Table(title, ["", *(heading for heading, _, _ in _MATCHED)], rows)


def _ratio_table(by_reference: Mapping[str, Mapping[str, Matched]]) -> Table | None:
    """Tabulate perplexity over that of equally diverse unmarked text, at all its temperatures."""
    shown = {reference: found for reference, found in by_reference.items() if found}
    if len(shown) < 2:
        return None
    schemes = dict.fromkeys(name for found in shown.values() for name in found)
    rows = [
        [name, *(_shown(one.ratio if (one := found.get(name)) else None, 2) for found in shown.values())]
        for name in schemes
    ]
    return Table("Perplexity over that of unmarked text, at the same diversity", ["", *shown], rows)


def _shown(one: Estimate | None, digits: int) -> str:
    return "–" if one is None else with_interval(one, digits)


def _curve(name: str, cells: Sequence[CellRows], measured: Mapping[str, Measured], families: Sequence[str]) -> Curve:
    ones = [measured[cell.name] for cell in cells]
    return Curve(
        name,
        colour=families.index(_family(cells)),
        x=[float(one.diversity.mean()) for one in ones],
        y=[one.perplexity for one in ones],
        size=[float(one.others["bits"].mean()) if "bits" in one.others else None for one in ones],
        labels=[f"{one.temperature:g}" for one in ones],
    )
