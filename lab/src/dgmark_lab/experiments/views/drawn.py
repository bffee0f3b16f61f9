"""The figures of a report that follow from its numbers alone, so that they can be drawn again without the texts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from dgmark.errors import InputError
from dgmark_lab.evaluate.estimates import Estimate
from dgmark_lab.experiments.cells import StoredRun
from dgmark_lab.experiments.figures import Line, Panel, chart
from dgmark_lab.experiments.spec import RATES, Attack, Experiment, Setup, Step
from dgmark_lab.experiments.tables import Quantity

Figures = Mapping[str, Figure | None]
WEIGHTED = ", weighted"
_AT = ", T = "
_NOT_JUDGED = "it is drawn over the perplexity, which no marked text has: set perplexity = true, run with a judge"
_PLACES = ("measured here", "the paper's numbers")


@dataclass(frozen=True)
class About:
    """What the titles and captions of figures say of a run.

    Attributes:
        texts: the models that wrote the texts, and the prompts.
        length: the number of tokens that the run was shortened to; None if it was not.
    """

    texts: str
    length: int | None = None

    @classmethod
    def of_setup(cls, setup: Setup) -> "About":
        """What a setup states."""
        return cls(f"{setup.model}; prompts: {setup.prompts}")

    @classmethod
    def of(cls, run: StoredRun) -> "About":
        """What a stored run states."""
        plans = [cell.plan for cell in run.cells.values() if cell.plan is not None]
        models = ", ".join(dict.fromkeys(str(plan["model"]) for plan in plans))
        return cls(f"{models}; prompts: {run.experiment.setup(run.setup).prompts}", run.plan.get("length"))

    def question(self, text: str) -> str:
        """A title, which says so if the run was shortened."""
        return text if self.length is None else f"{text} (shortened to {self.length} tokens)"

    def caption(self, estimates: Iterable[Estimate | None], more: str = "") -> str:
        """The number of texts of each point, the model, and what else is said."""
        counts = sorted({one.count for one in estimates if one is not None and one.count})
        several = f" to {counts[-1]:,}" if len(counts) > 1 else ""
        shown = f"n = {counts[0]:,}{several} texts per point; " if counts else ""
        return f"{shown}model: {self.texts}. {more}".strip()


def figures_of(experiment: Experiment, quantities: Sequence[Quantity], about: About) -> dict[str, Figure]:
    """Draw the figures of an experiment from its numbers, by file name without a suffix; some views have none.

    Raises:
        InputError: the view has figures, and there is nothing to draw; the message says why.
    """
    if experiment.view not in _OF_VIEW:
        return {}
    drawn = _OF_VIEW[experiment.view](experiment, quantities, about)
    figures = {name: figure for name, figure in drawn.items() if figure is not None}
    if not figures:
        raise InputError(f"no number that a picture of {experiment.name} shows was measured")
    return figures


def _beside(
    points: Sequence[tuple[str, float, Quantity]], about: About, question: str, caption: str, **axes: Any
) -> Figure | None:
    """Lines of what was measured here beside those of the paper; None if there is nothing to draw.

    A point is the name of its line, x, and the number.
    """
    panels = []
    for number, place in enumerate(_PLACES):
        lines = {name: Line(name) for name, _, _ in points}
        for name, x, q in points:
            y = (q.ours, None if q.paper is None else Estimate(q.paper))[number]
            if y is not None:
                lines[name].points.append((Estimate(x), y))
        if any(line.points for line in lines.values()):
            panels.append(Panel(place, [*lines.values()]))
    shown = about.caption((q.ours for _, _, q in points), caption)
    return chart(panels, question=about.question(question), caption=shown, beside=True, **axes) if panels else None


# --- by view ---


def _lengths(experiment: Experiment, quantities: Sequence[Quantity], about: About) -> Figures:
    """TPR by length for each false-positive rate, a line for each group; no point beyond a shortened run's length."""
    known = {(q.cell, q.name): q for q in quantities}
    cells = sorted(experiment.cells, key=lambda cell: cell.at or 0.0)
    figures = {}
    for rate in RATES:
        found = [(cell, known.get((cell.name, f"TPR p<={rate}"))) for cell in cells]
        figures[f"tpr-at-{rate.rstrip('%').replace('.', '_')}-percent"] = _beside(
            [
                (cell.group, cell.at, replace(q, ours=None) if about.length and cell.at > about.length else q)
                for cell, q in found
                if cell.at is not None and q is not None
            ],
            about,
            f"How long must a text be to be found at a false-positive rate of {rate}?",
            "Bands: 95 % intervals.",
            x="length of the text, tokens",
            y="TPR, % of marked texts",
            top=103,
            log_x=True,
        )
    return figures


