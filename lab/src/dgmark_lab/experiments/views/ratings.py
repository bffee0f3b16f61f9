"""Ratings of the texts by a language model, and how often a marked text is taken for the better one of its pair."""

import numpy as np

from dgmark_lab.evaluate.estimates import Estimate, mean
from dgmark_lab.evaluate.rating import CRITERIA, Preference, Rating, mean_scores
from dgmark_lab.experiments.cells import CellRows, StoredRun
from dgmark_lab.experiments.tables import Quantity, Section, quantity_table

_SCORES = (*CRITERIA, "overall")
_WIN = "share of pairs won"


def ratings(run: StoredRun) -> Section:
    """Show the mean scores of each cell, the share of its pairs that it wins, and the answers that were not read."""
    quantities = [one for cell in run.cells.values() for one in _of_cell(run, cell)]
    scores = quantity_table("Mean scores, 1 to 5", run.cells, quantities, {name: name for name in _SCORES})
    wins = quantity_table(
        "Marked beside unmarked text of the same prompt, in both orders; a tie counts .5",
        run.cells,
        quantities,
        {_WIN: _WIN},
    )
    unread = quantity_table(
        "Answers without scores or a choice",
        run.cells,
        quantities,
        {"answers": "answers", "refused": "refused", "unparsable": "unparsable"},
    )
    rater = run.plan.get("rater")
    text = f"Rated by {rater['name']} at temperature {rater['temperature']:g}.\n" if rater else ""
    return Section(quantities, [scores, wins, unread], text)


def _of_cell(run: StoredRun, cell: CellRows) -> list[Quantity]:
    """All numbers of one cell; only the paper's if it was not rated."""
    rated = [Rating(row["answer"], row["scores"], row["problem"]) for row in run.ratings(cell)]
    pairs = run.comparisons(cell)
    means, paper = mean_scores(rated), cell.cell.paper.ratings
    found = [Quantity(cell.name, name, means.get(name), paper.get(name), 2) for name in _SCORES]
    wins = [row["win"] for row in pairs if row["win"] is not None]
    if wins:
        found.append(Quantity(cell.name, _WIN, mean(np.array(wins)), digits=2))
    asked: list[Rating | Preference] = [*rated, *(Preference(**one) for row in pairs for one in row["comparisons"])]
    if asked:
        counts = {name: sum(one.problem == name for one in asked) for name in ("refused", "unparsable")}
        counts = {"answers": len(asked), **counts}
        found += [
            Quantity(cell.name, name, Estimate(count, count=len(asked)), digits=0) for name, count in counts.items()
        ]
    return found
