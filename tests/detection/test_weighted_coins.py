"""The tail of the weight of heads against exact sums of whole numbers, and against a plain convolution."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgmark.detection.statistics.evidence import close_log_tails, effective_number
from dgmark.detection.statistics.match_null import MatchNull
from dgmark.detection.statistics.p_values import log_tail


def exact_counts(weights: list[int]) -> list[int]:
    """In how many of the outcomes the heads have the weight 0, 1, 2, ..."""
    counts = [1]
    for weight in weights:
        longer = [0] * (len(counts) + weight)
        for total, number in enumerate(counts):
            longer[total] += number
            longer[total + weight] += number
        counts = longer
    return counts


def convolved(weights: NDArray[np.int64]) -> NDArray[np.float64]:
    """The chance of each weight of the heads, coin by coin."""
    chances = np.array([1.0])
    for weight in weights.tolist():
        longer = np.zeros(len(chances) + weight)
        longer[: len(chances)] += chances / 2
        longer[weight:] += chances / 2
        chances = longer
    return chances


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 20), max_size=40), st.floats(0, 1))
def test_the_tail_is_the_exact_sum(weights: list[int], share: float) -> None:
    coins, heads = MatchNull.of_weights(np.array(weights, dtype=np.int64)), round(share * sum(weights))
    exact = Fraction(sum(exact_counts(weights)[heads:]), 2 ** len(weights))
    assert coins.log_tail(heads) == pytest.approx(math.log(exact), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("kind", ["all weights", "two weights", "one heavy", "multiples"])
def test_the_tail_of_many_coins_is_that_of_a_convolution(kind: str) -> None:
    dice = np.random.default_rng(5)
    weights = {
        "all weights": dice.integers(0, 21, 900),
        "two weights": dice.choice([1, 20], 900),
        "one heavy": np.array([20] + [1] * 899),
        "multiples": dice.choice([4, 8, 16], 900),
    }[kind]
    chances, coins = convolved(weights), MatchNull.of_weights(weights)
    for share in (0.3, 0.5, 0.51, 0.6, 0.75, 0.9, 0.99):
        heads = round(share * int(weights.sum()))
        assert coins.log_tail(heads) == pytest.approx(math.log(chances[heads:].sum()), rel=1e-10, abs=1e-10)


def test_coins_of_equal_weight_have_the_binomial_tail_however_many_they_are() -> None:
    for number, matched in ((1, 1), (60, 41), (5000, 2700), (200_000, 101_500)):
        coins = MatchNull.of_weights(np.full(number, 7))
        assert coins.log_tail(7 * matched) == pytest.approx(log_tail(matched, number), rel=1e-9)


def test_the_ends_of_the_tail() -> None:
    coins = MatchNull.of_weights(np.array([3, 0, 5]))
    assert [coins.log_tail(heads) for heads in (-1, 0, 9)] == [0.0, 0.0, -math.inf]
    assert coins.log_tail(8) == pytest.approx(math.log(0.25))
    assert MatchNull.of_weights(np.zeros(4, dtype=np.int64)).log_tail(0) == 0.0
    assert MatchNull.of_weights(np.array([], dtype=np.int64)).log_tail(1) == -math.inf


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 20), min_size=20, max_size=400), st.floats(0.5, 0.85))
def test_the_estimate_is_near_enough_to_choose_by(weights: list[int], share: float) -> None:
    chosen = np.array(weights, dtype=np.float64)
    heads = math.ceil(share * float(chosen.sum()))
    sums = (np.array([int(one)]) for one in (heads, chosen.sum(), (chosen**2).sum(), (chosen**4).sum()))
    exact = MatchNull.of_weights(chosen.astype(np.int64)).log_tail(heads)
    assert abs(float(close_log_tails(*sums)[0]) - exact) <= 1 + 0.08 * abs(exact)


def test_the_effective_number_counts_coins_of_one_weight() -> None:
    assert effective_number(np.full(12, 9)) == 12
    assert effective_number(np.array([5, 5, 0, 0])) == 2
    assert effective_number(np.array([10, 1])) == pytest.approx(121 / 101)
    assert effective_number(np.zeros(3, dtype=np.int64)) == 0
