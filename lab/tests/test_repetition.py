"""Repetition measures against slow references that say the definition word by word."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgmark.errors import SettingsError
from dgmark_lab.evaluate.repetition import distinct_ngrams, in_runs, periodic, repeated_ngrams

# few different tokens, so that repetition is common
TEXTS = st.lists(st.integers(0, 2), max_size=40)


def slow_repeated(ids: list[int], n: int) -> float:
    seen: list[list[int]] = []
    again = 0
    for start in range(len(ids) - n + 1):
        gram = ids[start : start + n]
        again += gram in seen
        seen.append(gram)
    return again / len(seen) if seen else 0.0


def slow_in_runs(ids: list[int], period: int, times: int) -> list[bool]:
    """A token is in a run if some stretch over it is one unit, said `times` times, and nothing else."""
    span = period * times
    inside = [False] * len(ids)
    for start in range(len(ids) - span + 1):
        if ids[start : start + span] == ids[start : start + period] * times:
            inside[start : start + span] = [True] * span
    return inside


@given(TEXTS, st.integers(1, 5))
def test_repeated_ngrams_are_those_seen_before(ids: list[int], n: int) -> None:
    assert repeated_ngrams(ids, n) == pytest.approx(slow_repeated(ids, n))


@given(TEXTS, st.integers(1, 5))
def test_distinct_and_repeated_add_up_to_one(ids: list[int], n: int) -> None:
    assert distinct_ngrams(ids, n) + repeated_ngrams(ids, n) == pytest.approx(1)


@given(TEXTS, st.integers(1, 5), st.integers(2, 4))
def test_runs_are_units_said_in_a_row(ids: list[int], period: int, times: int) -> None:
    assert in_runs(ids, period, times=times).tolist() == slow_in_runs(ids, period, times)


@given(TEXTS, st.integers(1, 5), st.integers(2, 4))
def test_shares_count_echoes_and_tokens_in_runs(ids: list[int], period: int, times: int) -> None:
    found = periodic(ids, period, times=times)
    echoes = sum(ids[i] == ids[i - period] for i in range(period, len(ids)))
    assert found.echoes * len(ids) == pytest.approx(echoes)
    assert found.in_runs * len(ids) == pytest.approx(sum(slow_in_runs(ids, period, times)))


def test_a_loop_of_two_tokens_is_one_of_four_but_not_of_three() -> None:
    ids = [5, 7] * 8
    assert periodic(ids, 2).in_runs == periodic(ids, 4).in_runs == 1.0
    assert periodic(ids, 3).in_runs == periodic(ids, 3).echoes == 0.0


def test_saying_a_thing_twice_is_no_run() -> None:
    assert periodic([1, 2, 1, 2, 3], 2).in_runs == 0.0
    assert periodic([1, 2, 1, 2, 1, 2, 3], 2).in_runs == pytest.approx(6 / 7)


def test_arrays_and_lists_are_one() -> None:
    ids = [1, 1, 2, 1, 1, 2, 1, 1, 2]
    array = np.array(ids, np.uint16)
    assert repeated_ngrams(array, 2) == repeated_ngrams(ids, 2)
    assert periodic(array, 3) == periodic(ids, 3)


@pytest.mark.parametrize("ids", [[], [4]])
def test_too_short_a_text_repeats_nothing(ids: list[int]) -> None:
    assert repeated_ngrams(ids) == 0.0
    assert distinct_ngrams(ids) == 1.0
    assert periodic(ids, 2).echoes == periodic(ids, 2).in_runs == 0.0


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(SettingsError, match="n 0 is invalid: n-grams have at least 1 token"):
        repeated_ngrams([1, 2], 0)
    with pytest.raises(SettingsError, match="period 0 is invalid"):
        periodic([1, 2], 0)
    with pytest.raises(SettingsError, match="times 1 is invalid: a repetition needs at least 2"):
        periodic([1, 2], 1, times=1)
