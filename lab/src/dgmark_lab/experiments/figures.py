"""Figures of experiments: lines with intervals, densities, ROC curves, heat maps.

The colours can be distinguished without colour vision (Okabe and Ito). What belongs to
"NAME, paper" has the colour of NAME, and is dashed.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from dgmark_lab.evaluate.estimates import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vP*X<>ph"
_PAPER = ", paper"


@dataclass
class Line:
    """The points of one line, with their intervals.

    Attributes:
        name: the name in the legend.
        points: x and y of each point.
        labels: a label for each point; empty for none.
    """

    name: str
    points: list[tuple[Estimate, Estimate]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


def line_panels(
    panels: Mapping[str, Iterable[Line]],
    *,
    x: str,
    y: str,
    width: float = 7.5,
    log_x: bool = False,
    log_y: bool = False,
) -> "Figure":
    """Draw lines with error bars, in panels side by side in which lines of one name have one colour.

    A logarithmic x axis has base 2, and ticks at the points. A line without points is not drawn, but keeps its colour
    free.

    Args:
        panels: the lines of each panel by its title.
        x: what the x axes show.
        y: what the y axes show.
        width: width of the figure in inches.
        log_x: whether the x axes are logarithmic.
        log_y: whether the y axes are logarithmic.
    """
    figure, drawn = new_figure(width, 4.2), {title: list(lines) for title, lines in panels.items()}
    styles, entries = _places(line.name for lines in drawn.values() for line in lines), dict[str, Any]()
    for axes, (title, lines) in zip(figure.subplots(1, len(drawn), squeeze=False)[0], drawn.items(), strict=True):
        axes.set(xlabel=x, ylabel=y)
        axes.set_title(title, fontsize="medium")
        for line in lines:
            if line.points:
                entries[line.name] = _draw_line(axes, line, styles[line.name])
        if log_x:
            axes.set_xscale("log", base=2)
            places = sorted({point.value for line in lines for point, _ in line.points})
            axes.set_xticks(places, [f"{at:g}" for at in places])
        if log_y:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter("{x:g}")
    if entries:
        figure.legend(entries.values(), entries.keys(), loc="outside right upper", fontsize="x-small")
    return figure


def _draw_line(axes: Any, line: Line, place: int) -> Any:
    """Draw a line in the style of its place, and return what stands for it in a legend."""
    colour, paper = COLOURS[place % len(COLOURS)], line.name.endswith(_PAPER)
    across, up = ([point[axis] for point in line.points] for axis in (0, 1))
    drawn = axes.errorbar(
        [one.value for one in across],
        [one.value for one in up],
        xerr=_errors(across),
        yerr=_errors(up),
        color=colour,
        marker=_MARKERS[place % len(_MARKERS)],
        markersize=4,
        markerfacecolor="none" if paper else None,
        linestyle="--" if paper else "-",
        linewidth=1,
        capsize=2,
    )
    for (at_x, at_y), label in zip(line.points, line.labels, strict=False):
        beside = (-15, 5) if place % 2 else (5, -10)
        point = (at_x.value, at_y.value)
        axes.annotate(label, point, beside, textcoords="offset points", fontsize="x-small", color=colour)
    return drawn


def density_figure(panels: Mapping[str, Mapping[str, Float[np.ndarray, " n"]]], *, x: str, title: str) -> "Figure":
    """Draw histograms of shares in 0..1 as steps, one panel for each entry."""
    figure = new_figure(3.2 * len(panels), 3.4)
    edges = np.linspace(0, 1, 34)
    every = np.ravel(figure.subplots(1, len(panels), sharey=True))
    for axes, (name, series) in zip(every, panels.items(), strict=True):
        for place, (label, values) in enumerate(series.items()):
            counts, _ = np.histogram(values, edges)
            heights = counts / (max(len(values), 1) * np.diff(edges))
            axes.stairs(heights, edges, label=label, color=COLOURS[place], linestyle=("-", "--", ":")[place % 3])
        axes.set_title(name, fontsize="small")
        axes.set_xlabel(x, fontsize="small")
    figure.axes[0].set_ylabel("density of windows", fontsize="small")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure


def roc(
    scores: Mapping[str, tuple[Float[np.ndarray, " marked"], Float[np.ndarray, " unmarked"]]], *, title: str = ""
) -> "Figure":
    """Draw ROC curves with the false-positive rate on a logarithmic axis.

    Args:
        scores: for each statistic, the scores of marked and of unmarked texts; larger means marked.
        title: the title of the figure.
    """
    figure, axes = _axes(
        5, 4, "false-positive rate, share of unmarked texts", "true-positive rate, share of marked texts", title
    )
    for number, (name, (yes, no)) in enumerate(scores.items()):
        thresholds = np.unique(np.concatenate([yes, no]))[::-1]
        rates = [(np.mean(no >= t), np.mean(yes >= t)) for t in thresholds]
        fpr, tpr = np.array([(0.0, 0.0), *rates]).T
        axes.step(
            np.maximum(fpr, 0.5 / len(no)),
            tpr,
            where="post",
            color=COLOURS[number % len(COLOURS)],
            linestyle=("-", "--", "-.", ":")[number % 4],
            label=f"{name} (n = {len(yes):,} and {len(no):,})",
        )
    axes.set_xscale("log")
    axes.set_xlim(right=1)
    axes.set_ylim(0, 1.02)
    axes.legend(loc="lower right")
    return figure


def heat_figure(columns: Mapping[str, Mapping[str, Estimate]], *, title: str) -> "Figure":
    """Draw percentages as a table of colours, with the numbers in the cells: blue is 100, red is 0.

    Args:
        columns: the values of the rows by their names, for each column; all columns have the same rows.
        title: the title of the figure.
    """
    rows = list(next(iter(columns.values())))
    values = np.array([[of_column[row].value for of_column in columns.values()] for row in rows])
    figure, axes = _axes(2.4 + 1.5 * len(columns), 1.1 + 0.24 * len(rows), "", "", title)
    axes.imshow(values, cmap="RdYlBu", vmin=0, vmax=100, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        dark = not 20 <= value <= 85
        axes.text(column, row, f"{value:.0f} %", ha="center", va="center", color="white" if dark else "black")
    axes.set_xticks(range(len(columns)), list(columns))
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0, top=False, labeltop=True, labelbottom=False)
    axes.spines[:].set_visible(False)
    return figure


def _axes(width: float, height: float, x: str, y: str, title: str) -> tuple["Figure", Any]:
    figure = new_figure(width, height)
    axes = figure.subplots()
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize="medium")
    return figure, axes


def _places(names: Iterable[str]) -> dict[str, int]:
    """Number the names, the paper's like those that it belongs to."""
    every = list(names)
    order = list(dict.fromkeys(name.removesuffix(_PAPER) for name in every))
    return {name: order.index(name.removesuffix(_PAPER)) for name in every}


def _errors(estimates: Sequence[Estimate]) -> Float[np.ndarray, "2 n"] | None:
    """How far the intervals reach below and above the values; None if there is none."""
    reach = np.array([(one.value - one.low, one.high - one.value) for one in estimates]).T
    return None if np.isnan(reach).all() else np.maximum(np.nan_to_num(reach), 0)


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of this size in inches."""
    from matplotlib.figure import Figure  # here, as it is slow to import

    return Figure(figsize=(width, height), layout="constrained")
