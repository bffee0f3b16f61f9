"""Quality, diversity and evidence over temperatures, and what is found under each condition.

The tables show every cell, and every scheme where its texts are as diverse as unmarked text. dgMARK is scored as
`dgmark detect` comes, from the text; the baselines by their own detectors.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dgmark.detection.normalise import STEPS
from dgmark_lab.evaluate.diversity import distinct_ngrams, repeated_ngrams, token_entropy
from dgmark_lab.evaluate.intervals import MIN_TEXTS
from dgmark_lab.experiments.cells import CellRows, PerText, Scores, StoredRun
from dgmark_lab.experiments.conditions import CONDITIONS, EDITS
from dgmark_lab.experiments.estimates import Estimate, auc, mean, percent, perplexity, quantile
from dgmark_lab.experiments.figures import Line, heat_figure, line_figure, line_panels
from dgmark_lab.experiments.frontier import WORST, Matched, Measured, matched
from dgmark_lab.experiments.spec import DGMARK, Experiment
from dgmark_lab.experiments.tables import Quantity, Section, Table, quantity_table, with_interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RATE = 1e-4
EDITED = "mean of edits"
# every so many tokens it is tried whether a text is found
_STEP = 16
# percent of the texts that are found in as many tokens (all of them in numbers.csv), and percent found at which
# perplexities are compared
_SIZES, _DETECTED = (10, 25, 50, 75, 90, 95), (90, 99)
_TABLES = {
    "What it costs": {
        "perplexity": "perplexity",
        "its worst decile": "worst decile",
        "distinct-2": "distinct-2",
        "repeated 4-grams, %": "repeated 4-grams",
    },
    f"How many tokens it takes, at p <= {RATE:g}": {
        **{f"tokens for {share} % of the texts": f"tokens for {share} %" for share in (50, 95)},
        "bits a token": "bits",
        "found at p <= 0.01, %": "found at 1 %",
        "AUROC": "AUROC",
    },
    f"What survives: found at p <= {RATE:g}, in percent": {
        "unedited": "none",
        "30 % deleted": "deletion 0.3",
        "20 % inserted": "insertion 0.2",
        "30 % replaced": "substitution 0.3",
        "64 tokens": "64 tokens",
    },
}
_AT_EQUAL_DIVERSITY = {
    "at T": "temperature",
    "perplexity over unmarked": "perplexity ratio",
    "found, %": "none",
    "64 tokens": "64 tokens",
    EDITED: EDITED,
}
_AT_MATCHED_DETECTION = {f"perplexity, {share} % found": f"perplexity, {share} % found" for share in _DETECTED}
_DIGITS = {
    "temperature": 2,
    "perplexity": 1,
    "perplexity ratio": 2,
    "worst decile": 1,
    "token entropy": 2,
    "repeated 4-grams": 1,
    "survive re-tokenization": 1,
    EDITED: 0,
    "found at 1 %": 0,
    **{f"tokens for {share} %": 0 for share in _SIZES},
    **dict.fromkeys(_AT_MATCHED_DETECTION.values(), 1),
    **{name: 0 for names in CONDITIONS.values() for name in names},
}


def frontier(run: StoredRun) -> Section:
    """Show every cell, and every scheme at the diversity of unmarked text."""
    scores = {cell.name: _scores(run, cell) for cell in run.present}
    measured = {cell.name: one for cell in run.present if (one := _measured(run, cell, scores[cell.name])) is not None}
    curves = {name: [cell for cell in cells if cell in measured] for name, cells in _sweeps(run.experiment).items()}
    quantities = [q for cell in run.present for q in _quantities(run, cell, measured.get(cell.name), scores[cell.name])]
    by_reference = {name: _all_matched(curves, measured, name) for name in _references(run, curves)}
    for reference, found in by_reference.items():
        for scheme, there in found.items():
            figures = {"temperature": there.temperature, "perplexity ratio": there.ratio, **there.figures}
            quantities += _named(_at_equal_diversity(scheme, reference), figures)
    sweeps = _sweeps(run.experiment)
    quantities += [q for name, cells in sweeps.items() for q in at_matched_detection(name, cells, quantities)]
    in_order = [cell for cells in sweeps.values() for cell in cells]
    tables = [
        *(quantity_table(title, in_order, quantities, columns) for title, columns in _TABLES.items()),
        *(_matched_table(reference, found, quantities) for reference, found in by_reference.items()),
        quantity_table("The lowest perplexity at which so many are found", sweeps, quantities, _AT_MATCHED_DETECTION),
    ]
    pictures = frontier_figures(run.experiment, quantities) if measured else {}
    return Section(quantities, tables, figures=pictures | _evidence_figure(run, scores))


def _sweeps(experiment: Experiment) -> dict[str, list[str]]:
    """The names of the cells of each curve, in the order of their temperatures."""
    groups: dict[str, list[str]] = {cell.group: [] for cell in experiment.cells}
    for cell in sorted(experiment.cells, key=lambda cell: cell.at or 0.0):
        groups[cell.group].append(cell.name)
    return groups


def _at_equal_diversity(scheme: str, reference: str) -> str:
    """What numbers.csv calls a scheme at the diversity of the reference."""
    return f"{scheme}, as diverse as {reference}"


def _references(run: StoredRun, curves: Mapping[str, Sequence[str]]) -> list[str]:
    """The cells to compare at: the experiment's unmarked cell, then the others of its curve, from the highest T."""
    null = run.experiment.null
    curve = next((cells for cells in curves.values() if null in cells), [])
    return [str(null), *(name for name in reversed(curve) if name != null)] if curve else []


