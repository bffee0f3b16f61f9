"""The cost of a mark: decoding time, accuracy on benchmarks, and ratings by a language model."""

import numpy as np

from dgmark.rows.jsonl import Row
from dgmark_lab.experiments.cells import CellRows, StoredRun
from dgmark_lab.experiments.estimates import mean, median, share
from dgmark_lab.experiments.tables import Quantity, Section, quantity_table

CRITERIA = ("coherence", "clarity", "naturalness", "overall")


def timing(run: StoredRun) -> Section:
    """Show the decoding time per token, and its median ratio to the unmarked decode of the same prompt."""
    machine = run.plan.get("machine")
    stored = run.store.read("timings", machine) if machine else {}
    quantities: list[Quantity] = []
    for cell in run.cells.values():
        times = _times(cell, stored)
        null = run.experiment.null_of(cell.cell) or run.experiment.null
        base = _times(run.cells[null], stored) if null else {}
        ratios = np.array([times[at] / base[at] for at in times if at in base])
        each = median(np.array([1000 * one for one in times.values()])) if times else None
        quantities += [
            Quantity(cell.name, "ms per token", each, cell.cell.paper.ms_per_token, 2),
            Quantity(cell.name, "overhead", median(ratios) if len(ratios) else None, cell.cell.paper.overhead, 2),
        ]
    columns = {"ms per token": "ms per token", "overhead": "overhead"}
    table = quantity_table("Decoding time, one text at a time (medians)", run.cells, quantities, columns)
    device = next((row["machine"] for row in stored.values()), None)
    text = "" if device is None else f"Measured on {device['device']}, {device['threads']} threads.\n"
    return Section(quantities, [table], text)


def _times(cell: CellRows, stored: dict[str, Row]) -> dict[int, float]:
    """Return seconds per token by the prompt's place."""
    ids = [] if cell.plan is None else cell.plan["rows"]
    return {at: stored[row]["seconds"] / stored[row]["tokens"] for at, row in enumerate(ids) if row in stored}


def benchmark(run: StoredRun) -> Section:
    """Show the accuracy by benchmark with Wilson's interval, from the run with the most questions."""
    quantities = []
    for cell in run.cells.values():
        stored = {} if cell.plan is None else run.store.read("benchmarks", cell.plan["recipe"])
        for task in run.experiment.tasks:
            rows = [row for row in stored.values() if row["task"] == task]
            row = max(rows, key=lambda row: int(row["count"]), default=None)
            ours = None if row is None else share(round(row["value"] * row["count"]), row["count"])
            quantities.append(Quantity(cell.name, task, ours, cell.cell.paper.accuracy.get(task)))
    columns = {task: task for task in run.experiment.tasks}
    return Section(quantities, [quantity_table("Accuracy", run.cells, quantities, columns)])


def ratings(run: StoredRun) -> Section:
    """Show the mean ratings by a language model (the paper's GPT-as-a-judge), 1 to 5."""
    quantities = []
    model = run.plan.get("rater")
    for cell in run.cells.values():
        stored = run.store.read("judged", model, [row["id"] for row in cell.rows]) if model else {}
        for criterion in CRITERIA:
            each = np.array([float(row["scores"][criterion]) for row in stored.values()])
            paper = cell.cell.paper.judged.get(criterion)
            quantities.append(Quantity(cell.name, criterion, mean(each) if len(each) else None, paper, 2))
    columns = {criterion: criterion for criterion in CRITERIA}
    return Section(quantities, [quantity_table("Scores of the rater", run.cells, quantities, columns)])
