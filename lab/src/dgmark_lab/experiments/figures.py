"""Figures of experiments in one style: a question as the title, what was measured below, names beside the lines.

A watermark has the same colour in every figure. Intervals in y are bands; where x is measured, too, points have no
intervals, which stand in the tables.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import matplotlib as mpl
import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox

from dgmark_lab.evaluate.estimates import Estimate

WIDTH = 8.0  # inches, the width of a page
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.93",
    "axes.axisbelow": True,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
}
UNMARKED = "#777777"
# by what a name holds, the first that fits; colours that can be told apart without colour vision (Okabe and Ito) first
_KNOWN = {
    "unmarked": UNMARKED,
    "no mark": UNMARKED,
    "256 sub-keys": "#0072B2",
    "one key": "#D55E00",
    "cdmark": "#AA4499",
    "dmark": "#009E73",
    "lr-dwm": "#CC79A7",
    "kgw": "#E69F00",
    "gloaguen": "#56B4E9",
    "replaymark": "#000000",
    "tango": "#8C564B",
    "pattern-mark": "#44AA99",
    "k = 1": "#6BAED6",
    "k = 3": "#2171B5",
    "k = 5": "#08519C",
    "k = 8": "#041F4A",
}
# of names that are not known
_OTHERS = ("#117733", "#882255", "#332288", "#999933", "#661100", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_HUMAN, _BUILT = "#0072B2", "#E69F00"


@dataclass
class Line:
    """The points of one line, with their intervals.

    Attributes:
        name: the name beside its last point, by which it has its colour; a dashed line next to a solid one of its
            colour has none.
        points: x and y of each point.
        labels: a label for each point; empty for none.
        sizes: the size of each dot; empty for the usual one.
        dashed: whether the line is dashed.
    """

    name: str
    points: list[tuple[Estimate, Estimate]] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    sizes: list[float] = field(default_factory=list)
    dashed: bool = False


@dataclass
class Panel:
    """Lines on one pair of axes.

    Attributes:
        title: what tells the panel from the others; empty for a single one.
        lines: its lines; one without points is not drawn.
        spans: vertical bands by their name, such as what unmarked text costs.
    """

    title: str
    lines: list[Line]
    spans: Mapping[str, Estimate] = field(default_factory=dict)


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """The colour of each name: the known one of a watermark, or one that no other name has.

    Two forms of one watermark that a figure shows as solid lines have two colours; a dashed one shares that of its
    solid line.
    """
    found: dict[str, str] = {}
    every = list(dict.fromkeys(names))
    for name in every:
        known = next((colour for part, colour in _KNOWN.items() if part in name.lower()), None)
        if known and known not in found.values():
            found[name] = known
    for name in every:
        found.setdefault(name, next((colour for colour in _OTHERS if colour not in found.values()), "#444444"))
    return found


def chart(
    panels: Sequence[Panel],
    *,
    question: str,
    caption: str,
    x: str,
    y: str,
    top: float | None = None,
    log_x: bool = False,
    share_y: bool = True,
    beside: bool = False,
    better: str = "",
) -> Figure:
    """Draw lines in panels side by side; all y axes begin at 0, and with `share_y` they have one scale.

    `caption` names the texts, their number and the model. The y axes end at `top`, or beyond the largest value. With
    `log_x` the x axes are logarithmic, with base 2. With `beside`, for lines over the same few x, which have the ticks,
    names stand at the right in the order of the last points; else near their last points. An arrow points to the
    corner that is `better`, such as "upper left".
    """
    figure, every = new_figure(4.3, question, caption, len(panels), sharey=share_y)
    solid = colours_of(line.name for panel in panels for line in panel.lines if not line.dashed)
    dashed = {line.name for panel in panels for line in panel.lines if line.dashed}
    colours = solid | {name: solid.get(name.rpartition(", ")[0], "#444444") for name in dashed}
    for axes, panel in zip(every, panels, strict=True):
        axes.set(xlabel=x)
        axes.set_title(panel.title, loc="left", fontsize=9)
        axes.margins(x=0.1)
        drawn = [line for line in panel.lines if line.points]
        if beside:
            drawn.sort(key=lambda line: -line.points[-1][1].value)
        for number, line in enumerate(drawn):
            _draw_line(axes, line, colours[line.name], width=1.2 + (len(drawn) - number) * 1.4 / len(drawn))
        if log_x:
            axes.set_xscale("log", base=2)
        for number, (name, span) in enumerate(panel.spans.items()):
            axes.axvspan(span.low, span.high, color=UNMARKED, alpha=0.18, linewidth=0)
            axes.annotate(
                name, (span.value, 0.02 + 0.06 * number), xycoords=("data", "axes fraction"), ha="center",
                fontsize=7, color="0.35",
            )  # fmt: skip
        if beside:
            places = sorted({point.value for line in drawn for point, _ in line.points})
            axes.set_xticks(places, [f"{at:g}" for at in places])
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), labelcolor="linecolor", handlelength=0, frameon=False)
        if better:
            _arrow(axes, better)
        axes.set_ylim(0, top if top is not None else axes.get_ylim()[1] * 1.04)
    every[0].set_ylabel(y)
    if not beside:
        _name_lines(figure, {axes: panel.lines for axes, panel in zip(every, panels, strict=True)}, colours)
    return figure


def _draw_line(axes: Any, line: Line, colour: str, width: float) -> None:
    """Draw a line, wider than those that are drawn over it, and the intervals of y as a band where x is exact."""
    across, up = ([point[axis] for point in line.points] for axis in (0, 1))
    values = [one.value for one in across], [one.value for one in up]
    inside = "white" if line.dashed else colour
    axes.plot(*values, ls="--" if line.dashed else "-", color=colour, lw=width, label=line.name)
    sizes = [size**2 for size in line.sizes] or 30
    axes.scatter(*values, s=sizes, facecolors=inside, edgecolors=colour, linewidths=1.4, zorder=3)
    if all(np.isnan(one.low) for one in across) and len(up) > 1 and not all(np.isnan(one.low) for one in up):
        low, high = zip(*((one.low, one.high) for one in up), strict=True)
        axes.fill_between(values[0], low, high, color=colour, alpha=0.13, linewidth=0)


def _arrow(axes: Any, corner: str) -> None:
    """An arrow to the good corner."""
    at = [{"upper": 0.97, "lower": 0.03, "left": 0.03, "right": 0.97}[word] for word in reversed(corner.split())]
    away = [place + (0.11 if place < 0.5 else -0.11) for place in at]
    style = {"arrowstyle": "->", "color": "0.45", "linewidth": 1.3}
    axes.annotate(
        "better", at, away, xycoords="axes fraction", textcoords="axes fraction", arrowprops=style, color="0.45",
        ha="center", va="center", fontsize=8,
    )  # fmt: skip


# --- names beside lines ---

_NAME_SIZE = 8.0  # points


def _name_lines(figure: Figure, lines: Mapping[Any, Sequence[Line]], colours: Mapping[str, str]) -> None:
    """Write the name of each line near its last point, and the labels of points, so that none lies on another."""
    figure.draw_without_rendering()
    last = [*lines][-1]
    for axes, own in lines.items():
        frame = axes.get_window_extent()
        right = figure.bbox.width - 2 if axes is last else frame.x1
        room = Bbox.from_extents(frame.x0 + 1, frame.y0 + 1, right, frame.y1 + 4)
        drawn = [line for line in own if line.points]
        boxes = [text.get_window_extent() for text in axes.texts]
        paths = [axes.transData.transform([(x.value, y.value) for x, y in line.points]) for line in drawn]
        dots = np.concatenate(paths) if paths else np.zeros((0, 2))
        strokes = np.concatenate([_along(path) for path in paths]) if paths else dots
        solid = {colours[line.name] for line in drawn if not line.dashed}
        for line, path in zip(drawn, paths, strict=True):
            if line.dashed and colours[line.name] in solid:
                continue
            _place(axes, line.name, path[-1], colours[line.name], boxes, dots, strokes, room, size=_NAME_SIZE)
        for line, path in zip(drawn, paths, strict=True):
            for label, point in zip(line.labels, path, strict=False):
                if label:
                    _place(axes, label, point, colours[line.name], boxes, dots, strokes, room, size=6.5)


def _along(path: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "m 2"]:
    """Places along a line, every few pixels."""
    steps = [np.linspace(a, b, 2 + int(np.hypot(*(b - a)) / 6)) for a, b in pairwise(path)]
    return np.concatenate(steps) if steps else path


def _place(
    axes: Any,
    text: str,
    point: Float[np.ndarray, " 2"],
    colour: str,
    boxes: list[Any],
    dots: Float[np.ndarray, "d 2"],
    strokes: Float[np.ndarray, "s 2"],
    room: Any,
    *,
    size: float,
) -> None:
    """Write a text where it touches no other one and as little as may be of points and lines, near its point."""
    label = _write(axes, text, point, point, color=colour, fontsize=size)
    extent = label.get_window_extent()
    wide, high = extent.width + 4, extent.height
    free: list[tuple[float, Any]] = []  # what a place costs, and its box
    for radius in np.arange(9.0, 160.0, 6.0):
        for angle in np.linspace(0, 2 * np.pi, 24, endpoint=False):
            x, y = map(float, point + radius * np.array([np.cos(angle), np.sin(angle)]))
            left = x if np.cos(angle) > 0.3 else x - wide if np.cos(angle) < -0.3 else x - wide / 2
            box = Bbox.from_bounds(left, y - high / 2, wide, high)
            inside = (box.min > room.min).all() and (box.max < room.max).all()
            if inside and not (boxes and box.count_overlaps(boxes)):
                around = box.padded(2)
                cost = radius / 10 + 4 * around.count_contains(dots) + 1.2 * around.count_contains(strokes)
                free.append((cost, box))
    if not free:
        label.remove()
        return
    _, box = min(free, key=lambda one: one[0])
    boxes.append(box)
    label.set_position((box.x0 + 2, (box.y0 + box.y1) / 2))
    near = np.clip(point, box.min, box.max)
    if np.hypot(*(near - point)) > 14:
        line = {"arrowstyle": "-", "color": colour, "linewidth": 0.6, "alpha": 0.7}
        _write(axes, "", point, near, arrowprops=line)


def _write(axes: Any, text: str, point: Any, at: Any, **style: Any) -> Any:
    """Write about a point, at another one, both in pixels; the layout takes no notice."""
    pixels = {"xycoords": "figure pixels", "textcoords": "figure pixels", "annotation_clip": False}
    label = axes.annotate(text, point, at, va="center", **pixels, **style)
    label.set_in_layout(False)
    return label


# --- other figures ---


def density_figure(
    panels: Mapping[str, Mapping[str, Float[np.ndarray, " n"]]], *, x: str, question: str, caption: str
) -> Figure:
    """Draw histograms of shares in 0..1 as steps, one panel for each entry."""
    figure, every = new_figure(3.2, question, caption, len(panels), sharey=True)
    edges = np.linspace(0, 1, 34)
    colours = dict(zip(("unmarked", "marked", "attacked"), (UNMARKED, "#0072B2", "#D55E00"), strict=True))
    for axes, (name, series) in zip(every, panels.items(), strict=True):
        for label, values in series.items():
            counts, _ = np.histogram(values, edges)
            heights = counts / (max(len(values), 1) * np.diff(edges))
            axes.stairs(heights, edges, label=label, color=colours.get(label), linewidth=1.4)
        axes.set_title(name, loc="left", fontsize=9)
        axes.set_xlabel(x)
    every[0].set_ylabel("density of windows")
    handles, labels = every[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3, fontsize=8)
    return figure


def roc(
    scores: Mapping[str, tuple[Float[np.ndarray, " marked"], Float[np.ndarray, " unmarked"]]],
    *,
    question: str = "",
    caption: str = "",
) -> Figure:
    """Draw ROC curves with the false-positive rate on a logarithmic axis.

    `scores` are, for each statistic, those of marked and of unmarked texts; larger means marked.
    """
    figure, (axes,) = new_figure(3.9, question, caption)
    colours = colours_of(scores)
    axes.set(xlabel="false-positive rate, share of unmarked texts", ylabel="true-positive rate, share of marked texts")
    for number, (name, (yes, no)) in enumerate(scores.items()):
        thresholds = np.unique(np.concatenate([yes, no]))[::-1]
        rates = [(np.mean(no >= t), np.mean(yes >= t)) for t in thresholds]
        fpr, tpr = np.array([(0.0, 0.0), *rates]).T
        axes.step(
            np.maximum(fpr, 0.5 / len(no)),
            tpr,
            where="post",
            color=colours[name],
            linestyle=("-", "--", "-.", ":")[number % 4],
            label=f"{name} (n = {len(yes):,} and {len(no):,})",
        )
    axes.set_xscale("log")
    axes.set_xlim(right=1)
    axes.set_ylim(0, 1.02)
    axes.legend(loc="lower right", fontsize=8)
    return figure


def level_figure(
    human: Mapping[str, Float[np.ndarray, " n"]], built: Mapping[str, Float[np.ndarray, " n"]], *, question: str
) -> Figure:
    """Draw the share of p-values at or below each level over that level: above 1, the level is not held.

    The p-values are those of unmarked human texts and of texts that a program makes, by kind. Kinds of text are drawn
    down to the level that five of their pairs are expected to have.
    """
    every = np.concatenate([*human.values()])
    caption = (
        f"n = {len(every):,} pairs of a human text and a key in {len(human)} kinds, and "
        f"{sum(map(len, built.values())):,} of text that a program makes. Grey: 95 % of exact tests."
    )
    figure, (axes,) = new_figure(3.9, question, caption)
    lines = [(p, _BUILT, 0.7) for p in built.values()] + [(p, _HUMAN, 0.7) for p in human.values()]
    for p, colour, width in [*lines, (every, "black", 2.2)]:
        levels = np.geomspace(5 / len(p), 1, 200)
        ratio = np.searchsorted(np.sort(p), levels, side="right") / len(p) / levels
        axes.plot(levels, ratio, color=colour, linewidth=width)
    levels = np.geomspace(5 / len(every), 1, 200)
    chance = 1.96 * np.sqrt((1 - levels) / levels / len(every))
    axes.fill_between(levels, 1 - chance, 1 + chance, color="0.88", linewidth=0, zorder=0)
    axes.axhline(1, color="0.5", linestyle=":")
    axes.set(xscale="log", ylim=(0, 2), xlabel="level a", ylabel="share of p-values at or below a, over a")
    for place, (name, colour) in enumerate(
        {"all human text": "black", "a kind of human text": _HUMAN, "a kind of built text": _BUILT}.items()
    ):
        axes.text(0.98, 0.95 - 0.07 * place, name, color=colour, ha="right", fontsize=8, transform=axes.transAxes)
    axes.text(0.98, 0.53, "above: the level is not held", color="0.4", ha="right", fontsize=8, transform=axes.transAxes)
    return figure


def new_figure(
    height: float, question: str, caption: str, panels: int = 1, *, sharey: bool = False
) -> tuple[Figure, list[Any]]:
    """A figure of this height in inches, with a question above it and a caption below, and its axes side by side."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(WIDTH, height), layout="constrained", dpi=130)
        figure.suptitle(question, x=0.01, ha="left", fontsize=11, fontweight="bold")
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=7.5, color="0.35", wrap=True)
        return figure, [*figure.subplots(1, panels, squeeze=False, sharey=sharey)[0]]
