"""Curves: detectability by length of the text, and detectability under attacks by their strength."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool

from dgmark.detection.position import window_statistic
from dgmark.watermark.position import tables_of
from dgmark_lab.evaluate.estimates import Estimate, auc
from dgmark_lab.experiments.cells import CellRows, PerText, StoredRun
from dgmark_lab.experiments.figures import Line, line_panels, roc
from dgmark_lab.experiments.spec import DGMARK, RATES, Attack
from dgmark_lab.experiments.tables import Quantity, Section, Table, number, with_interval
from dgmark_lab.experiments.views.detection import detection

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def length_curve(run: StoredRun) -> Section:
    """Show detectability by length: the tables, and for each false-positive rate one line per group."""
    tables = detection(run)
    known = {(q.cell, q.name): q for q in tables.quantities}
    figures = {}
    for rate in RATES:
        quantity, lines = f"TPR p<={rate}", dict[str, Line]()
        shown = [cell.cell for cell in run.cells.values() if cell.cell.at is not None]
        for cell in sorted(shown, key=lambda cell: cell.at or 0.0):
            if q := known.get((cell.name, quantity)):
                _add(lines, cell.group, cell.at or 0.0, q.ours, q.paper)
        texts = _texts_each(q.ours for (_, name), q in known.items() if name == quantity)
        title = f"TPR at a false-positive rate of {rate}{texts}"
        panel = {title: [lines[name] for name in _order(run, lines)]}
        figure = line_panels(panel, x="length of the text, tokens", y="TPR, % of marked texts", log_x=True)
        figures[f"tpr-at-{rate.rstrip('%').replace('.', '_')}-percent"] = figure
    return Section(tables.quantities, tables.tables, figures=figures)


def _order(run: StoredRun, lines: Iterable[str]) -> list[str]:
    """The lines in the order of the file, the paper's behind ours."""
    groups = [cell.cell.group for cell in run.cells.values()]
    return sorted(lines, key=lambda name: (groups.index(name.removesuffix(", paper")), name.endswith(", paper")))


def _add(lines: dict[str, Line], name: str, x: float, ours: Estimate | None, paper: float | None) -> None:
    """Add a point to our line, and to the paper's."""
    if ours is not None:
        lines.setdefault(name, Line(name)).points.append((Estimate(x), ours))
    if paper is not None:
        lines.setdefault(f"{name}, paper", Line(f"{name}, paper")).points.append((Estimate(x), Estimate(paper)))


def _texts_each(estimates: Iterable[Estimate | None]) -> str:
    """How many texts stand behind each measured point, for a title."""
    counts = sorted({one.count for one in estimates if one is not None})
    if not counts:
        return ""
    return f" (n = {counts[0]:,}{f' to {counts[-1]:,}' if len(counts) > 1 else ''} texts a point)"


def area_under_curve(run: StoredRun) -> Section:
    """Show the AUC of every marked cell under every attack, by strength and window, and ROC curves of the strongest."""
    parts = [_under_attack(run, attack) for attack in run.experiment.attacks]
    return Section(
        [q for part in parts for q in part.quantities],
        [table for part in parts for table in part.tables],
        figures={name: figure for part in parts for name, figure in part.figures.items()},
    )


def _under_attack(run: StoredRun, attack: Attack) -> Section:
    """One attack: for dgmark the window statistic of each length, for baselines their z."""
    quantities, rows = list[Quantity](), list[list[str]]()
    lines, strongest = dict[str, Line](), dict[str, _Scores]()
    for cell in (cell for cell in run.cells.values() if cell.cell.scheme is not None):
        windows: list[int | None] = [None] if cell.cell.scheme != DGMARK else [*run.experiment.windows]
        for window in windows:
            suffix = "" if len(windows) == 1 else f", w = {window}"
            papers = dict(zip(attack.values, cell.cell.paper.auc.get(attack.label + suffix, []), strict=False))
            scores = {value: _scores(run, cell, attack, value, window) for value in attack.values}
            ours = {value: auc(*one) for value, one in scores.items() if one is not None}
            for value in attack.values:
                name = f"AUC {attack.label}{suffix} {value:g}"
                quantities.append(Quantity(cell.name, name, ours.get(value), papers.get(value)))
                _add(lines, cell.name + suffix, value, ours.get(value), papers.get(value))
            if ours or papers:
                texts = min(ours[value].count if value in ours else 0 for value in attack.values)
                shown = [_beside(ours.get(value), papers.get(value)) for value in attack.values]
                rows.append([cell.name, attack.label + suffix, str(texts), *shown])
            if (last := scores[attack.values[-1]]) is not None:
                strongest[cell.name + suffix] = last
    title = f"{attack.label}: AUC by {attack.option} (of attacked texts; brackets: interval, parentheses: paper)"
    table = Table(title, ["", "series", "texts", *(f"{value:g}" for value in attack.values)], rows) if rows else None
    slug = "".join(c if c.isalnum() else "-" for c in attack.label.lower())
    figures: dict[str, Figure] = {}
    if len(attack.values) > 1:
        panel = {f"{attack.label}{_texts_each(q.ours for q in quantities)}": lines.values()}
        x = "budget, share of the tokens" if attack.option == "budget" else attack.option
        figures[f"auc-{slug}"] = line_panels(panel, x=x, y="AUC against unmarked text")
    if strongest:
        figures[f"roc-{slug}"] = roc(strongest, title=f"{attack.label}, {attack.option} {attack.values[-1]:g}")
    return Section(quantities, [table], figures=figures)


def _beside(ours: Estimate | None, paper: float | None) -> str:
    return with_interval(ours, 3) + ("" if paper is None else f" ({number(paper, 3)})")


# the statistic of marked and of unmarked texts
_Scores = tuple[PerText, PerText]


def _scores(run: StoredRun, cell: CellRows, attack: Attack, value: float, window: int | None) -> _Scores | None:
    """The statistic of attacked texts and of unmarked ones, which are not attacked; None if some are missing."""
    null = run.null_of(cell)
    texts = run.attacked(cell, attack.steps_at(value)) if cell.rows else []
    if null is None or not texts:
        return None
    return _statistic(cell, cell.read(texts), window), _statistic(cell, null.ids, window)


def _statistic(cell: CellRows, ids: list[list[int]], window: int | None) -> PerText:
    """Compute the window statistic of each text under the cell's key, or its z."""
    if window is None:
        return cell.score(ids).z
    modulus = tables_of(cell.key).spec.modulus
    return np.array([window_statistic(matches(cell, one), modulus, window) for one in ids], dtype=np.float64)


def matches(cell: CellRows, ids: list[int]) -> Bool[np.ndarray, " n"]:
    """Return which tokens match if the first one is at position 0."""
    return tables_of(cell.key).matching(np.array(ids, dtype=np.int64), np.arange(len(ids)))
