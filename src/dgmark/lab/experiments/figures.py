"""Figures of experiments: lines with intervals, bars, densities, boxes. Needs matplotlib.

Colours are those of `dgmark.detection.strip`, which can be distinguished without colour vision; the paper's numbers
are dashed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from dgmark.detection.strip import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MARKERS = "osD^vP*X"
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
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize="small")
    figure.suptitle(title, fontsize="medium")
    return figure


def bar_figure(groups: Mapping[str, Sequence[float]], bins: Sequence[str], *, y: str, title: str) -> "Figure":
    """Draw groups of bars side by side; a group whose name ends in ", paper" is hatched."""
    figure = new_figure(8, 4)
    axes = figure.subplots()
    width = 0.8 / max(len(groups), 1)
    names = list(dict.fromkeys(name.removesuffix(", paper") for name in groups))
    for place, (name, heights) in enumerate(groups.items()):
        colour = COLOURS[names.index(name.removesuffix(", paper")) % len(COLOURS)]
        paper = name.endswith(", paper")
        axes.bar(
            np.arange(len(bins)) - 0.4 + width * (place + 0.5),
            heights,
            width,
            label=name,
            color="none" if paper else colour,
            edgecolor=colour,
            hatch="////" if paper else None,
            linewidth=0.7,
        )
    axes.set_xticks(range(len(bins)), bins)
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
        tick_labels=list(values),
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
            label=name,
        )
    axes.set_xscale("log")
    axes.set_xlim(right=1)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("false-positive rate")
    axes.set_ylabel("true-positive rate")
    axes.set_title(title, fontsize="medium")
    axes.legend(loc="lower right")
    return figure
