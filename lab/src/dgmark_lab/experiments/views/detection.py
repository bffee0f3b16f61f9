"""Detectability: error rates at the paper's thresholds, TPR at a false-positive rate, and figures of the texts."""

from statistics import NormalDist

import numpy as np

from dgmark_lab.evaluate.diversity import repeated_ngrams
from dgmark_lab.evaluate.estimates import Estimate, auc, mean, percent, perplexity, quantile, share
from dgmark_lab.experiments.cells import CellRows, Scores, StoredRun
from dgmark_lab.experiments.spec import RATES, PaperNumbers
from dgmark_lab.experiments.tables import Quantity, Section, quantities_of, quantity_table

THRESHOLDS = (4.0, 5.0)
_AT_RATES = ("TPR p<=", "FPR p<=", "TPR deployed p<=", "TPR ids p<=", "TPR z at ")
_DIGITS = {"tokens": 1, "median z": 2, "perplexity": 2, "median perplexity": 2, "repeated 4-grams": 1}
_DIGITS |= {f"{name}{rate}": 2 for name in _AT_RATES for rate in RATES}


def detection(run: StoredRun) -> Section:
    """Show the tables of detectability."""
    quantities = [q for cell in run.cells.values() for q in cell_quantities(run, cell)]
    error_rates = {f"{rate} z > {z:g}": f"{rate} z>{z:g}" for z in THRESHOLDS for rate in ("FPR", "TPR")}
    exact, normal = "exact p-value at or below the rate", "z above the normal quantile of the rate (the paper's way)"
    texts = {
        "tokens": "tokens",
        "green": "green fraction",
        "median z": "median z",
        "AUC of z": "AUC",
        "repeated 4-grams, %": "repeated 4-grams",
        "perplexity": "perplexity",
        "its median": "median perplexity",
    }
    tables = {
        "Error rates at the paper's thresholds": error_rates,
        f"TPR in percent, {exact}": _at("exact p <=", "TPR p<="),
        f"FPR in percent, {exact}": _at("exact p <=", "FPR p<="),
        "TPR in percent, p-value of dgmark detect as it comes": _at("p <=", "TPR deployed p<="),
        "TPR in percent, exact p-value of the ids that the model wrote": _at("p <=", "TPR ids p<="),
        f"TPR in percent, {normal}": _at("z at", "TPR z at "),
        "The texts": texts,
    }
    papers = {f"TPR in percent, {exact}": "paper, by z"}
    shown = [
        quantity_table(title, run.cells, quantities, columns, paper=papers.get(title, "paper"), digits=_DIGITS)
        for title, columns in tables.items()
    ]
    return Section(quantities, shown)


def _at(heading: str, quantity: str) -> dict[str, str]:
    """The columns of a quantity at each rate."""
    return {f"{heading} {rate}": f"{quantity}{rate}" for rate in RATES}


def cell_quantities(run: StoredRun, cell: CellRows) -> list[Quantity]:
    """Return all numbers of one cell; only the paper's if it has no texts."""
    return quantities_of(cell.name, _measured(run, cell) if cell.rows else {}, paper_numbers(cell.cell.paper))


def paper_numbers(paper: PaperNumbers) -> dict[str, float]:
    """Return the paper's numbers under the names of our quantities."""
    perplexities = {"perplexity": paper.perplexity, "median perplexity": paper.median_perplexity}
    found = {name: value for name, value in perplexities.items() if value is not None}
    for z, rates in zip(THRESHOLDS, (paper.z4, paper.z5), strict=True):
        if rates is not None:
            found |= {f"{name.upper()} z>{z:g}": value for name, value in rates.model_dump().items()}
    for rate, value in paper.tpr_at.items():
        found |= {f"TPR p<={rate}": value, f"TPR z at {rate}": value}
    return found


def _measured(run: StoredRun, cell: CellRows) -> dict[str, Estimate]:
    found = {
        "tokens": mean(cell.scores.tokens),
        "repeated 4-grams": mean(100 * np.array([repeated_ngrams(ids) for ids in cell.ids])),
    }
    nats, tokens = run.nats_and_tokens(cell)
    nats, tokens = nats[tokens > 0], tokens[tokens > 0]  # an empty text has no perplexity
    if len(nats):
        found["perplexity"] = perplexity(nats, tokens)
        if cell.cell.paper.median_perplexity is not None:
            found["median perplexity"] = quantile(np.exp(nats / tokens), 0.5)
    found |= {"green fraction": mean(cell.scores.green), "median z": quantile(cell.scores.z, 0.5)}
    if cell.cell.key is not None:
        scores = cell.scores
        found |= {f"TPR z>{z:g}": _share(scores.z > z) for z in THRESHOLDS}
        found |= _at_rates("TPR", scores.p)
        for rate, level in RATES.items():
            found[f"TPR z at {rate}"] = percent(scores.z > NormalDist().inv_cdf(1 - level))
        if not cell.key.rule.distribution:  # one of dgmark's own
            found |= _at_rates("TPR deployed", cell.score(cell.ids, deployed=True).p)
        found |= _at_rates("TPR ids", cell.score([row["token_ids"] for row in cell.rows]).p)
        null = run.null_of(cell)
        if null is not None:
            found |= _false_positives(cell, run.null_scores(cell, null))
    return found


def _false_positives(cell: CellRows, null: list[Scores]) -> dict[str, Estimate]:
    """False positives over the unmarked texts, under the run's key and the null keys; and the AUC under the run's."""
    z = np.concatenate([scores.z for scores in null])
    return {
        "AUC": auc(cell.scores.z, null[0].z),
        **{f"FPR z>{threshold:g}": _share(z > threshold) for threshold in THRESHOLDS},
        **_at_rates("FPR", np.concatenate([scores.p for scores in null])),
    }


def _share(hits: np.ndarray) -> Estimate:
    return share(int(hits.sum()), len(hits))


def _at_rates(name: str, p: np.ndarray) -> dict[str, Estimate]:
    return {f"{name} p<={rate}": percent(p <= level) for rate, level in RATES.items()}