def _areas(experiment: Experiment, quantities: Sequence[Quantity], about: About) -> Figures:
    """AUC under each attack of several strengths, a line for each cell and window."""
    return {
        f"auc-{attack.slug}": _beside(
            [(q.cell + found[0], found[1], q) for q in quantities if (found := _strength(q.name, attack))],
            about,
            f"Are marked texts told from unmarked ones after {attack.label}?",
            "Bands: 95 % intervals; .5 is chance.",
            x="budget, share of the tokens" if attack.option == "budget" else attack.option,
            y="AUC against unmarked text",
            top=1.03,
        )
        for attack in experiment.attacks
        if len(attack.values) > 1
    }


def _strength(name: str, attack: Attack) -> tuple[str, float] | None:
    """The window and the strength in the name of an AUC under an attack; None if it is another one."""
    head, _, value = name.rpartition(" ")
    of_attack = head.startswith(f"AUC {attack.label}")
    suffix = head.removeprefix(f"AUC {attack.label}")
    return (suffix, float(value)) if of_attack and (not suffix or suffix.startswith(", w = ")) else None


def _diversity(experiment: Experiment, quantities: Sequence[Quantity], about: About) -> Figures:
    """Perplexity by diversity, a line for each curve."""
    known = {(q.cell, q.name): q.ours for q in quantities if q.ours is not None}
    lines: dict[str, Line] = {}
    for cell in sorted(experiment.cells, key=lambda cell: cell.at or 0.0):
        if (cell.name, "perplexity") in known:
            line = lines.setdefault(cell.group, Line(cell.group))
            line.points.append((known[cell.name, "distinct-2"], known[cell.name, "perplexity"]))
            line.labels.append("" if cell.at is None else f"{cell.at:g}")
    if not lines:
        raise InputError(_NOT_JUDGED)
    judged = [one for (_, name), one in known.items() if name == "perplexity"]
    figure = chart(
        [Panel("", [*lines.values()])],
        question=about.question("Is marked text as diverse and as predictable as unmarked text?"),
        caption=about.caption(judged, "Small numbers: temperatures. 95 % intervals: numbers.csv."),
        x="diversity (distinct-2)",
        y="perplexity under the judge",
        better="lower right",
    )
    return {"perplexity-by-diversity": figure}


def _rivals(experiment: Experiment, quantities: Sequence[Quantity], about: About) -> Figures:
    """What is found by what it costs, as written and after one word in ten is deleted."""
    if len({cell.prompts for cell in experiment.cells}) > 1:
        raise InputError("cells have other prompts, and what differs between prompts is not what differs between rules")
    known = {(q.cell, q.name): q.ours for q in quantities if q.ours is not None}
    judged = dict.fromkeys(cell for cell, name in known if name == "perplexity")
    cells = sorted(judged, key=lambda cell: float(cell.split(_AT)[1]))
    if not (marked := [cell for cell in cells if (cell, "found, as written") in known]):
        raise InputError(_NOT_JUDGED)
    spans = {f"unmarked{_AT}{cell.split(_AT)[1]}": known[cell, "perplexity"] for cell in cells if cell not in marked}
    temperatures = list(dict.fromkeys(cell.split(_AT)[1] for cell in marked))
    panels = []
    for condition, title in (("as written", "as written"), ("deletion 0.1", "10 % of the words deleted")):
        lines: dict[str, Line] = {}
        for cell in marked:
            if found := known.get((cell, f"found, {condition}")):
                name, at = cell.split(_AT)
                line = lines.setdefault(name, Line(name, dashed=name.endswith(WEIGHTED)))
                line.points.append((known[cell, "perplexity"], found))
                line.sizes.append(4 + 5 * temperatures.index(at) / max(1, len(temperatures) - 1))
        if lines:
            most = max(cost.value for line in lines.values() for cost, _ in line.points)
            near = {name: span for name, span in spans.items() if span.value <= most}
            panels.append(Panel(title, [*lines.values()], near))
    weighted = "Dashed: the weighted test. " if any(WEIGHTED in cell for cell in marked) else ""
    figure = chart(
        panels,
        question=about.question("Which watermark is found, and what does it cost?"),
        caption=about.caption(
            (known[cell, "perplexity"] for cell in marked),
            f"Found: p <= 1e-4. Dots, from small to large: T = {', '.join(temperatures)}. {weighted}"
            "Grey: unmarked text (95 %). Other intervals: numbers.csv.",
        ),
        x="perplexity under the judge",
        y="texts found, %",
        top=104,
        better="upper left",
    )
    return {"rivals": figure}


_OF_VIEW: dict[Step, Callable[[Experiment, Sequence[Quantity], About], Figures]] = {
    "length-curve": _lengths,
    "auc": _areas,
    "frontier": _diversity,
    "rivals": _rivals,
}
