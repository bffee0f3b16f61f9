"""The input and output of a view."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dgmark_lab.experiments.cells import CellRows, Scores
from dgmark_lab.experiments.recipe import digest
from dgmark_lab.experiments.spec import Experiment, SetupName
from dgmark_lab.experiments.store import Store
from dgmark_lab.experiments.tables import Quantity, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Context:
    """A stored run of an experiment.

    Attributes:
        experiment: the experiment.
        setup: the setup that was run.
        store: the store of its rows.
        plan: the plan of the run.
        cells: its cells by name, in the order of the TOML file.
    """

    experiment: Experiment
    setup: SetupName
    store: Store
    plan: Mapping[str, Any]
    cells: Mapping[str, CellRows]
    _null_scores: dict[tuple[str, ...], list[Scores]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def present(self) -> list[CellRows]:
        """The cells that have texts."""
        return [cell for cell in self.cells.values() if cell.rows]

    def null_of(self, cell: CellRows) -> CellRows | None:
        """Return the unmarked cell that a marked one is compared with, if it has texts."""
        name = self.experiment.null_of(cell.cell)
        null = None if name is None else self.cells[name]
        return null if null is not None and null.rows else None

    def null_scores(self, cell: CellRows, null: CellRows) -> list[Scores]:
        """Score the unmarked texts under the cell's key, then under each null key; computed once for equal inputs.

        Raises:
            SettingsError: the cell was not run.
        """
        key = None if cell.key is None else cell.key.fingerprint
        same = (null.name, str(cell.cell.scheme), digest(dict(cell.cell.options)), str(key))
        if same not in self._null_scores:
            keys = [None, *cell.null_keys(self.experiment.null_keys)]
            self._null_scores[same] = [cell.score(null.ids, one) for one in keys]
        return self._null_scores[same]


@dataclass(frozen=True)
class Section:
    """The output of a view.

    Attributes:
        quantities: all its numbers.
        tables: the numbers as tables.
        text: Markdown below the tables.
        figures: figures by file name, without a suffix.
    """

    quantities: list[Quantity] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    text: str = ""
    figures: "dict[str, Figure]" = field(default_factory=dict)


def tables_of(*tables: Table | None) -> list[Table]:
    """Return the tables that exist."""
    return [table for table in tables if table is not None]
