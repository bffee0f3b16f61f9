"""The output of a view: numbers next to the paper's, tables of strings, figures; as Markdown and CSV."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from matplotlib.figure import Figure

from dgmark.errors import InputError
from dgmark_lab.evaluate.estimates import Estimate


@dataclass(frozen=True)
class Quantity:
    """One number of one cell.

    Attributes:
        cell: name of the cell.
        name: name of the quantity.
        ours: the measured value; None if it was not measured.
        paper: the value that the paper reports, if any.
    """

    cell: str
    name: str
    ours: Estimate | None
    paper: float | None = None


@dataclass(frozen=True)
class Table:
    """A table of strings; the first column is text, the others are numbers."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Section:
    """The output of a view.

    Attributes:
        quantities: all its numbers.
        tables: the numbers as tables; None for one that would be empty.
        text: Markdown below the tables.
        figures: figures by file name, without a suffix.
    """

    quantities: Sequence[Quantity]
    tables: Sequence[Table | None]
    text: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)


def quantities_of(
    cell: str, ours: Mapping[str, Estimate], paper: Mapping[str, float] = MappingProxyType({})
) -> list[Quantity]:
    """The numbers of a cell by their names: those that were measured, and those of the paper."""
    return [Quantity(cell, name, ours.get(name), paper.get(name)) for name in dict.fromkeys([*ours, *paper])]


def quantity_table(
    title: str,
    cells: Iterable[str],
    quantities: Iterable[Quantity],
    columns: Mapping[str, str] | Sequence[str],
    *,
    paper: str = "paper",
    digits: Mapping[str, int] = MappingProxyType({}),
) -> Table | None:
    """Tabulate cells as rows and quantities as columns, each followed by the paper's values if there are any.

    Columns and rows without a value are left out; None if nothing is left. `columns` has the name of a quantity by the
    heading of its column (a list of names is one of headings, too), `paper` is the heading of the paper's values, and
    `digits` those after the decimal point of quantities by their names, 3 of others.
    """
    columns = columns if isinstance(columns, Mapping) else dict(zip(columns, columns, strict=True))
    known = {(q.cell, q.name): q for q in quantities if q.ours is not None or q.paper is not None}
    rows = [[cell] for cell in cells if any((cell, name) in known for name in columns.values())]
    headings = [""]
    for heading, name in columns.items():
        found = [known.get((row[0], name)) for row in rows]
        if not any(found):
            continue
        headings.append(heading)
        for row, q in zip(rows, found, strict=True):
            row.append("–" if q is None else with_interval(q.ours, digits.get(name, 3)))
        if any(q.paper is not None for q in found if q):
            headings.append(paper)
            for row, q in zip(rows, found, strict=True):
                row.append("–" if q is None or q.paper is None else number(q.paper, digits.get(name, 3)))
    return Table(title, headings, rows) if rows else None


def number(value: float, digits: int) -> str:
    """Format a number with `digits` digits after the decimal point."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def with_interval(one: Estimate | None, digits: int) -> str:
    """Format a value and, if it has one, its interval in brackets."""
    if one is None:
        return "–"
    value = number(one.value, digits)
    return value if math.isnan(one.low) else f"{value} [{number(one.low, digits)}, {number(one.high, digits)}]"


def to_markdown(table: Table) -> str:
    """Render the table in GitHub's Markdown."""
    lines = [table.columns, ["---", *["---:"] * (len(table.columns) - 1)], *table.rows]
    body = "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
    return f"**{table.title}**\n\n{body}\n" if table.title else body + "\n"


def read_csv(path: Path) -> list[Quantity]:
    """Read the numbers that `to_csv` wrote.

    Raises:
        InputError: the file cannot be read, or has other columns.
    """
    found = []
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                value, low, high, paper = (float(row[name] or "nan") for name in ("value", "low", "high", "paper"))
                ours = Estimate(value, low, high, int(row["count"])) if row["value"] else None
                found.append(Quantity(row["cell"], row["quantity"], ours, paper if row["paper"] else None))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path} holds no numbers of a report ({error}): give the numbers.csv of one") from None
    return found


def to_csv(quantities: Iterable[Quantity]) -> str:
    """Write all numbers in long form, unrounded: one line for each cell and quantity."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["cell", "quantity", "value", "low", "high", "count", "paper"])
    for q in quantities:
        ours = ["", "", "", ""] if q.ours is None else [q.ours.value, q.ours.low, q.ours.high, q.ours.count]
        writer.writerow([q.cell, q.name, *ours, "" if q.paper is None else q.paper])
    return out.getvalue()
