"""The p-values that tests give texts under many keys, kept in the runs folder."""

import math
import time
from functools import cache

import numpy as np
from jaxtyping import Float

from dgmark import Detector, LanguageModel, WatermarkKey
from dgmark.detection.bigram import BigramTest
from dgmark.detection.p_values import z_score
from dgmark.detection.parts import WHOLE_SHARE
from dgmark.detection.position import PositionTest, window_statistic
from dgmark.detection.reader import ScoredIds
from dgmark.detection.rules import TextTest
from dgmark.rows.jsonl import Row
from dgmark.watermark.position import tables_of
from dgmark.watermark.spec import WatermarkSpec
from dgmark_lab.baselines.published import PublishedFigures
from dgmark_lab.experiments.made_with import identifier
from dgmark_lab.experiments.spec import Cell
from dgmark_lab.experiments.store import Store, digest
from dgmark_lab.rule_keys import rule_key
from shared import RUNS, random_key

WINDOW, DRAWS = 8, 20_000


def key_of(cell: Cell, spec: WatermarkSpec, number: int) -> WatermarkKey:
    """Key `number` of a test."""
    return rule_key(str(cell.rule), random_key(spec, number), **cell.options)


def rounds(
    cell: Cell, spec: WatermarkSpec, texts: list[ScoredIds], reader: LanguageModel | None, keys: int, first: int | None
) -> list[Row]:
    """The p-values of texts under each of so many keys; with `first` each text has its own, from this on."""

    def make(chosen: list[int]) -> list[Row]:
        (number,), begin = chosen, time.process_time()
        own = [number] * len(texts)
        if first is not None:
            own = [first + number * len(texts) + place for place in range(len(texts))]
        detectors = {one: Detector(key_of(cell, spec, one), fpr=1e-3, surprisal_model=reader) for one in {*own}}
        p_values = [p_values_of(detectors[one], text) for one, text in zip(own, texts, strict=True)]
        p = {name: [each[name] for each in p_values] for name in p_values[0]}
        return [{"p": p, "seconds": time.process_time() - begin}]

    read = [[one.ids.tolist(), None if one.surprisal is None else one.surprisal.nats.tolist()] for one in texts]
    same = {"test": cell.name, "made_with": identifier(str(cell.rule)), "texts": digest(read), "first": first}
    store, todo = Store(RUNS), {str(number): number for number in range(keys)}
    store.complete("scores", digest(same), same, todo, make, batch=1)
    return list(store.read("scores", digest(same), todo).values())


def p_values_of(detector: Detector, text: ScoredIds) -> dict[str, float]:
    """The p-values of a text: "p" of the verdict, and others by the names of their statistics.

    "whole text" is that without its parts, "published" that of a rule's publication. "z" and "z_win 8" are the paper's,
    under fair coins.
    """
    test = detector.test(text)
    found = detector.detection(test, len(text.ids), 1.0)
    published = {"published": found.figures.p_published} if isinstance(found.figures, PublishedFigures) else {}
    return {"p": found.p_value, **published, **_of_rule(test, detector.key, text)}


def _of_rule(test: TextTest, key: WatermarkKey, text: ScoredIds) -> dict[str, float]:
    if isinstance(test, BigramTest):
        whole = next(iter(test.evidence.candidates(test.matches(test.subkey))))  # the first part
        return {"whole text": WHOLE_SHARE * math.exp(whole.log_p)}
    if not isinstance(test, PositionTest):
        return {}
    tables, fair = tables_of(key), _fair_windows(len(text.ids))
    matched, modulus = tables.matching(text.ids, text.positions), tables.spec.modulus
    z = abs(z_score(int(matched.sum()), len(matched), modulus))  # two-sided, as the phase is unknown
    above = DRAWS - np.searchsorted(fair, window_statistic(matched, modulus, WINDOW))
    return {"z": min(1.0, math.erfc(z / math.sqrt(2))), f"z_win {WINDOW}": float((1 + above) / (1 + DRAWS))}


@cache
def _fair_windows(length: int) -> Float[np.ndarray, " draws"]:
    """Values of the window statistic over fair coins, sorted."""
    coins = np.random.default_rng([length, WINDOW]).random((length, DRAWS), dtype=np.float32) < 0.5
    return np.sort(window_statistic(coins, 2, WINDOW))
