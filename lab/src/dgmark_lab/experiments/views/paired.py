"""The digits of evidence of cells beside those of the first, prompt by prompt.

Digits are -log10 of the p-value of `dgmark detect`, by count. The ratio is that of the sums over the prompts of which
both texts are long enough; its interval is a bootstrap over prompts.
"""

from collections.abc import Sequence

import numpy as np

from dgmark.errors import SettingsError
from dgmark_lab.evaluate.estimates import mean, percent, ratio
from dgmark_lab.experiments.cells import RATE, CellRows, StoredRun
from dgmark_lab.experiments.tables import Table, with_interval

_COLUMNS = ["cell", "texts", "digits of the first", "digits", "ratio", "found of the first, %", "found, %"]


def paired(run: StoredRun, names: Sequence[str]) -> Table:
    """Tabulate cells by name; the first is what the others are compared with.

    Raises:
        SettingsError: the run has no texts of a cell.
    """
    present = {cell.name: cell for cell in run.present}
    if missing := [name for name in names if name not in present]:
        raise SettingsError(f"the run has no texts of {', '.join(map(repr, missing))}; it has {', '.join(present)}")
    first, *others = (_digits(present[name]) for name in names)
    rows = []
    for name, other in zip(names[1:], others, strict=True):
        both = [prompt for prompt in first if prompt in other]
        one, two = (np.array([found[prompt] for prompt in both]) for found in (first, other))
        means = (with_interval(mean(each), 1) for each in (one, two))
        found = (with_interval(percent(each >= -np.log10(RATE)), 0) for each in (one, two))
        rows.append([name, str(len(both)), *means, with_interval(ratio(two, one), 2), *found])
    return Table("", _COLUMNS, rows)


def _digits(cell: CellRows) -> dict[tuple[str, int], float]:
    """The digits of each text of a cell, by its prompt and seed."""
    found = -np.log10(cell.score([row["text"] for row in cell.rows], deployed=True).p)
    return {(row["prompt"], row["seed"]): float(one) for row, one in zip(cell.rows, found, strict=True)}
