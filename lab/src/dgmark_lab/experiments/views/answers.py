"""Several answers to one prompt: how alike they are, and whether they show that a service marks.

A drift compares a service with the unmarked model, from as many answers of each. That of the perplexity is UWBench's
(Wu et al., ICLR 2026, arXiv 2509.24048, "SPMG"): the absolute difference between the means of the judge's nats a token,
over the answers to a prompt. That of the pairs is how much larger a share of their pairs two answers have in common if
they come from one source. Their p-values are permutation tests, which need no key: without a mark, every split of the
answers into two halves is equally likely.
"""

from collections.abc import Sequence
from itertools import chain, groupby, pairwise

import numpy as np
from jaxtyping import Float

from dgmark.rows.item import Row
from dgmark_lab.evaluate.diversity import distinct_ngrams, repeated_ngrams
from dgmark_lab.evaluate.estimates import Estimate, mean
from dgmark_lab.experiments.cells import CellRows, StoredRun
from dgmark_lab.experiments.tables import Quantity, Section, quantities_of, quantity_table

PERMUTATIONS = 10_000
_ALIKE = ("distinct-2", "distinct-2 of all", "overlap", "repeated 4-grams")
_DRIFTS = ("drift", "p of the drift", "drift of pairs", "p of the pairs")
_DIGITS = {"p of the drift": 4, "p of the pairs": 4}

# the token ids of each answer to each prompt
Answers = list[list[list[int]]]


def answers(run: StoredRun) -> Section:
    """Show how alike the answers of each cell are, and its drifts from the unmarked cell with other seeds."""
    quantities = list[Quantity]()
    for cell in run.present:
        rows = _by_prompt(cell)
        found = likeness(_ids(rows)) if rows else {}
        reference = _reference(run, cell)
        if rows and reference is not None:
            found |= _drifts(run, cell, rows, _by_prompt(reference))
        quantities += quantities_of(cell.name, found)
    tables = {"How alike the answers are": _ALIKE, "What shows a mark without its key": _DRIFTS}
    shown = [quantity_table(title, run.cells, quantities, columns, digits=_DIGITS) for title, columns in tables.items()]
    return Section(quantities, shown)


def _by_prompt(cell: CellRows) -> list[list[Row]]:
    """The rows of each prompt; without prompts that have fewer than the first one, or one answer only."""
    groups = [list(group) for _, group in groupby(cell.rows, key=lambda row: row["prompt"])]
    return [group for group in groups if len(group) == len(groups[0]) > 1]


def _ids(rows: list[list[Row]]) -> Answers:
    return [[row["token_ids"] for row in group] for group in rows]


def _reference(run: StoredRun, cell: CellRows) -> CellRows | None:
    """The unmarked cell that is decoded in the same way from other seeds; such a cell has none itself."""
    same = (one for one in run.present if one.cell.key is None and one.cell.decoding == cell.cell.decoding)
    return next((one for one in same if one.cell.prompts not in (None, cell.cell.prompts)), None)


def _drifts(run: StoredRun, cell: CellRows, service: list[list[Row]], model: list[list[Row]]) -> dict[str, Estimate]:
    """The drifts and their p-values; that of the perplexity only where all texts were judged."""
    if [len(group) for group in service] != [len(group) for group in model]:
        return {}
    both = [[*ours, *theirs] for ours, theirs in zip(service, model, strict=True)]
    splits = halves(len(both), len(service[0]))
    found: dict[str, Estimate] = {}
    nats, tokens = run.nats_and_tokens(cell.over([*chain(*both)]))
    if len(nats) == sum(map(len, both)):
        each = (nats / np.maximum(tokens, 1)).reshape(len(both), -1)
        found |= _with_p("drift", "p of the drift", drift_of_means(each, splits))
    pairs = np.array([overlaps(group) for group in _ids(both)])
    return found | _with_p("drift of pairs", "p of the pairs", drift_of_pairs(pairs, splits))


def _with_p(name: str, name_of_p: str, drifts: Float[np.ndarray, "splits prompts"]) -> dict[str, Estimate]:
    """The mean drift of the true split, which is the first, and the share of splits that drift as much."""
    total = drifts.mean(1)
    return {name: mean(drifts[0]), name_of_p: Estimate(float(np.mean(total >= total[0] - 1e-12)), count=len(drifts[0]))}


# --- the figures ---


def likeness(texts: Answers) -> dict[str, Estimate]:
    """The distinct-2 of each answer and of all answers to a prompt together, overlap, and repeated 4-grams."""
    together = [list(chain(*map(pairwise, group))) for group in texts]
    count = len(texts[0])
    shared = [overlaps(group).sum() / (count * (count - 1)) for group in texts]
    figures = (
        [np.mean([distinct_ngrams(ids, 2) for ids in group]) for group in texts],
        [len(set(pairs)) / max(len(pairs), 1) for pairs in together],
        shared,
        [np.mean([repeated_ngrams(ids) for ids in group]) for group in texts],
    )
    return {name: mean(np.array(values)) for name, values in zip(_ALIKE, figures, strict=True)}


def overlaps(texts: Sequence[Sequence[int]]) -> Float[np.ndarray, "answers answers"]:
    """The share of their pairs that two answers have in common, of the one with fewer; 0 of an answer with itself."""
    pairs = [set(pairwise(ids)) for ids in texts]
    shares = np.array([[len(one & other) / max(min(len(one), len(other)), 1) for one in pairs] for other in pairs])
    return shares * (1 - np.eye(len(pairs)))


def halves(prompts: int, count: int) -> Float[np.ndarray, "splits prompts answers"]:
    """Splits of the answers to each prompt: 1 for the service, -1 for the model. The first is the true one."""
    splits = np.tile(np.repeat([1.0, -1.0], count), (PERMUTATIONS + 1, prompts, 1))
    splits[1:] = np.random.default_rng(0).permuted(splits[1:], axis=2)
    return splits


def drift_of_means(
    values: Float[np.ndarray, "prompts answers"], splits: Float[np.ndarray, "splits prompts answers"]
) -> Float[np.ndarray, "splits prompts"]:
    """The absolute difference between the means of the two halves."""
    drifts: Float[np.ndarray, "splits prompts"] = np.abs((splits * values).sum(2)) / (values.shape[1] / 2)
    return drifts


def drift_of_pairs(
    shared: Float[np.ndarray, "prompts answers answers"], splits: Float[np.ndarray, "splits prompts answers"]
) -> Float[np.ndarray, "splits prompts"]:
    """The mean overlap of two answers of one half, less that of two answers of different halves."""
    count = shared.shape[1] // 2
    # the sum over both halves, less that over pairs of different halves
    signed = np.einsum("spi,pij,spj->sp", splits, shared, splits, optimize=True)
    total = shared.sum((1, 2))
    within, across = (total + signed) / 2, (total - signed) / 2
    drifts: Float[np.ndarray, "splits prompts"] = within / (2 * count * (count - 1)) - across / (2 * count * count)
    return drifts
