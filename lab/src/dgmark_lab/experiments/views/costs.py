"""The cost of a mark: decoding time, accuracy on benchmarks, and ratings by a language model."""

import numpy as np

from dgmark.rows.jsonl import Row
from dgmark_lab.experiments.cells import CellRows
from dgmark_lab.experiments.estimates import mean, median, share
from dgmark_lab.experiments.tables import Column, Quantity, quantity_table
from dgmark_lab.experiments.views.section import Context, Section, tables_of

CRITERIA = ("coherence", "clarity", "naturalness", "overall")


def timing(context: Context) -> Section:
    """Show the decoding time per token, and its median ratio to the unmarked decode of the same prompt."""
    machine = context.plan.get("machine")
    stored = context.store.read("timings", machine) if machine else {}
    quantities: list[Quantity] = []
    for cell in context.cells.values():
        times = _times(cell, stored)
        null = context.experiment.null_of(cell.cell) or context.experiment.null
        base = _times(context.cells[null], stored) if null else {}
        ratios = np.array([times[at] / base[at] for at in times if at in base])
        each = median(np.array([1000 * one for one in times.values()])) if times else None
        quantities += [
            Quantity(cell.name, "ms per token", each, cell.cell.paper.ms_per_token, 2),
            Quantity(cell.name, "overhead", median(ratios) if len(ratios) else None, cell.cell.paper.overhead, 2),
        ]
    columns = [Column("ms per token", "ms per token"), Column("overhead", "overhead")]
    table = quantity_table("Decoding time, one text at a time (medians)", list(context.cells), quantities, columns)
    device = next((row["machine"] for row in stored.values()), None)
    text = "" if device is None else f"Measured on {device['device']}, {device['threads']} threads.\n"
    return Section(quantities, tables_of(table), text)


def _times(cell: CellRows, stored: dict[str, Row]) -> dict[int, float]:
    """Return seconds per token by the prompt's place."""
    ids = [] if cell.plan is None else cell.plan["rows"]
    return {at: stored[row]["seconds"] / stored[row]["tokens"] for at, row in enumerate(ids) if row in stored}


def benchmark(context: Context) -> Section:
    """Show the accuracy by benchmark with Wilson's interval, from the run with the most questions."""
    quantities = []
    for cell in context.cells.values():
        stored = {} if cell.plan is None else context.store.read("benchmarks", cell.plan["recipe"])
        for task in context.experiment.tasks:
            rows = [row for row in stored.values() if row["task"] == task]
            row = max(rows, key=lambda row: int(row["count"]), default=None)
            ours = None if row is None else share(round(row["value"] * row["count"]), row["count"])
            quantities.append(Quantity(cell.name, task, ours, cell.cell.paper.accuracy.get(task)))
    columns = [Column(task, task) for task in context.experiment.tasks]
    return Section(quantities, tables_of(quantity_table("Accuracy", list(context.cells), quantities, columns)))


def ratings(context: Context) -> Section:
    """Show the mean ratings by a language model (the paper's GPT-as-a-judge), 1 to 5."""
    quantities = []
    model = context.plan.get("rater")
    for cell in context.cells.values():
        stored = context.store.read("judged", model, [row["id"] for row in cell.rows]) if model else {}
        for criterion in CRITERIA:
            each = np.array([float(row["scores"][criterion]) for row in stored.values()])
            paper = cell.cell.paper.judged.get(criterion)
            quantities.append(Quantity(cell.name, criterion, mean(each) if len(each) else None, paper, 2))
    columns = [Column(criterion, criterion) for criterion in CRITERIA]
    return Section(
        quantities, tables_of(quantity_table("Scores of the rater", list(context.cells), quantities, columns))
    )
