"""Curves: detectability by length of the text, and detectability under attacks by their strength."""

from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Bool, Float

from dgmark.detection.edit_test import window_statistic
from dgmark_lab.experiments.attacked_texts import attack_hash, attacked_ids
from dgmark_lab.experiments.cells import CellRows
from dgmark_lab.experiments.estimates import Estimate, auc
from dgmark_lab.experiments.figures import Line, line_figure, roc
from dgmark_lab.experiments.schemes import DGMARK
from dgmark_lab.experiments.spec import RATES, Attack
from dgmark_lab.experiments.tables import Quantity, Table, number, with_interval
from dgmark_lab.experiments.views.detection import detection
from dgmark_lab.experiments.views.section import Context, Section, tables_of


def length_curve(context: Context) -> Section:
    """Show detectability by length: the tables, and for each false-positive rate one line per group."""
    tables = detection(context)
    ours = {(q.cell, q.name): q for q in tables.quantities}
    figures = {}
    groups = dict.fromkeys(cell.cell.group for cell in context.cells.values() if cell.cell.at is not None)
    for rate in RATES:
        by_cell = {cell: ours.get((cell, f"TPR p<={rate}")) for cell in context.cells}
        figures[f"tpr-at-{rate.rstrip('%').replace('.', '_')}-percent"] = line_figure(
            [line for group in groups for line in _lines(context, group, by_cell)],
            x="length of the text, tokens",
            y="TPR, % of marked texts",
            title=f"TPR at a false-positive rate of {rate}{_texts_each(by_cell.values())}",
            logarithmic=True,
        )
    return Section(tables.quantities, tables.tables, figures=figures)


def _texts_each(quantities: Iterable[Quantity | None]) -> str:
    """How many texts stand behind each measured point, for a title."""
    counts = sorted({q.ours.count for q in quantities if q and q.ours})
    if not counts:
        return ""
    return f" (n = {counts[0]:,}{f' to {counts[-1]:,}' if len(counts) > 1 else ''} texts a point)"


def _lines(context: Context, group: str, by_cell: Mapping[str, Quantity | None]) -> list[Line]:
    cells = sorted(
        (cell.cell for cell in context.cells.values() if cell.cell.group == group and cell.cell.at is not None),
        key=lambda cell: cell.at or 0.0,
    )
    ours = [(cell.at or 0.0, q.ours) for cell in cells if (q := by_cell[cell.name]) and q.ours]
    paper = [(cell.at or 0.0, q.paper) for cell in cells if (q := by_cell[cell.name]) and q.paper is not None]
    return [
        Line(group, [at for at, _ in ours], [one.value for _, one in ours], [(one.low, one.high) for _, one in ours]),
        Line(f"{group}, paper", [at for at, _ in paper], [value for _, value in paper], dashed=True),
    ]


def area_under_curve(context: Context) -> Section:
    """Show the AUC of every marked cell under every attack, by strength and window, and ROC curves of the strongest."""
    marked = [cell for cell in context.cells.values() if cell.cell.scheme is not None]
    quantities, tables, figures = [], [], {}
    for cell in marked:
        for attack in context.experiment.attacks:
            for series, statistic in _statistics(context, cell, attack).items():
                quantities += _series(context, cell, attack, series, statistic)
    for attack in context.experiment.attacks:
        tables.append(_auc_table(attack, quantities))
        lines = [line for cell in marked for line in _auc_lines(cell, attack, quantities)]
        if len(attack.values) > 1:
            figures[f"auc-{_slug(attack.label)}"] = line_figure(
                lines,
                x=_STRENGTHS.get(attack.option, attack.option),
                y="AUC against unmarked text",
                title=f"{attack.label}{_texts_each(q for q in quantities if _of(q, attack))}",
            )
        curves = _roc_scores(context, marked, attack)
        if curves:
            figures[f"roc-{_slug(attack.label)}"] = roc(
                curves, title=f"{attack.label}, {attack.option} {attack.values[-1]:g}"
            )
    return Section(quantities, tables_of(*tables), figures=figures)


_STRENGTHS = {"budget": "budget, share of the tokens"}


def _of(quantity: Quantity, attack: Attack) -> bool:
    """Whether a quantity is an AUC of this attack."""
    series = quantity.name.removeprefix("AUC ").rpartition(" ")[0]
    return quantity.name.startswith(f"AUC {attack.label}") and series.partition(", w = ")[0] == attack.label


def _slug(label: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in label.lower())


# window length, or None for the scheme's z
Statistic = int | None