# --- numbers of a cell ---


def _scores(run: StoredRun, cell: CellRows) -> dict[str, Scores]:
    """The scores of a marked cell's texts under each condition whose texts were made."""
    found: dict[str, Scores] = {}
    if cell.cell.scheme is None:
        return found
    for name, condition in CONDITIONS[run.experiment.conditions].items():
        texts: Sequence[str | list[int]] = run.attacked(cell, condition.steps)
        if len(texts) < len(cell.rows):
            continue
        if condition.first:
            texts = [ids[: condition.first] for ids in cell.ids]
        steps = tuple(STEPS) if condition.normalise else ()
        found[name] = cell.score(texts, deployed=_deployed(cell), normalise=steps)
    return found


def _deployed(cell: CellRows) -> bool:
    """Whether texts are scored as `dgmark detect` does."""
    return cell.cell.scheme == DGMARK


def _whole(scores: Mapping[str, Scores]) -> Scores:
    """The scores of the unedited texts, or of the longest of their beginnings."""
    return scores.get("none") or list(scores.values())[-1]


def _measured(run: StoredRun, cell: CellRows, scores: Mapping[str, Scores]) -> Measured | None:
    """Measure the texts of a cell; None if some of its texts or perplexities are missing."""
    judge = run.plan.get("judge")
    if judge is None or not cell.complete:
        return None
    stored = run.store.read("perplexity", judge["hash"], [row["id"] for row in cell.rows])
    if len(stored) < len(cell.rows):
        return None
    judged = [stored[row["id"]] for row in cell.rows]
    found = {name: 100.0 * (one.p <= RATE) for name, one in scores.items()}
    edited = [found[name] for name in EDITS if name in found]
    return Measured(
        temperature=float(cell.cell.at or 0.0),
        diversity=np.array([distinct_ngrams(ids, 2) for ids in cell.ids]),
        nats=np.array([float(row["nats"]) for row in judged]),
        tokens=np.array([float(row["tokens"]) for row in judged]),
        others=_variety(cell) | _evidence(cell, scores) | ({EDITED: np.mean(edited, axis=0)} if edited else {}),
        found=found,
    )


def _variety(cell: CellRows) -> dict[str, PerText]:
    return {
        "distinct-3": np.array([distinct_ngrams(ids, 3) for ids in cell.ids]),
        "token entropy": np.array([token_entropy(ids) for ids in cell.ids]),
        "repeated 4-grams": 100 * np.array([repeated_ngrams(ids) for ids in cell.ids]),
    }


def _evidence(cell: CellRows, scores: Mapping[str, Scores]) -> dict[str, PerText]:
    """The share of matches in each text, and the bits of evidence in each of its tokens."""
    if not scores:
        return {}
    whole = _whole(scores)
    tokens = np.array([float(len(ids)) for ids in cell.ids])
    return {"matching": whole.green, "bits": -np.log2(whole.p) / np.maximum(tokens, 1)}


