"""Ratings of the texts by a language model, and how often a marked text is taken for the better one of its pair."""

import numpy as np

from dgmark_lab.evaluate.estimates import Estimate, mean
from dgmark_lab.evaluate.rating import CRITERIA, Preference, Rating, mean_scores
from dgmark_lab.experiments.cells import CellRows, StoredRun
from dgmark_lab.experiments.tables import Quantity, Section, quantities_of, quantity_table

_SCORES = (*CRITERIA, "overall")
_WIN = "share of pairs won"
_PROBLEMS = ("refused", "unparsable")
_COUNTS = ("answers", *_PROBLEMS)
_DIGITS = dict.fromkeys((*_SCORES, _WIN), 2) | dict.fromkeys(_COUNTS, 0)


def ratings(run: StoredRun) -> Section:
    """Show the mean scores of each cell, the share of its pairs that it wins, and the answers that were not read."""
    quantities = [one for cell in run.cells.values() for one in _of_cell(run, cell)]
    tables = {
        "Mean scores, 1 to 5": _SCORES,
        "Marked beside unmarked text of the same prompt, in both orders; a tie counts .5": (_WIN,),
        "Answers without scores or a choice": _COUNTS,
    }
    rater = run.plan.get("rater")
    text = f"Rated by {rater['name']} at temperature {rater['temperature']:g}.\n" if rater else ""
    shown = [quantity_table(title, run.cells, quantities, columns, digits=_DIGITS) for title, columns in tables.items()]
    return Section(quantities, shown, text)


def _of_cell(run: StoredRun, cell: CellRows) -> list[Quantity]:
    """All numbers of one cell; only the paper's if it was not rated."""
    rated = [Rating(row["answer"], row["scores"], row["problem"]) for row in run.ratings(cell)]
    pairs = run.comparisons(cell)
    means, paper = mean_scores(rated), cell.cell.paper.ratings
    found = [Quantity(cell.name, name, means.get(name), paper.get(name)) for name in _SCORES]
    if wins := [row["win"] for row in pairs if row["win"] is not None]:
        found.append(Quantity(cell.name, _WIN, mean(np.array(wins))))
    asked: list[Rating | Preference] = [*rated, *(Preference(**one) for row in pairs for one in row["comparisons"])]
    if asked:
        counts = {"answers": len(asked)} | {name: sum(one.problem == name for one in asked) for name in _PROBLEMS}
        estimates = {name: Estimate(count, count=len(asked)) for name, count in counts.items()}
        found += quantities_of(cell.name, estimates)
    return found
