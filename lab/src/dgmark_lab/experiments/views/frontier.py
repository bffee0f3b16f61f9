"""Quality, diversity and evidence over temperatures, and what is found under each condition.

The tables show every cell, and every watermark where its texts are as diverse as unmarked text. All are scored as
`dgmark detect` does, from the text.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dgmark.detection.reading.disguises.normalise import STEPS
from dgmark_lab.evaluate.diversity import distinct_ngrams, repeated_ngrams
from dgmark_lab.evaluate.estimates import Estimate, mean, percent
from dgmark_lab.experiments.cells import RATE, CellRows, PerText, Scores, StoredRun, TextOrIds
from dgmark_lab.experiments.conditions import CONDITIONS, EDITS
from dgmark_lab.experiments.matched_curves import Measured, matched
from dgmark_lab.experiments.spec import Experiment
from dgmark_lab.experiments.tables import Quantity, Section, quantities_of, quantity_table

EDITED = "mean of edits"
# every so many tokens it is tried whether a text is found
_STEP = 16
# percent of the texts that are found in as many tokens; all of them are in numbers.csv
_SIZES = (10, 25, 50, 75, 90, 95)
_TABLES = {
    "What it costs": {
        "perplexity": "perplexity",
        "its worst decile": "worst decile",
        "distinct-2": "distinct-2",
        "repeated 4-grams, %": "repeated 4-grams",
    },
    f"How many tokens it takes, at p <= {RATE:g}": {
        **{f"tokens for {share} % of the texts": f"tokens for {share} %" for share in (50, 95)},
        "share that matches": "matching",
        "bits a token": "bits",
        "found at p <= 0.01, %": "found at 1 %",
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
_DIGITS = {
    "temperature": 2,
    "perplexity": 1,
    "perplexity ratio": 2,
    "worst decile": 1,
    "repeated 4-grams": 1,
    EDITED: 0,
    "found at 1 %": 0,
    **{f"tokens for {share} %": 0 for share in _SIZES},
    **{name: 0 for names in CONDITIONS.values() for name in names},
}


def frontier(run: StoredRun) -> Section:
    """Show every cell, and every watermark at the diversity of unmarked text."""
    scores = {cell.name: _scores(run, cell) for cell in run.present}
    measured = {cell.name: _measured(run, cell, scores[cell.name]) for cell in run.present}
    sweeps = _sweeps(run.experiment)
    quantities = [q for cell in run.present for q in _quantities(cell, measured[cell.name], scores[cell.name])]
    every = [cell for cells in sweeps.values() for cell in cells]
    tables = [quantity_table(title, every, quantities, columns, digits=_DIGITS) for title, columns in _TABLES.items()]
    # cells are compared prompt by prompt, so only those that have all texts
    curves = {
        name: [cell for cell in cells if cell in measured and measured[cell].judged == run.cells[cell].requested]
        for name, cells in sweeps.items()
    }
    for reference in _references(run, curves):
        names = []
        for scheme, cells in curves.items():
            figures = None if reference in cells else matched([measured[cell] for cell in cells], measured[reference])
            if figures is not None:
                names.append(f"{scheme}, as diverse as {reference}")
                quantities += quantities_of(names[-1], figures)
        title = f"At equal diversity; found at p <= {RATE:g}, in percent"
        tables.append(quantity_table(title, names, quantities, _AT_EQUAL_DIVERSITY, digits=_DIGITS))
    return Section(quantities, tables)


def _sweeps(experiment: Experiment) -> dict[str, list[str]]:
    """The names of the cells of each curve, in the order of their temperatures."""
    groups: dict[str, list[str]] = {cell.group: [] for cell in experiment.cells}
    for cell in sorted(experiment.cells, key=lambda cell: cell.at or 0.0):
        groups[cell.group].append(cell.name)
    return groups


def _references(run: StoredRun, curves: Mapping[str, Sequence[str]]) -> list[str]:
    """The cells to compare at: the experiment's unmarked cell, then the others of its curve, from the highest T."""
    null = run.experiment.null
    curve = next((cells for cells in curves.values() if null in cells), [])
    return [str(null), *(name for name in reversed(curve) if name != null)] if curve else []


# --- numbers of a cell ---


def _scores(run: StoredRun, cell: CellRows) -> dict[str, Scores]:
    """The scores of a marked cell's texts under each condition whose texts were made."""
    found: dict[str, Scores] = {}
    if cell.cell.key is None:
        return found
    for name, condition in run.scored_under.items():
        attacked = run.attacked(cell, condition.steps)
        if len(attacked.rows) < len(cell.rows):
            continue
        texts: Sequence[TextOrIds] = [row["text"] for row in attacked.rows]
        if condition.first:
            texts = [ids[: condition.first] for ids in cell.ids]
        found[name] = cell.score(texts, deployed=True, normalise=tuple(STEPS) if condition.normalise else ())
    return found


def _measured(run: StoredRun, cell: CellRows, scores: Mapping[str, Scores]) -> Measured:
    """Measure the texts of a cell; of marked ones also the share that matches, bits a token and the mean of edits."""
    nats, tokens = run.nats_and_tokens(cell)
    others = {"repeated 4-grams": 100 * np.array([repeated_ngrams(ids) for ids in cell.ids])}
    if scores:
        lengths = np.array([float(len(ids)) for ids in cell.ids])
        others["matching"] = scores["none"].green
        others["bits"] = -np.log2(scores["none"].p) / np.maximum(lengths, 1)
    found = {name: 100.0 * (one.p <= RATE) for name, one in scores.items()}
    if edited := [found[name] for name in EDITS if name in found]:
        others[EDITED] = np.mean(edited, axis=0)
    return Measured(
        temperature=cell.temperature,
        diversity=np.array([distinct_ngrams(ids, 2) for ids in cell.ids]),
        nats=nats,
        tokens=tokens,
        others=others,
        found=found,
    )


def tokens_needed(cell: CellRows) -> PerText:
    """The length of the shortest beginning in which each text is found, in steps of 16; infinite if it never is."""
    needed, lengths = np.full(len(cell.rows), np.inf), np.array([len(ids) for ids in cell.ids])
    for first in range(_STEP, int(lengths.max(initial=0)) + _STEP, _STEP):
        left = np.flatnonzero(np.isinf(needed) & (lengths > first - _STEP))
        some = cell.over([cell.rows[number] for number in left])
        p = some.score([cell.ids[number][:first] for number in left], deployed=True).p
        needed[left[p <= RATE]] = first
    return needed


def _quantities(cell: CellRows, measured: Measured, scores: Mapping[str, Scores]) -> list[Quantity]:
    """The numbers of a cell, with perplexities if all its texts have one."""
    estimates = {
        **measured.cost,
        **{name: mean(values) for name, values in measured.others.items()},
        **{name: percent(values) for name, values in measured.found.items()},
        **{f"median p, {name}": Estimate(float(np.median(found.p))) for name, found in scores.items()},
    }
    if scores:
        estimates["found at 1 %"] = percent(scores["none"].p <= 0.01)
        needed = tokens_needed(cell)
        for share in _SIZES:
            size = float(np.quantile(needed, share / 100, method="inverted_cdf"))
            # not a number where fewer texts are ever found
            estimates[f"tokens for {share} %"] = Estimate(np.nan if np.isinf(size) else size, count=len(needed))
    return quantities_of(cell.name, estimates)