def _against_unmarked(run: StoredRun, cell: CellRows, scores: Mapping[str, Scores]) -> dict[str, Estimate]:
    """What is found at 1 %, and the area under the ROC curve over the unmarked texts, each under its prompt's key."""
    p = _whole(scores).p
    found, null = {"found at 1 %": percent(p <= 0.01)}, run.null_of(cell)
    if null is not None and null.key.spec.tokenizer_fingerprint == cell.key.spec.tokenizer_fingerprint:
        unmarked = replace(cell, rows=null.rows).score(null.ids, deployed=_deployed(cell))
        found["AUROC"] = auc(-p, -unmarked.p)
    return found


def tokens_needed(cell: CellRows) -> PerText:
    """The length of the shortest beginning in which each text is found, in steps of 16; infinite if it never is."""
    needed, lengths = np.full(len(cell.rows), np.inf), np.array([len(ids) for ids in cell.ids])
    for first in range(_STEP, int(lengths.max(initial=0)) + _STEP, _STEP):
        left = np.flatnonzero(np.isinf(needed) & (lengths > first - _STEP))
        rows = replace(cell, rows=[cell.rows[number] for number in left])
        p = rows.score([cell.ids[number][:first] for number in left], deployed=_deployed(cell)).p
        needed[left[p <= RATE]] = first
    return needed


def _sizes(cell: CellRows) -> dict[str, Estimate]:
    """The tokens in which shares of the texts are found; not a number where fewer of them ever are."""
    needed = tokens_needed(cell)
    sizes = {share: float(np.quantile(needed, share / 100, method="inverted_cdf")) for share in _SIZES}
    return {
        f"tokens for {share} %": Estimate(np.nan if np.isinf(size) else size, count=len(needed))
        for share, size in sizes.items()
    }


def at_matched_detection(curve: str, cells: Sequence[str], quantities: Sequence[Quantity]) -> list[Quantity]:
    """The lowest perplexity of the curve's cells in which so many of the whole texts are found."""
    known = {(q.cell, q.name): q.ours for q in quantities if q.ours is not None}
    measured = [(known[cell, "found"].value, known[cell, "perplexity"]) for cell in cells if (cell, "found") in known]
    estimates = {}
    for share, name in zip(_DETECTED, _AT_MATCHED_DETECTION.values(), strict=True):
        enough = [cost for found, cost in measured if found >= share]
        if enough:
            estimates[name] = min(enough, key=lambda cost: cost.value)
    return _named(curve, estimates)


def _quantities(run: StoredRun, cell: CellRows, one: Measured | None, scores: Mapping[str, Scores]) -> list[Quantity]:
    """The numbers of a cell; of one that is not measured, those that need no judge and few texts."""
    estimates = {name: mean(values) for name, values in (one.others if one else _variety(cell)).items()}
    survives = [row["token_ids"] == ids for row, ids in zip(cell.rows, cell.ids, strict=True)]
    estimates["survive re-tokenization"] = percent(np.array(survives))
    if one is not None:
        estimates = {
            "perplexity": perplexity(one.nats, one.tokens),
            "worst decile": quantile(one.each, WORST),
            "distinct-2": mean(one.diversity),
            **estimates,
            **{name: percent(values) for name, values in one.found.items()},
            **{f"median p, {name}": Estimate(float(np.median(found.p))) for name, found in scores.items()},
        }
    if one is not None and scores:
        estimates["found"] = percent(_whole(scores).p <= RATE)
        estimates |= _against_unmarked(run, cell, scores) | _sizes(cell)
    return _named(cell.name, estimates)


def _named(cell: str, estimates: Mapping[str, Estimate]) -> list[Quantity]:
    return [Quantity(cell, name, estimate, digits=_DIGITS.get(name, 3)) for name, estimate in estimates.items()]


# --- tables ---


def _all_matched(
    curves: Mapping[str, Sequence[str]], measured: Mapping[str, Measured], reference: str
) -> dict[str, Matched]:
    """Every other curve at the diversity of the reference, by its name."""
    others = {name: cells for name, cells in curves.items() if reference not in cells}
    found = {name: matched([measured[cell] for cell in cells], measured[reference]) for name, cells in others.items()}
    return {name: one for name, one in found.items() if one is not None}


def _matched_table(reference: str, found: Mapping[str, Matched], quantities: Sequence[Quantity]) -> Table | None:
    """All schemes at the diversity of a reference."""
    names = [_at_equal_diversity(scheme, reference) for scheme in found]
    title = f"At equal diversity; found at p <= {RATE:g}, in percent"
    return quantity_table(title, names, quantities, _AT_EQUAL_DIVERSITY)


