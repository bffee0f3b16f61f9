"""Tables of strings, and numbers next to the paper's; as Markdown, CSV and LaTeX."""

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dgmark_lab.experiments.estimates import Estimate

_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


@dataclass(frozen=True)
class Quantity:
    """One number of one cell.

    Attributes:
        cell: name of the cell.
        name: name of the quantity.
        ours: the measured value; None if it was not measured.
        paper: the value that the paper reports, if any.
        digits: digits after the decimal point.
    """

    cell: str
    name: str
    ours: Estimate | None
    paper: float | None = None
    digits: int = 3


@dataclass(frozen=True)
class Table:
    """A table of strings; the first column is text, the others are numbers."""

    title: str
    columns: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Column:
    """A column of a table of quantities: its heading, the quantity's name, and the heading of the paper's values."""

    heading: str
    quantity: str
    paper: str = "paper"


def quantity_table(
    title: str, cells: Sequence[str], quantities: Iterable[Quantity], columns: Sequence[Column]
) -> Table | None:
    """Tabulate cells as rows and quantities as columns, each followed by the paper's values if there are any.

    Columns and rows without a value are left out; None if nothing is left.
    """
    known = {(q.cell, q.name): q for q in quantities if q.ours is not None or q.paper is not None}
    filled = [column for column in columns if any((cell, column.quantity) in known for cell in cells)]
    if not filled:
        return None
    cells = [cell for cell in cells if any((cell, column.quantity) in known for column in filled)]
    papers = {c.quantity for c in filled if any(_paper(known.get((cell, c.quantity))) for cell in cells)}
    headings, rows = [""], [[cell] for cell in cells]
    for column in filled:
        headings += [column.heading, *([column.paper] if column.quantity in papers else [])]
        for cell, row in zip(cells, rows, strict=True):
            quantity = known.get((cell, column.quantity))
            row.append(_ours(quantity) or "–")
            if column.quantity in papers:
                row.append(_paper(quantity) or "–")
    return Table(title, headings, rows)


def number(value: float, digits: int) -> str:
    """Format a number with `digits` digits after the decimal point."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def with_interval(one: Estimate, digits: int) -> str:
    """Format a value and, if it has one, its interval in brackets."""
    value = number(one.value, digits)
    return value if math.isnan(one.low) else f"{value} [{number(one.low, digits)}, {number(one.high, digits)}]"


def _ours(quantity: Quantity | None) -> str:
    if quantity is None or quantity.ours is None:
        return ""
    return with_interval(quantity.ours, quantity.digits)


def _paper(quantity: Quantity | None) -> str:
    return "" if quantity is None or quantity.paper is None else number(quantity.paper, quantity.digits)


def to_markdown(table: Table) -> str:
    """Render the table in GitHub's Markdown."""
    lines = [table.columns, ["---", *["---:"] * (len(table.columns) - 1)], *table.rows]
    body = "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
    return f"**{table.title}**\n\n{body}\n" if table.title else body + "\n"


def to_latex(table: Table) -> str:
    """Render the table in LaTeX with booktabs."""
    columns = "l" + "r" * (len(table.columns) - 1)
    lines = [
        r"\begin{table}[ht]",
        r"\centering",
        rf"\caption{{{escape(table.title)}}}",
        rf"\begin{{tabular}}{{{columns}}}",
    ]
    lines += [r"\toprule", _latex_line(table.columns), r"\midrule", *map(_latex_line, table.rows), r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}", r"\end{table}"]) + "\n"


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(escape(cell) for cell in cells) + r" \\"


def escape(text: str) -> str:
    """Escape text for LaTeX."""
    escaped = re.sub(r"[\\&%$#_{}~^<>]", lambda match: _LATEX[match.group()], text)
    return escaped.replace("–", "--").replace("−", "$-$")


def to_csv(quantities: Iterable[Quantity]) -> str:
    """Write all numbers in long form, unrounded: one line for each cell and quantity."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["cell", "quantity", "value", "low", "high", "count", "paper"])
    for q in quantities:
        ours = ["", "", "", ""] if q.ours is None else [q.ours.value, q.ours.low, q.ours.high, q.ours.count]
        writer.writerow([q.cell, q.name, *ours, "" if q.paper is None else q.paper])
    return out.getvalue()
