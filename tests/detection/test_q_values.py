"""False discovery rates of many texts: the procedure, and its rate for texts that share a key."""

import os

import numpy as np
import pytest
from scipy.stats import false_discovery_control

from dgmark.detection.detector import Detector
from dgmark.detection.statistics.p_values import MIN_P, q_values
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import marked_ids
from support.unchecked import unchecked

RUNS, TEXTS, MARKED, LENGTH = 100, 12, 3, 90


@pytest.mark.parametrize("p_values", [[], [1.0], [0.02, 0.02, 1.0], [MIN_P, 0.5, 1e-9, 0.03, 1.0]])
def test_q_values_are_those_of_benjamini_and_yekutieli(p_values: list[float]) -> None:
    wanted = false_discovery_control(p_values, method="by") if p_values else []
    assert q_values(p_values) == pytest.approx(list(wanted), rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("one_key", [True, False], ids=["one key", "a key for each text"])
@pytest.mark.parametrize("marked", [0, MARKED] if os.environ.get("DGMARK_ALL_CASES") else [0])
def test_the_rate_holds_for_texts_that_are_alike(one_key: bool, marked: int) -> None:
    """Over random keys, the mean share of unmarked texts among those found is at most Q.

    The unmarked texts are one text in which a fifth of the tokens is replaced, so that their p-values go together.
    The share of a run lies in [0, 1], so by Hoeffding's inequality the mean of 100 runs exceeds Q by .27 with a
    probability of at most 5e-7.
    """
    rate, shares, found = 0.2, list[float](), 0
    for run in range(RUNS):
        dice = np.random.default_rng(run)
        shared, own = dice.integers(300, 1800, LENGTH), dice.integers(300, 1800, (TEXTS, LENGTH))
        texts, p_values = np.where(dice.random((TEXTS, LENGTH)) < 0.8, shared, own), []
        with unchecked():
            for number, ids in enumerate(texts):
                key = known_key(f"q {run} {0 if one_key else number}", rule="bigram")
                written = marked_ids(key, LENGTH, rate=0.7, seed=number) if number < marked else ids
                p_values.append(Detector(key, tokenizer=builtin_tokenizer()).detect(written).p_value)
        called = np.array(q_values(p_values)) <= rate
        shares.append(float(called[marked:].sum() / max(1, called.sum())))
        found += int(called[:marked].sum())
    assert np.mean(shares) <= rate + 0.27
    assert found >= 0.5 * RUNS * marked