# --- figures ---

FRONTIER = "perplexity-by-diversity"
_TITLES = {"dmark": "DMark", "gloaguen": "Gloaguen et al.", "kgw": "KGW", "lr-dwm": "LR-DWM", "tango": "TANGO"}


def _pictured(experiment: Experiment) -> dict[str, str]:
    """The curves that the pictures show, with their names in a legend: ours cannot be taken for a baseline."""
    labels = {}
    for cell in experiment.cells:
        if not experiment.pictured or cell.group in experiment.pictured:
            ours, other = f"dgmark (this), {cell.group}", str(cell.scheme)
            label = cell.group.replace(other, _TITLES.get(other, other.capitalize()))
            labels[cell.group] = ours if cell.scheme == DGMARK else label
    return labels


def frontier_panels(panels: Mapping[str, tuple[Experiment, Sequence[Quantity]]], width: float) -> "Figure":
    """Draw perplexity by diversity over temperatures, in a panel for each experiment, by its title."""
    lines: dict[str, list[Line]] = {}
    for title, (experiment, quantities) in panels.items():
        known = {(q.cell, q.name): q.ours for q in quantities if q.ours is not None}
        sweeps, lines[title] = _sweeps(experiment), []
        for name, label in _pictured(experiment).items():
            shown = [cell for cell in sweeps[name] if (cell, "perplexity") in known]
            points = [(known[cell, "distinct-2"], known[cell, "perplexity"]) for cell in shown]
            lines[title].append(Line(label, points, [cell.rpartition(" = ")[2] for cell in shown]))
    return line_panels(lines, x="distinct-2", y="perplexity under the judge", width=width, log_y=True)


def frontier_figures(experiment: Experiment, quantities: Sequence[Quantity]) -> "dict[str, Figure]":
    """Draw the curves that the experiment pictures, and how often their texts are found, with what they cost."""
    known = {(q.cell, q.name): q.ours for q in quantities if q.ours is not None}
    conditions = CONDITIONS[experiment.conditions]
    lengths = {name: one.first for name, one in conditions.items() if one.first}
    found, heat = [], dict[str, dict[str, Estimate]]()
    for name, label in _pictured(experiment).items():
        there = _at_equal_diversity(name, str(experiment.null))
        rates = [(Estimate(n), known[there, length]) for length, n in lengths.items() if (there, length) in known]
        cost = with_interval(known[there, "perplexity ratio"], 2) if rates else ""
        found.append(Line(f"{label}: {cost}", rates))
        if all((there, condition) in known for condition in conditions):
            heat[label] = {condition: known[there, condition] for condition in conditions}
    title = "Quality and diversity, over temperatures (labels; 95 % intervals over texts)"
    figures = {FRONTIER: frontier_panels({title: (experiment, quantities)}, width=8.5)}
    if experiment.conditions == "lengths" and any(line.points for line in found):
        figures["found-by-length"] = line_figure(
            found,
            x="tokens of the text",
            y=f"found at p <= {RATE:g}, %",
            title=f"Texts as diverse as {experiment.null} (legend: perplexity over unmarked text)",
            width=9.5,
            log_x=True,
        )
    elif heat:
        figures["what-survives-what"] = heat_figure(heat, title=f"What survives what: texts found at p <= {RATE:g}")
    return figures


def _evidence_figure(run: StoredRun, scores: Mapping[str, Mapping[str, Scores]]) -> "dict[str, Figure]":
    """Draw the mean of -log10 p over the first tokens of the texts that are as long."""
    lines = []
    for cell in run.present if run.experiment.conditions == "lengths" else ():
        line, tokens = Line(cell.name), np.array([len(ids) for ids in cell.ids])
        for name, one in scores[cell.name].items():
            first = CONDITIONS["lengths"][name].first or 0
            long = tokens >= first
            if long.sum() >= MIN_TEXTS:
                line.points.append((Estimate(first), mean(-np.log10(one.p[long]))))
        lines.append(line)
    if not any(line.points for line in lines):
        return {}
    title = f"Evidence by length (dotted: p = {RATE:g})"
    figure = line_figure(lines, x="tokens", y="evidence, mean -log10 p", title=title, log_x=True)
    figure.axes[0].axhline(-np.log10(RATE), color="0.5", linestyle=":")
    return {"evidence-by-length": figure}
