"""Curves: detectability under attacks by their strength."""

import numpy as np
from jaxtyping import Bool
from matplotlib.figure import Figure

from dgmark.detection.detector import Detector
from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.statistics.position import window_statistic
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import PositionSpec, tables_of
from dgmark_lab.evaluate.estimates import Estimate, auc
from dgmark_lab.experiments.cells import CellRows, PerText, StoredRun
from dgmark_lab.experiments.figures import roc
from dgmark_lab.experiments.spec import Attack
from dgmark_lab.experiments.tables import Quantity, Section, Table, number, with_interval
from dgmark_lab.experiments.views.drawn import About


def area_under_curve(run: StoredRun) -> Section:
    """Show the AUC of every marked cell under every attack, by strength and window, and ROC curves of the strongest."""
    parts = [_under_attack(run, attack) for attack in run.experiment.attacks]
    return Section(
        [q for part in parts for q in part.quantities],
        [table for part in parts for table in part.tables],
        figures={name: figure for part in parts for name, figure in part.figures.items()},
    )


def _under_attack(run: StoredRun, attack: Attack) -> Section:
    """One attack: for rule position the window statistic of each length, for other rules their z."""
    quantities, rows = list[Quantity](), list[list[str]]()
    strongest = dict[str, _Scores]()
    for cell in (cell for cell in run.cells.values() if cell.cell.key is not None):
        windows: list[int | None] = [*run.experiment.windows] if cell.cell.rule == "position" else [None]
        for window in windows:
            suffix = "" if len(windows) == 1 else f", w = {window}"
            papers = dict(zip(attack.values, cell.cell.paper.auc.get(attack.label + suffix, []), strict=False))
            scores = {value: _scores(run, cell, attack, value, window) for value in attack.values}
            ours = {value: auc(*one) for value, one in scores.items() if one is not None}
            for value in attack.values:
                name = f"AUC {attack.label}{suffix} {value:g}"
                quantities.append(Quantity(cell.name, name, ours.get(value), papers.get(value)))
            if ours or papers:
                texts = min(ours[value].count if value in ours else 0 for value in attack.values)
                shown = [_beside(ours.get(value), papers.get(value)) for value in attack.values]
                rows.append([cell.name, attack.label + suffix, str(texts), *shown])
            if (last := scores[attack.values[-1]]) is not None:
                strongest[cell.name + suffix] = last
    title = f"{attack.label}: AUC by {attack.option} (of attacked texts; brackets: interval, parentheses: paper)"
    table = Table(title, ["", "series", "texts", *(f"{value:g}" for value in attack.values)], rows) if rows else None
    figures: dict[str, Figure] = {}
    if strongest:
        about, value = About.of(run), attack.values[-1]
        question = about.question(f"How well does each rate tell them apart after {attack.label} of {value:g}?")
        figures[f"roc-{attack.slug}"] = roc(strongest, question=question, caption=about.caption(()))
    return Section(quantities, [table], figures=figures)


def _beside(ours: Estimate | None, paper: float | None) -> str:
    return with_interval(ours, 3) + ("" if paper is None else f" ({number(paper, 3)})")


# the statistic of marked and of unmarked texts
_Scores = tuple[PerText, PerText]


def _scores(run: StoredRun, cell: CellRows, attack: Attack, value: float, window: int | None) -> _Scores | None:
    """The statistic of attacked texts and of unmarked ones, which are not attacked; None if some are missing."""
    null = run.null_of(cell)
    attacked = run.attacked(cell, attack.steps_at(value))
    if null is None or not attacked.rows:
        return None
    return _statistic(attacked, attacked.ids, window), _statistic(cell.over(null.rows), null.ids, window)


def _statistic(cell: CellRows, ids: list[list[int]], window: int | None) -> PerText:
    """Compute the window statistic of each text of a cell under its keys, or its z."""
    if window is None:
        return cell.score(ids).z
    modulus = tables_of(cell.key).spec.modulus
    matched = [matches(cell.key_of(row), one) for row, one in zip(cell.rows, ids, strict=True)]
    return np.array([window_statistic(one, modulus, window) for one in matched if one is not None], dtype=np.float64)


def matches(key: WatermarkKey, ids: list[int]) -> Bool[np.ndarray, " n"] | None:
    """Return which tokens match, by rule position if the first one is at position 0; None if the rule does not say."""
    positions = np.arange(len(ids))
    if isinstance(key.spec, PositionSpec):
        return tables_of(key).matching(np.array(ids, dtype=np.int64), positions)
    detector = Detector(key)
    scored = ScoredIds(np.array(ids, dtype=np.int64), positions)
    return detector.test(scored).matched_tokens(detector.score(scored))
