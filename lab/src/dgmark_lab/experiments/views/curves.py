"""Curves: detectability by length of the text, and detectability under attacks by their strength."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from dgmark.detection.exact_test import window_statistic
from dgmark_lab.experiments.cells import CellRows, StoredRun
from dgmark_lab.experiments.estimates import Estimate, auc
from dgmark_lab.experiments.figures import Line, line_figure, roc
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
        figures[f"tpr-at-{rate.rstrip('%').replace('.', '_')}-percent"] = line_figure(
            [lines[name] for name in _order(run, lines)],
            x="length of the text, tokens",
            y="TPR, % of marked texts",
            title=f"TPR at a false-positive rate of {rate}{texts}",
            log_x=True,
        )
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
    marked = [cell for cell in run.cells.values() if cell.cell.scheme is not None]
    every = [one for cell in marked for attack in run.experiment.attacks for one in _measured(run, cell, attack)]
    quantities = [
        Quantity(one.cell.name, f"AUC {one.name} {value:g}", ours, paper)
        for one in every
        for value, ours, paper in zip(one.attack.values, one.ours, one.paper, strict=True)
    ]
    tables: list[Table | None] = []
    figures: dict[str, Figure] = {}
    for attack in run.experiment.attacks:
        series = [one for one in every if one.attack == attack]
        tables.append(_auc_table(attack, series))
        figures |= _auc_figures(run, attack, series)
    return Section(quantities, tables, figures=figures)


@dataclass(frozen=True)
class _Series:
    """The AUC of a cell under an attack, by strength.

    Attributes:
        cell: the cell.
        attack: the attack.
        name: the attack's label, with the window length if there are several.
        window: the window length of the statistic; None for a baseline's z.
        ours: the measured values, by strength; None where it was not run.
        paper: the paper's values.
    """

    cell: CellRows
    attack: Attack
    name: str
    window: int | None
    ours: list[Estimate | None]
    paper: list[float | None]

    @property
    def line(self) -> str:
        """Its name in pictures."""
        return self.cell.name + self.name.removeprefix(self.attack.label)


def _measured(run: StoredRun, cell: CellRows, attack: Attack) -> list[_Series]:
    """For dgmark the window statistic of each length, for baselines their z."""
    windows: list[int | None] = [None] if cell.cell.scheme != DGMARK else [*run.experiment.windows]
    found = []
    for window in windows:
        name = attack.label if len(windows) == 1 else f"{attack.label}, w = {window}"
        papers = cell.cell.paper.auc.get(name, [])
        ours = [_auc(run, cell, attack, value, window) for value in attack.values]
        found.append(_Series(cell, attack, name, window, ours, [*papers, *[None] * len(ours)][: len(ours)]))
    return found


def _auc(run: StoredRun, cell: CellRows, attack: Attack, value: float, window: int | None) -> Estimate | None:
    scores = _scores(run, cell, attack, value, window)
    return None if scores is None else auc(*scores)


def _scores(
    run: StoredRun, cell: CellRows, attack: Attack, value: float, window: int | None
) -> tuple[Float[np.ndarray, " marked"], Float[np.ndarray, " unmarked"]] | None:
    """The statistic of attacked texts and of unmarked ones, which are not attacked; None if some are missing."""
    null = run.null_of(cell)
    texts = run.attacked(cell, attack.steps_at(value)) if cell.rows else []
    if null is None or not texts:
        return None
    return _statistic(cell, cell.read(texts), window), _statistic(cell, null.ids, window)


def _statistic(cell: CellRows, ids: list[list[int]], window: int | None) -> Float[np.ndarray, " texts"]:
    """Compute the window statistic of each text under the cell's key, or its z."""
    if window is None:
        return cell.score(ids).z
    modulus = cell.key.spec.modulus
    return np.array([window_statistic(matches(cell, one), modulus, window) for one in ids], dtype=np.float64)


def matches(cell: CellRows, ids: list[int]) -> Bool[np.ndarray, " n"]:
    """Return which tokens match if the first one is at position 0."""
    return cell.key.tables.matching(np.array(ids, dtype=np.int64), np.arange(len(ids)))


def _auc_table(attack: Attack, series: list[_Series]) -> Table | None:
    rows = []
    for one in series:
        pairs = list(zip(one.ours, one.paper, strict=True))
        if all(ours is None and paper is None for ours, paper in pairs):
            continue
        values = [with_interval(o, 3) + ("" if p is None else f" ({number(p, 3)})") for o, p in pairs]
        texts = min(0 if ours is None else ours.count for ours, _ in pairs)
        rows.append([one.cell.name, one.name, str(texts), *values])
    title = f"{attack.label}: AUC by {attack.option} (of attacked texts; brackets: interval, parentheses: paper)"
    return Table(title, ["", "series", "texts", *(f"{value:g}" for value in attack.values)], rows) if rows else None


def _auc_figures(run: StoredRun, attack: Attack, series: list[_Series]) -> "dict[str, Figure]":
    slug = "".join(c if c.isalnum() else "-" for c in attack.label.lower())
    figures: dict[str, Figure] = {}
    if len(attack.values) > 1:
        lines: dict[str, Line] = {}
        for one in series:
            for value, ours, paper in zip(attack.values, one.ours, one.paper, strict=True):
                _add(lines, one.line, value, ours, paper)
        figures[f"auc-{slug}"] = line_figure(
            lines.values(),
            x="budget, share of the tokens" if attack.option == "budget" else attack.option,
            y="AUC against unmarked text",
            title=f"{attack.label}{_texts_each(ours for one in series for ours in one.ours)}",
        )
    strongest = {one.line: _scores(run, one.cell, attack, attack.values[-1], one.window) for one in series}
    curves = {name: scores for name, scores in strongest.items() if scores is not None}
    if curves:
        figures[f"roc-{slug}"] = roc(curves, title=f"{attack.label}, {attack.option} {attack.values[-1]:g}")
    return figures
