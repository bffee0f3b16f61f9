"""Figures of experiments: lines and rows with intervals, bars, densities, boxes. Needs matplotlib.

Colours are those of `dgmark.report.picture`, which can be distinguished without colour vision; the paper's numbers
are dashed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float

from dgmark.report.picture import COLOURS, new_figure
from dgmark_lab.experiments.estimates import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["percent", "zero", "log"]

_MARKERS = "osD^vP*X<>ph"
_DASHES = ("-", "--", "-.", ":")


@dataclass
class Line:
    """The points of one line, with intervals if they are known.

    Attributes:
        name: the name in the legend; "<name>, paper" has the colour of "<name>".
        x: coordinates on the x axis.
        y: coordinates on the y axis.
        intervals: low and high of each point; empty if unknown.
        dashed: whether the line is dashed.
    """

    name: str
    x: list[float]
    y: list[float]
    intervals: list[tuple[float, float]] = field(default_factory=list)
    dashed: bool = False

    def add(self, x: float, y: float, interval: tuple[float, float] | None = None) -> None:
        """Add a point."""
        self.x.append(x)
        self.y.append(y)
        if interval is not None:
            self.intervals.append(interval)


def line_figure(lines: Sequence[Line], *, x: str, y: str, title: str, logarithmic: bool = False) -> "Figure":
    """Draw lines with error bars; `logarithmic` gives the x axis a scale of base 2."""
    figure = new_figure(7.5, 4.2)
    axes = figure.subplots()
    drawn = [line for line in lines if line.x]
    names = list(dict.fromkeys(line.name.removesuffix(", paper") for line in drawn))
    for line in drawn:
        place = names.index(line.name.removesuffix(", paper"))
        errors = np.abs(np.array(line.intervals).T - np.array(line.y)) if line.intervals else None
        axes.errorbar(
            line.x,
            line.y,
            yerr=errors,
            label=line.name,
            color=COLOURS[place % len(COLOURS)],
            marker=_MARKERS[place % len(_MARKERS)],
            markersize=4,
            markerfacecolor="none" if line.dashed else None,
            linestyle="--" if line.dashed else "-",
            linewidth=1,
            capsize=2,
        )
    if logarithmic:
        axes.set_xscale("log", base=2)
        places = sorted({at for line in drawn for at in line.x})
        axes.set_xticks(places, [f"{at:g}" for at in places])
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize="medium")
    if drawn:
        figure.legend(loc="outside right upper", fontsize="x-small")
    return figure


def density_figure(panels: Mapping[str, Mapping[str, Float[np.ndarray, " n"]]], *, x: str, title: str) -> "Figure":
    """Draw histograms of shares in 0..1 as steps, one panel for each entry."""
    figure = new_figure(3.2 * max(len(panels), 1), 3.4)
    edges = np.linspace(0, 1, 34)
    for axes, (name, series) in zip(
        np.ravel(figure.subplots(1, max(len(panels), 1), sharey=True)), panels.items(), strict=False
    ):
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


def bar_figure(
    groups: Mapping[str, Sequence[Estimate]], bins: Sequence[str], *, x: str, y: str, title: str
) -> "Figure":
    """Draw groups of bars with intervals side by side; a group whose name ends in ", paper" is hatched."""
    figure = new_figure(8, 4)
    axes = figure.subplots()
    width = 0.8 / max(len(groups), 1)
    names = list(dict.fromkeys(name.removesuffix(", paper") for name in groups))
    for place, (name, estimates) in enumerate(groups.items()):
        heights = [one.value for one in estimates]
        colour = COLOURS[names.index(name.removesuffix(", paper")) % len(COLOURS)]
        paper = name.endswith(", paper")
        axes.bar(
            np.arange(len(bins)) - 0.4 + width * (place + 0.5),
            heights,
            width,
            label=name if paper else f"{name} (n = {estimates[0].count:,})",
            yerr=None if paper else np.array([_error(one) for one in estimates]).T,
            color="none" if paper else colour,
            edgecolor=colour,
            hatch="////" if paper else None,
            linewidth=0.7,
            error_kw={"linewidth": 0.8},
        )
    axes.set_xticks(range(len(bins)), bins)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title, fontsize="medium")
    figure.legend(loc="outside right upper", fontsize="x-small")
    return figure


def box_figure(
    values: Mapping[str, Float[np.ndarray, " n"]], papers: Mapping[str, float], *, y: str, title: str
) -> "Figure":
    """Draw boxes (quartiles, whiskers at 1.5 times their distance) with the paper's medians as crosses."""
    figure = new_figure(max(4.0, 1.0 * len(values) + 1.5), 4)
    axes = figure.subplots()
    axes.boxplot(
        list(values.values()),
        tick_labels=[f"{name}\nn = {len(each):,}" for name, each in values.items()],
        showfliers=False,
        medianprops={"color": COLOURS[1]},
        boxprops={"color": COLOURS[0]},
    )
    crosses = [(place, papers[name]) for place, name in enumerate(values, 1) if name in papers]
    if crosses:
        axes.plot(*zip(*crosses, strict=True), "x", color=COLOURS[2], label="paper, median")
        axes.legend(fontsize="small")
    axes.tick_params(axis="x", labelrotation=30, labelsize="small")
    axes.set_ylabel(y)
    axes.set_title(title, fontsize="medium")
    return figure


