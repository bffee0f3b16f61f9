"""The paper's window statistic against its definition, and its fair-coin moments against enumeration."""

import itertools

import numpy as np
import pytest

from dgmark.windows import fair_coin_moments, window_statistic, window_z_scores


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
def test_the_moments_are_those_of_all_sequences_of_coins(length: int, window: int) -> None:
    coins = np.array(list(itertools.product((False, True), repeat=length))).T
    values = window_statistic(coins, 2, window)
    mean, variance = fair_coin_moments(length, window)
    assert (values.mean(), values.var()) == pytest.approx((mean, variance))


def test_a_text_shorter_than_a_window_scores_its_mean() -> None:
    assert float(window_statistic(np.ones(5, dtype=bool), 2, 8)) == 1.0
    assert fair_coin_moments(5, 8) == (1.0, 0.0)