def _statistics(context: Context, cell: CellRows, attack: Attack) -> dict[str, Statistic]:
    """Return the series of a cell: for dgmark the window statistic of each length, for other schemes their z."""
    windows = context.experiment.windows
    if cell.cell.scheme != DGMARK:
        return {attack.label: None}
    return {attack.label if len(windows) == 1 else f"{attack.label}, w = {w}": w for w in windows}


def statistic_of(cell: CellRows, ids: list[list[int]], window: Statistic) -> Float[np.ndarray, " texts"]:
    """Compute the window statistic of each text under the cell's key, or its z."""
    if window is None:
        return cell.score(ids).z
    return np.array([window_statistic(matches(cell, one), _modulus(cell), window) for one in ids], dtype=np.float64)


def matches(cell: CellRows, ids: list[int]) -> Bool[np.ndarray, " n"]:
    """Return which tokens match if the first one is at position 0."""
    assert cell.key is not None
    return cell.key.tables.matching(np.array(ids, dtype=np.int64), np.arange(len(ids)))


def _modulus(cell: CellRows) -> int:
    assert cell.key is not None
    return cell.key.spec.modulus


def attacked_texts(context: Context, cell: CellRows, attack: Attack, value: float) -> list[str]:
    """Read the attacked texts of a cell that exist."""
    if not value:
        return [row["text"] for row in cell.rows]
    ids = attacked_ids(attack, value, [row["id"] for row in cell.rows])
    stored = context.store.read("attacked", attack_hash(attack, value), ids)
    return [stored[row_id]["text"] for row_id in ids if row_id in stored]


def _series(context: Context, cell: CellRows, attack: Attack, series: str, statistic: Statistic) -> list[Quantity]:
    papers = cell.cell.paper.auc.get(series, [])
    null = context.null_of(cell)
    unmarked = statistic_of(cell, null.ids, statistic) if null and cell.rows else np.array([])
    series_quantities = []
    for place, value in enumerate(attack.values):
        ours: Estimate | None = None
        if len(unmarked):
            texts = attacked_texts(context, cell, attack, value)
            ours = auc(statistic_of(cell, cell.read(texts), statistic), unmarked) if texts else None
        series_quantities.append(
            Quantity(cell.name, f"AUC {series} {value:g}", ours, papers[place] if place < len(papers) else None)
        )
    return series_quantities


def _auc_table(attack: Attack, quantities: list[Quantity]) -> Table | None:
    rows: dict[tuple[str, str], list[str]] = {}
    texts: dict[tuple[str, str], list[int]] = {}
    for q in quantities:
        series = q.name.removeprefix("AUC ").rpartition(" ")[0]
        if _of(q, attack):
            ours = "–" if q.ours is None else with_interval(q.ours, 3)
            texts.setdefault((q.cell, series), []).append(q.ours.count if q.ours else 0)
            rows.setdefault((q.cell, series), []).append(ours if q.paper is None else f"{ours} ({number(q.paper, 3)})")
    known = {key: row for key, row in rows.items() if any(cell != "–" for cell in row)}
    if not known:
        return None
    return Table(
        f"{attack.label}: AUC by {attack.option} (of attacked texts; brackets: interval, parentheses: paper)",
        ["", "series", "texts", *(f"{value:g}" for value in attack.values)],
        [[cell, series, str(min(texts[cell, series])), *row] for (cell, series), row in known.items()],
    )


def _auc_lines(cell: CellRows, attack: Attack, quantities: list[Quantity]) -> list[Line]:
    lines: dict[str, Line] = {}
    for q in quantities:
        series, _, at = q.name.removeprefix("AUC ").rpartition(" ")
        if q.cell != cell.name or series.partition(", w = ")[0] != attack.label:
            continue
        name = cell.name + series.removeprefix(attack.label)
        if q.ours is not None:
            lines.setdefault(name, Line(name, [], [], [])).add(float(at), q.ours.value, (q.ours.low, q.ours.high))
        if q.paper is not None:
            lines.setdefault(f"{name}, paper", Line(f"{name}, paper", [], [], dashed=True)).add(float(at), q.paper)
    return list(lines.values())


def _roc_scores(
    context: Context, marked: list[CellRows], attack: Attack
) -> dict[str, tuple[Float[np.ndarray, " n"], Float[np.ndarray, " m"]]]:
    curves = {}
    for cell in marked:
        null = context.null_of(cell)
        texts = attacked_texts(context, cell, attack, attack.values[-1]) if cell.rows else []
        if null is None or not texts:
            continue
        for series, statistic in _statistics(context, cell, attack).items():
            yes, no = statistic_of(cell, cell.read(texts), statistic), statistic_of(cell, null.ids, statistic)
            curves[cell.name + series.removeprefix(attack.label)] = (yes, no)
    return curves
