"""Detectability: error rates at the paper's thresholds, TPR at a false-positive rate, and figures of the texts."""

from statistics import NormalDist

import numpy as np

from dgmark_lab.evaluate.diversity import repeated_ngrams
from dgmark_lab.evaluate.estimates import Estimate, auc, mean, percent, perplexity, quantile, share
from dgmark_lab.experiments.cells import CellRows, StoredRun
from dgmark_lab.experiments.spec import RATES, PaperNumbers
from dgmark_lab.experiments.tables import Quantity, Section, quantities_of, quantity_table

THRESHOLDS = (4.0, 5.0)
_AT_RATES = ("TPR p<=", "FPR p<=", "TPR deployed p<=", "TPR ids p<=", "TPR z at ")
_DIGITS = {"tokens": 1, "median z": 2, "perplexity": 2, "median perplexity": 2, "repeated 4-grams": 1}
_DIGITS |= {f"{name}{rate}": 2 for name in _AT_RATES for rate in RATES}


def detection(run: StoredRun) -> Section:
    """Show the tables of detectability."""
    quantities = list[Quantity]()
    for cell in run.cells.values():
        measured = _measured(run, cell) if cell.rows else {}  # else the paper's numbers alone
        quantities += quantities_of(cell.name, measured, paper_numbers(cell.cell.paper))
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
    scores = cell.scores
    found |= {"green fraction": mean(scores.green), "median z": quantile(scores.z, 0.5)}
    if cell.cell.key is not None:
        found |= {f"TPR z>{z:g}": _share(scores.z > z) for z in THRESHOLDS}
        found |= _at_rates("TPR", scores.p)
        for rate, level in RATES.items():
            found[f"TPR z at {rate}"] = percent(scores.z > NormalDist().inv_cdf(1 - level))
        if not cell.key.rule.distribution:  # one of dgmark's own
            found |= _at_rates("TPR deployed", cell.score(cell.ids, deployed=True).p)
        found |= _at_rates("TPR ids", cell.score([row["token_ids"] for row in cell.rows]).p)
        if (null := run.null_of(cell)) is not None:
            # of the unmarked texts, under the run's key and the null keys; the AUC under the run's
            of_null = run.null_scores(cell, null)
            found["AUC"] = auc(scores.z, of_null[0].z)
            z = np.concatenate([one.z for one in of_null])
            found |= {f"FPR z>{threshold:g}": _share(z > threshold) for threshold in THRESHOLDS}
            found |= _at_rates("FPR", np.concatenate([one.p for one in of_null]))
    return found


def _share(hits: np.ndarray) -> Estimate:
    return share(int(hits.sum()), len(hits))


def _at_rates(name: str, p: np.ndarray) -> dict[str, Estimate]:
    return {f"{name} p<={rate}": percent(p <= level) for rate, level in RATES.items()}
