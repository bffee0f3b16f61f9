"""Bootstrap intervals: coverage by simulation, known values, paired against unpaired, the sign test."""

import math
from typing import Any

import numpy as np
import pytest

from dgmark.errors import InputError, SettingsError
from dgmark_lab.evaluate.intervals import Bootstrap, Interval, compare_paired
from dgmark_lab.experiments.estimates import auc


def bounds(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low, interval.high


@pytest.mark.parametrize("method", ["BCa", "percentile"])
def test_intervals_cover_as_often_as_they_say(method: Any) -> None:
    """1,000 normal samples of 60: a bootstrap mean covers at .94 (small-sample undercoverage included).

    The count of a true .94 lies within 5 standard deviations (.0376) but for 6e-7.
    """
    rng = np.random.default_rng(5)
    made = Bootstrap(method=method, resamples=200)
    covered = 0
    for _ in range(1000):
        low, high = bounds(made.mean(rng.normal(1.0, 2.0, 60)))
        covered += low <= 1.0 <= high
    assert abs(covered / 1000 - 0.94) < 0.0376


def test_a_ratio_weighs_texts_by_their_tokens_and_a_constant_has_a_point_for_an_interval() -> None:
    nats, tokens = np.array([10.0, 300.0]), np.array([10.0, 100.0])
    assert Bootstrap().ratio(nats, tokens).value == pytest.approx(310 / 110)
    assert Bootstrap().mean(np.full(7, 2.5)) == Interval(2.5, 2.5, 2.5)
    with pytest.raises(SettingsError, match="no text"):
        Bootstrap().mean(np.array([]))


@pytest.mark.parametrize("method", ["BCa", "percentile"])
def test_few_texts_have_no_interval(method: Any) -> None:
    values, made = np.arange(5.0), Bootstrap(method=method)
    assert made.mean(values[:4]) == Interval(1.5, None, None)
    low, high = bounds(made.mean(values))
    assert 0 < low < 2 < high < 4
    assert math.isnan(auc(values, values[:4]).low)
    assert not math.isnan(auc(values, values).low)


def test_pairing_takes_out_what_the_prompts_share() -> None:
    rng = np.random.default_rng(7)
    prompt = rng.normal(0, 10, 100)
    first, second = prompt + rng.normal(0, 1, 100), prompt + 1 + rng.normal(0, 1, 100)
    found = compare_paired(first.tolist(), second.tolist())
    assert found.difference.value == pytest.approx(float((second - first).mean()))
    low, high = bounds(found.difference)
    assert 0 < low < 1 < high < 2
    low, high = bounds(found.first)
    assert high - low > 3  # of one set alone
    assert (found.larger, found.smaller) == (int((second > first).sum()), int((second < first).sum()))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ([1.0, 2.0], [1.0], "2 and 1 figures"),
        ([float("nan")], [1.0], "not finite"),
        ([], [], "0 and 0 figures"),
    ],
)
def test_sets_that_cannot_be_paired_are_refused(first: list[float], second: list[float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare_paired(first, second)


@pytest.mark.parametrize(("larger", "smaller", "p_value"), [(0, 0, 1), (5, 5, 1), (0, 8, 2 / 256), (1, 3, 10 / 16)])
def test_the_sign_test_is_the_exact_binomial(larger: int, smaller: int, p_value: float) -> None:
    second = [1.0] * larger + [-1.0] * smaller + [0.0]
    assert compare_paired([0.0] * len(second), second).sign_p_value == pytest.approx(p_value)