def roc(
    scores: Mapping[str, tuple[Float[np.ndarray, " marked"], Float[np.ndarray, " unmarked"]]], *, title: str = ""
) -> "Figure":
    """Draw ROC curves with the false-positive rate on a logarithmic axis.

    Args:
        scores: for each statistic, the scores of marked and of unmarked texts; larger means marked.
        title: the title of the figure.
    """
    figure = new_figure(5, 4)
    axes = figure.subplots()
    for number, (name, (yes, no)) in enumerate(scores.items()):
        thresholds = np.unique(np.concatenate([yes, no]))[::-1]
        rates = [(np.mean(no >= t), np.mean(yes >= t)) for t in thresholds]
        fpr, tpr = np.array([(0.0, 0.0), *rates]).T
        axes.step(
            np.maximum(fpr, 0.5 / len(no)),
            tpr,
            where="post",
            color=COLOURS[number % len(COLOURS)],
            linestyle=_DASHES[number % len(_DASHES)],
            label=f"{name} (n = {len(yes):,} and {len(no):,})",
        )
    axes.set_xscale("log")
    axes.set_xlim(right=1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("false-positive rate, share of unmarked texts")
    axes.set_ylabel("true-positive rate, share of marked texts")
    axes.set_title(title, fontsize="medium")
    axes.legend(loc="lower right")
    return figure


@dataclass(frozen=True)
class Panel:
    """One number of every row of a figure.

    Attributes:
        x: label of the x axis.
        ours: the measured value of each row; None if it was not measured.
        paper: the paper's value of each row, if any.
        reference: where a dotted line is drawn, such as at the rate that is promised; None: nowhere.
        scale: 0 to 100, from 0, or logarithmic.
    """

    x: str
    ours: Sequence[Estimate | None]
    paper: Sequence[float | None]
    reference: float | None = None
    scale: Scale = "zero"


def rows_figure(rows: Sequence[str], panels: Sequence[Panel], *, title: str) -> "Figure":
    """Draw a row with an interval for each name in every panel; the paper's values are hollow diamonds."""
    figure = new_figure(2.6 + 2.3 * len(panels), 1.3 + 0.28 * len(rows))
    every = np.ravel(figure.subplots(1, len(panels), sharey=True))
    named: set[str] = set()
    for place, (axes, panel) in enumerate(zip(every, panels, strict=True)):
        colour = COLOURS[place % len(COLOURS)]
        if panel.reference is not None:
            axes.axvline(panel.reference, color="0.5", linewidth=0.8, linestyle=":")
        for at, (ours, paper) in enumerate(zip(panel.ours, panel.paper, strict=True)):
            if ours is not None:
                errors = np.array([_error(ours)]).T
                axes.errorbar(ours.value, at, xerr=errors, color=colour, marker="o", markersize=4, capsize=2)
            if paper is not None:
                label = None if "paper" in named else "the paper's, with other models"
                named.add("paper")
                axes.plot(paper, at, "D", color="0.3", markersize=5, markerfacecolor="none", label=label)
        axes.set_xlabel(panel.x, fontsize="small")
        if panel.scale == "log":
            axes.set_xscale("log")
            low, high = axes.get_xlim()
            ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if low <= tick <= high]
            axes.set_xticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
        else:
            axes.set_xlim(left=-3 if panel.scale == "percent" else 0)
            axes.set_xlim(right=103 if panel.scale == "percent" else None)
        axes.tick_params(labelsize="small")
        axes.grid(axis="x", color="0.9", linewidth=0.6)
        axes.set_axisbelow(True)
    every[0].set_yticks(range(len(rows)), rows)
    every[0].set_ylim(len(rows) - 0.5, -0.5)
    figure.suptitle(title, fontsize="medium")
    if named:
        figure.legend(loc="outside lower right", fontsize="x-small")
    return figure


def _error(estimate: Estimate) -> tuple[float, float]:
    """How far the interval reaches below and above the value; 0 if there is none."""
    below, above = estimate.value - estimate.low, estimate.high - estimate.value
    return (0.0 if np.isnan(below) else max(below, 0.0), 0.0 if np.isnan(above) else max(above, 0.0))


@dataclass(frozen=True)
class Curve:
    """A curve over temperatures.

    Attributes:
        name: its name in the legend.
        colour: number of its colour; curves of one colour differ in marker and dashes.
        x: coordinates on the x axis.
        y: coordinates on the y axis.
        size: a figure that the size of each point shows; None for a point without one.
        labels: a label for each point.
    """

    name: str
    colour: int
    x: list[float]
    y: list[float]
    size: list[float | None]
    labels: list[str]


@dataclass(frozen=True)
class Points:
    """A scheme in the panels of a figure.

    Attributes:
        name: its name in the legend.
        colour: number of its colour, as in the other pictures.
        pairs: x and y in each panel.
    """

    name: str
    colour: int
    pairs: list[tuple[Estimate, Estimate]]


