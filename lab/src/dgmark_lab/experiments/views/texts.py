"""Views of the texts: matching ratios in windows, and the texts themselves."""

import numpy as np
from jaxtyping import Float

from dgmark_lab.evaluate.estimates import Estimate, mean
from dgmark_lab.experiments.cells import CellRows, StoredRun
from dgmark_lab.experiments.figures import density_figure
from dgmark_lab.experiments.tables import Quantity, Section, Table, quantity_table
from dgmark_lab.experiments.views.curves import matches


def ratios(run: StoredRun) -> Section:
    """Show densities of the matching ratio in windows: unmarked, marked, and attacked texts."""
    window = run.experiment.windows[0]
    quantities, figures = [], {}
    for cell in (cell for cell in run.present if cell.cell.scheme is not None):
        null = run.null_of(cell)
        unmarked = {"unmarked": window_ratios(cell, null.ids, window)} if null else {}
        marked = window_ratios(cell, cell.ids, window)
        quantities += [_ratio(cell.name, name, values) for name, values in {**unmarked, "intact": marked}.items()]
        for attack in run.experiment.attacks:
            panels = {}
            for value in attack.values:
                texts = run.attacked(cell, attack.steps_at(value))
                if texts:
                    changed = window_ratios(cell, cell.read(texts), window)
                    quantities.append(_ratio(cell.name, f"{attack.label} {value:g}", changed))
                    panels[f"{attack.option} {value:g}"] = {**unmarked, "marked": marked, "attacked": changed}
            if panels:
                title = f"{cell.name}, {attack.label} (n = {len(cell.ids):,} texts)"
                figures[f"ratios-{attack.label}-{cell.name}".replace(" = ", "-").replace(" ", "-")] = density_figure(
                    panels, x=f"matching ratio of {window} tokens", title=title
                )
    rows = [[q.cell, q.name, "–" if q.ours is None else f"{q.ours.value:.3f}"] for q in quantities]
    table = Table(f"Mean matching ratio of {window} tokens", ["", "texts", "ratio"], rows)
    return Section(quantities, [table if rows else None], figures=figures)


def window_ratios(cell: CellRows, ids: list[list[int]], window: int) -> Float[np.ndarray, " windows"]:
    """Return the share of matching tokens in every window of every text, under the cell's key."""
    ones = [matches(cell, one).astype(np.float64) for one in ids if len(one) >= window]
    shares = [np.convolve(one, np.ones(window) / window, "valid") for one in ones]
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
    columns = {"matching ratio": "matching ratio"}
    return Section(
        quantities, [quantity_table("Mean matching ratio", run.cells, quantities, columns)], "\n".join(parts)
    )
