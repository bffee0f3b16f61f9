"""Views of the texts: matching ratios in windows, and the texts themselves."""

import numpy as np
from jaxtyping import Float

from dgmark_lab.evaluate.estimates import Estimate, mean
from dgmark_lab.experiments.cells import CellRows, StoredRun
from dgmark_lab.experiments.figures import density_figure
from dgmark_lab.experiments.tables import Quantity, Section, Table, number, quantity_table
from dgmark_lab.experiments.views.curves import matches
from dgmark_lab.experiments.views.drawn import About


def ratios(run: StoredRun) -> Section:
    """Show densities of the matching ratio in windows: unmarked, marked, and attacked texts."""
    window = run.experiment.windows[0]
    quantities, figures = [], {}
    for cell in (cell for cell in run.present if cell.cell.key is not None):
        null = run.null_of(cell)
        unmarked = {"unmarked": window_ratios(cell.over(null.rows), window)} if null else {}
        marked = window_ratios(cell, window)
        quantities += [_ratio(cell.name, name, values) for name, values in {**unmarked, "intact": marked}.items()]
        for attack in run.experiment.attacks:
            panels = {}
            for value in attack.values:
                attacked = run.attacked(cell, attack.steps_at(value))
                if attacked.rows:
                    changed = window_ratios(attacked, window)
                    quantities.append(_ratio(cell.name, f"{attack.label} {value:g}", changed))
                    panels[f"{attack.option} {value:g}"] = {**unmarked, "marked": marked, "attacked": changed}
            if panels:
                about = About.of(run)
                question = about.question(f"What does {attack.label} do to the matching ratio of {cell.name}?")
                figures[f"ratios-{attack.label}-{cell.name}".replace(" = ", "-").replace(" ", "-")] = density_figure(
                    panels,
                    x=f"matching ratio of {window} tokens",
                    question=question,
                    caption=about.caption([Estimate(0.0, count=len(cell.ids))]),
                )
    rows = [[q.cell, q.name, "–" if q.ours is None else number(q.ours.value, 3)] for q in quantities]
    table = Table(f"Mean matching ratio of {window} tokens", ["", "texts", "ratio"], rows)
    return Section(quantities, [table if rows else None], figures=figures)


def window_ratios(cell: CellRows, window: int) -> Float[np.ndarray, " windows"]:
    """Return the share of matching tokens in every window of every text; none if the rule tells no tokens apart."""
    ones = [matches(cell.key_of(row), ids) for row, ids in zip(cell.rows, cell.ids, strict=True) if len(ids) >= window]
    shares = [np.convolve(one, np.ones(window) / window, "valid") for one in ones if one is not None]
    return np.concatenate(shares) if shares else np.zeros(0)


def _ratio(cell: str, name: str, values: Float[np.ndarray, " n"]) -> Quantity:
    # overlapping windows are not independent observations, so an interval would be wrong
    value = float(values.mean()) if len(values) else float("nan")
    return Quantity(cell, name, Estimate(value, count=len(values)))


def samples(run: StoredRun) -> Section:
    """Show the texts of each prompt side by side, with their matching ratios."""
    quantities, parts = [], []
    for cell in run.cells.values():
        paper = cell.cell.paper.match_ratios
        ours = mean(cell.scores.green) if cell.rows else None
        quantities.append(Quantity(cell.name, "matching ratio", ours, None if paper is None else float(np.mean(paper))))
    for prompt in dict.fromkeys(row["prompt"] for cell in run.present for row in cell.rows):
        parts.append(f"### {prompt}\n")
        for cell in run.present:
            for row, green in zip(cell.rows, cell.scores.green, strict=True):
                if row["prompt"] == prompt:
                    text = row["text"].strip().replace("\n", "\n> ")
                    parts.append(f"**{cell.name}** (matching ratio {green:.2f})\n\n> {text}\n")
    table = quantity_table("Mean matching ratio", run.cells, quantities, ["matching ratio"])
    return Section(quantities, [table], "\n".join(parts))
