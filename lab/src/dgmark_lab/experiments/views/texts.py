"""Views of the texts: matching ratios in windows, lengths, perplexities, and the texts themselves."""

import numpy as np
from jaxtyping import Float

from dgmark_lab.experiments.cells import CellRows
from dgmark_lab.experiments.estimates import Estimate, mean, median, share
from dgmark_lab.experiments.figures import bar_figure, box_figure, density_figure
from dgmark_lab.experiments.tables import Column, Quantity, Table, quantity_table
from dgmark_lab.experiments.views.curves import attacked_texts, matches
from dgmark_lab.experiments.views.detection import cell_quantities, perplexity_rows
from dgmark_lab.experiments.views.section import Context, Section, tables_of

LENGTH_BINS = ((1, 50), (51, 100), (101, 150), (151, 200), (201, 256))


def ratios(context: Context) -> Section:
    """Show densities of the matching ratio in windows: unmarked, marked, and attacked texts."""
    window = context.experiment.windows[0]
    quantities, figures = [], {}
    for cell in (cell for cell in context.present if cell.cell.scheme is not None):
        null = context.null_of(cell)
        unmarked = {"unmarked": window_ratios(cell, null.ids, window)} if null else {}
        marked = window_ratios(cell, cell.ids, window)
        quantities += [_ratio(cell.name, name, values) for name, values in {**unmarked, "intact": marked}.items()]
        for attack in context.experiment.attacks:
            panels = {}
            for value in attack.values:
                texts = attacked_texts(context, cell, attack, value)
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
    tables = [Table(f"Mean matching ratio of {window} tokens", ["", "texts", "ratio"], rows)] if rows else []
    return Section(quantities, tables, figures=figures)


def window_ratios(cell: CellRows, ids: list[list[int]], window: int) -> Float[np.ndarray, " windows"]:
    """Return the share of matching tokens in every window of every text, under the cell's key."""
    ones = [matches(cell, one).astype(np.float64) for one in ids if len(one) >= window]
    shares = [np.convolve(one, np.ones(window) / window, "valid") for one in ones]
    return np.concatenate(shares) if shares else np.zeros(0)


def _ratio(cell: str, name: str, values: Float[np.ndarray, " n"]) -> Quantity:
    # overlapping windows are not independent observations, so an interval would be wrong
    value = float(values.mean()) if len(values) else float("nan")
    return Quantity(cell, name, Estimate(value, float("nan"), float("nan"), len(values)))


def lengths(context: Context) -> Section:
    """Show shares of responses by length, up to the first end token."""
    names = [f"{low}-{high}" for low, high in LENGTH_BINS]
    quantities, bars = [], dict[str, list[Estimate]]()
    for cell in context.cells.values():
        counted = np.array([len(row["token_ids"]) for row in cell.rows])
        paper = cell.cell.paper.lengths
        if paper is not None:
            bars[f"{cell.name}, paper"] = [Estimate(one, one, one, 0) for one in paper]
        inside = [int(((counted >= low) & (counted <= high)).sum()) for low, high in LENGTH_BINS]
        shares = [share(one, len(counted)) for one in inside] if len(counted) else []
        if shares:
            bars[cell.name] = [Estimate(100 * s.value, 100 * s.low, 100 * s.high, s.count) for s in shares]
        for place, name in enumerate(names):
            ours = shares[place] if shares else None
            quantities.append(
                Quantity(cell.name, f"share {name}", ours, None if paper is None else paper[place] / 100, 2)
            )
    table = quantity_table(
        "Share of responses by length in tokens",
        list(context.cells),
        quantities,
        [Column(name, f"share {name}") for name in names],
    )
    groups = dict.fromkeys(cell.cell.group for cell in context.cells.values())
    figures = {
        f"lengths-{group or 'all'}".replace(" ", "-"): bar_figure(
            {name: estimates for name, estimates in bars.items() if _group(context, name) == group},
            names,
            x="length, tokens up to the first end token",
            y="share of responses, %",
            title=f"Lengths of responses {group}".strip(),
        )
        for group in groups
    }
    return Section(quantities, tables_of(table), figures=figures)


def _group(context: Context, name: str) -> str:
    return context.cells[name.removesuffix(", paper")].cell.group


def perplexities(context: Context) -> Section:
    """Show the perplexity of single texts under the judge: median and quartiles."""
    quantities: list[Quantity] = []
    boxes: dict[str, Float[np.ndarray, " texts"]] = {}
    papers: dict[str, float] = {}
    for cell in context.cells.values():
        rows = perplexity_rows(context, cell)
        each = np.array([np.exp(row["nats"] / row["tokens"]) for row in rows])
        paper = cell.cell.paper.perplexity
        quantities.append(Quantity(cell.name, "median perplexity", median(each) if len(each) else None, paper, 2))
        quantities += [q for q in cell_quantities(context, cell) if q.name != "perplexity"]
        if len(each):
            boxes[cell.name] = each
            papers |= {} if paper is None else {cell.name: paper}
    columns = [Column("median perplexity", "median perplexity"), Column("median z", "median z")]
    table = quantity_table("Perplexity of each text, median", list(context.cells), quantities, columns)
    figures = (
        {
            "perplexity": box_figure(
                boxes, papers, y="perplexity of a text under the judge", title=context.experiment.title
            )
        }
        if boxes
        else {}
    )
    return Section(quantities, tables_of(table), figures=figures)


def samples(context: Context) -> Section:
    """Show the texts of each prompt side by side, with their matching ratios."""
    quantities, parts = [], []
    for cell in context.cells.values():
        paper = cell.cell.paper.match_ratios
        quantities.append(
            Quantity(
                cell.name,
                "matching ratio",
                mean(cell.scores.green) if cell.rows else None,
                None if paper is None else float(np.mean(paper)),
            )
        )
    prompts = dict.fromkeys(row["prompt"] for cell in context.present for row in cell.rows)
    for prompt in prompts:
        parts.append(f"### {prompt}\n")
        for cell in context.present:
            for row, green in zip(cell.rows, cell.scores.green, strict=True):
                if row["prompt"] == prompt:
                    text = row["text"].strip().replace("\n", "\n> ")
                    parts.append(f"**{cell.name}** (matching ratio {green:.2f})\n\n> {text}\n")
    table = quantity_table(
        "Mean matching ratio", list(context.cells), quantities, [Column("matching ratio", "matching ratio")]
    )
    return Section(quantities, tables_of(table), "\n".join(parts))
