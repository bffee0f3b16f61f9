"""The paper's window statistic against its definition, and its mean over fair coins by enumeration."""

import itertools
from typing import Any

import numpy as np
import pytest

from dgmark.detection.detector import Detector
from dgmark.detection.edit_test import window_statistic, window_z_scores
from dgmark.errors import SettingsError
from support.known_keys import builtin_tokenizer, known_key
from support.marked_texts import cut, marked_ids
from support.unchecked import unchecked


@pytest.mark.parametrize(("length", "window"), [(20, 8), (8, 8), (9, 1), (30, 7)])
@pytest.mark.parametrize("modulus", [2, 5])
def test_the_scores_are_the_definitions(length: int, window: int, modulus: int) -> None:
    matched = np.random.default_rng(length).random(length) < 0.6
    chance = 1 / modulus
    scores = [
        (matched[s : s + window].sum() - window * chance) / np.sqrt(window * chance * (1 - chance))
        for s in range(length - window + 1)
    ]
    assert window_z_scores(matched, modulus, window) == pytest.approx(scores)
    assert float(window_statistic(matched, modulus, window)) == pytest.approx(np.mean(np.square(scores)))


def test_many_keys_at_once_are_one_by_one() -> None:
    matched = np.random.default_rng(0).random((40, 5)) < 0.5
    together = window_statistic(matched, 2, 8)
    assert together == pytest.approx([float(window_statistic(matched[:, k], 2, 8)) for k in range(5)])


@pytest.mark.parametrize(("length", "window"), [(12, 4), (12, 8), (10, 10), (12, 1), (11, 7)])
def test_the_mean_over_all_sequences_of_coins_is_1(length: int, window: int) -> None:
    coins = np.array(list(itertools.product((False, True), repeat=length))).T
    assert window_statistic(coins, 2, window).mean() == pytest.approx(1)


def test_a_text_shorter_than_a_window_scores_its_mean() -> None:
    assert float(window_statistic(np.ones(5, dtype=bool), 2, 8)) == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("spec", [{}, {"modulus": 3}, {"rotation": 16}])
def test_the_p_value_is_the_share_of_random_keys_that_score_as_high(spec: dict[str, Any]) -> None:
    ids = np.random.default_rng(0).integers(300, 340, 60)
    detector = Detector(known_key("windows", **spec), tokenizer=builtin_tokenizer())
    found = detector.windows(ids)
    matched = detector.key.tables.matching(ids, np.arange(60))
    assert found.statistic == pytest.approx(float(window_statistic(matched, detector.key.spec.modulus)))
    assert found.z_scores == pytest.approx(window_z_scores(matched, detector.key.spec.modulus))
    others = []
    with unchecked():
        for number in range(600):
            tables = known_key(f"windows {number}", **spec).tables
            others.append(float(window_statistic(tables.matching(ids, np.arange(60)), tables.spec.modulus)))
    share = np.mean(np.array(others) >= found.statistic)
    error = np.sqrt(share * (1 - share) / 600) + found.p_value / np.sqrt(10)
    assert abs(found.p_value - share) < 4 * error


def test_a_marked_text_has_a_small_p_value_whatever_was_cut_from_it() -> None:
    key = known_key("edited")
    ids = cut(marked_ids(key, 250), 0.05)
    found = Detector(key, tokenizer=builtin_tokenizer()).windows(ids)
    assert found.p_value < 1e-10
    assert found.statistic > 1.5
    assert Detector(known_key("another"), tokenizer=builtin_tokenizer()).windows(ids).p_value > 0.01


@pytest.mark.parametrize("length", [0, 3])
def test_a_short_text_has_a_p_value_of_one(length: int) -> None:
    found = Detector(known_key("edited"), tokenizer=builtin_tokenizer()).windows(list(range(300, 300 + length)))
    assert (found.z_scores, found.p_value) == ((), 1.0)


def test_an_empty_window_is_refused() -> None:
    with pytest.raises(SettingsError, match="at least 1 token"):
        Detector(known_key("edited"), tokenizer=builtin_tokenizer()).windows([5, 6], window=0)