def _styles(drawn: Sequence[Curve] | Sequence[Points]) -> list[tuple[str, str, str]]:
    """The colour of each, and a marker and a line style that no other of its colour has."""
    before: dict[int, int] = {}
    styles = []
    for one in drawn:
        place = before[one.colour] = before.get(one.colour, -1) + 1
        styles.append(
            (COLOURS[one.colour % len(COLOURS)], _MARKERS[place % len(_MARKERS)], _DASHES[place % len(_DASHES)])
        )
    return styles


def frontier_figure(curves: Sequence[Curve], *, x: str, y: str, title: str, unit: str) -> "Figure":
    """Draw curves with labelled points on a logarithmic y axis; the area of a point shows its size, in `unit`."""
    figure = new_figure(8.5, 5.2)
    axes = figure.subplots()
    largest = max((size for curve in curves for size in curve.size if size), default=1.0)
    for curve, (colour, marker, dash) in zip(curves, _styles(curves), strict=True):
        axes.plot(
            curve.x, curve.y, color=colour, linestyle=dash, linewidth=1, marker=marker, markersize=3, label=curve.name
        )
        areas = [14.0 if size is None else 8 + 150 * size / largest for size in curve.size]
        axes.scatter(curve.x, curve.y, areas, color=colour, marker=marker, alpha=0.75, linewidths=0)
        for at_x, at_y, label in zip(curve.x, curve.y, curve.labels, strict=True):
            axes.annotate(label, (at_x, at_y), (5, -9), textcoords="offset points", fontsize="xx-small", color=colour)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    ticks = [tick for tick in (5, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40, 50, 75, 100, 200) if low <= tick <= high]
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(f"{title}\nlabels: temperature; area: {unit}, at most {largest:.2f}", fontsize="medium")
    figure.legend(loc="outside right upper", fontsize="x-small")
    return figure


def points_figure(schemes: Sequence[Points], panels: Sequence[str], *, reference: float, x: str, y: str) -> "Figure":
    """Draw one point with intervals a scheme in every panel, and a line at the reference's x."""
    figure = new_figure(3.0 * len(panels) + 2.2, 3.8)
    every = np.ravel(figure.subplots(1, len(panels), sharex=True, sharey=True))
    styles = _styles(schemes)
    for place, (axes, panel) in enumerate(zip(every, panels, strict=True)):
        axes.axvline(reference, color="0.6", linewidth=0.8, linestyle=":", label=None if place else "no mark")
        for scheme, (colour, marker, _) in zip(schemes, styles, strict=True):
            across, up = scheme.pairs[place]
            axes.errorbar(
                across.value,
                up.value,
                xerr=[[max(across.value - across.low, 0)], [max(across.high - across.value, 0)]],
                yerr=[[max(up.value - up.low, 0)], [max(up.high - up.value, 0)]],
                color=colour,
                marker=marker,
                markersize=5,
                linewidth=0.8,
                capsize=2,
                label=None if place else scheme.name,
            )
        axes.set_title(panel, fontsize="small")
    figure.supxlabel(x, fontsize="small")
    every[0].set_ylim(top=min(102.0, every[0].get_ylim()[1]))
    every[0].set_ylabel(y, fontsize="small")
    figure.legend(loc="outside right upper", fontsize="x-small")
    return figure


@dataclass(frozen=True)
class Spot:
    """A point with standard errors, and a figure that its area shows."""

    name: str
    x: float
    y: float
    x_error: float
    y_error: float
    size: float


def goal_figure(spots: Sequence[Spot], *, least_x: float, most_y: float, x: str, y: str, unit: str) -> "Figure":
    """Draw numbered points with their standard errors; the first has another colour, and the goal is a shaded corner.

    Args:
        spots: the points, the best first.
        least_x: the goal has no smaller x.
        most_y: the goal has no larger y.
        x: label of the x axis.
        y: label of the y axis.
        unit: what the area of a point shows.
    """
    figure = new_figure(9.5, 4.6)
    axes = figure.subplots()
    largest = max((one.size for one in spots), default=0.0) or 1.0
    for place, one in enumerate(spots):
        colour = COLOURS[0] if place else COLOURS[1]
        axes.errorbar(one.x, one.y, one.y_error, one.x_error, color=colour, linewidth=0.8, capsize=2)
        label = f"{place + 1}: {one.name}"
        axes.scatter([one.x], [one.y], [10 + 120 * one.size / largest], color=colour, linewidths=0, label=label)
        axes.annotate(str(place + 1), (one.x, one.y), (6, 5), textcoords="offset points", fontsize="small")
    axes.margins(x=0.25, y=0.15)
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    left, right, low, high = min(left, least_x), max(right, least_x * 1.02), min(low, most_y * 0.96), max(high, most_y)
    axes.fill_between([least_x, right], low, most_y, color=COLOURS[2], alpha=0.15, linewidth=0, label="the goal")
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(f"area: {unit}, at most {largest:.2f}", fontsize="medium")
    figure.legend(loc="outside right upper", fontsize="small")
    return figure
