"""Bootstrap intervals: coverage by simulation, known values, paired against unpaired, the sign test."""

import math

import numpy as np
import pytest

from dgmark.errors import InputError, SettingsError
from dgmark_lab.evaluate.intervals import Bootstrap, Interval, compare_paired
from dgmark_lab.experiments.estimates import auc


@pytest.mark.parametrize("method", ["BCa", "percentile"])
def test_intervals_cover_as_often_as_they_say(method: str) -> None:
    """1,000 normal samples of 60: a bootstrap mean covers at .94 (small-sample undercoverage included).

    The count of a true .94 lies within 5 standard deviations (.0376) but for 6e-7.
    """
    rng = np.random.default_rng(5)
    made = Bootstrap(method=method, resamples=200)  # type: ignore[arg-type]
    covered = 0
    for _ in range(1000):
        found = made.mean(rng.normal(1.0, 2.0, 60))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 1.0 <= found.high
    assert abs(covered / 1000 - 0.94) < 0.0376


def test_a_ratio_weighs_texts_by_their_tokens() -> None:
    nats, tokens = np.array([10.0, 300.0]), np.array([10.0, 100.0])
    assert Bootstrap().ratio(nats, tokens).value == pytest.approx(310 / 110)


def test_values_that_do_not_vary_have_a_point_for_an_interval() -> None:
    assert Bootstrap().mean(np.full(7, 2.5)) == Interval(2.5, 2.5, 2.5)
    with pytest.raises(SettingsError, match="no text"):
        Bootstrap().mean(np.array([]))


@pytest.mark.parametrize("method", ["BCa", "percentile"])
def test_few_texts_have_no_interval(method: str) -> None:
    values = np.arange(5.0)
    made = Bootstrap(method=method)  # type: ignore[arg-type]
    assert made.mean(values[:4]) == Interval(1.5, None, None)
    five = made.mean(values)
    assert five.low is not None
    assert five.high is not None
    assert 0 < five.low < 2 < five.high < 4
    assert math.isnan(auc(values, values[:4]).low)
    assert not math.isnan(auc(values, values).low)


def test_chunks_of_draws_are_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    import dgmark_lab.evaluate.intervals as module

    values = np.random.default_rng(0).normal(size=30)
    whole = Bootstrap().mean(values)
    assert Bootstrap().mean(values) == whole
    monkeypatch.setattr(module, "_CHUNK", 700)
    assert Bootstrap().mean(values) == whole


def test_pairing_takes_out_what_the_prompts_share() -> None:
    rng = np.random.default_rng(7)
    prompt = rng.normal(0, 10, 100)
    first, second = prompt + rng.normal(0, 1, 100), prompt + 1 + rng.normal(0, 1, 100)
    found = compare_paired(first.tolist(), second.tolist())
    difference = found.difference
    assert difference.value == pytest.approx(float((second - first).mean()))
    assert difference.low is not None
    assert difference.high is not None
    assert 0 < difference.low < 1 < difference.high < 2
    assert found.first.low is not None
    assert found.first.high is not None
    assert found.first.high - found.first.low > 3  # of one set alone
    assert (found.larger, found.smaller) == (int((second > first).sum()), int((second < first).sum()))


def test_paired_differences_cover_as_often_as_they_say() -> None:
    """300 samples, within 5 standard deviations (.0686) of .94, but for 6e-7."""
    rng = np.random.default_rng(11)
    made, covered = Bootstrap(resamples=200), 0
    for _ in range(300):
        first = rng.normal(0, 5, 60)
        found = compare_paired(first, first + rng.normal(0.3, 1, 60), made).difference
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 0.3 <= found.high
    assert abs(covered / 300 - 0.94) < 0.0686


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
