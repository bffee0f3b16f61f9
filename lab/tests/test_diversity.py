"""Diversity and repetition of texts against counts made by hand and by slow loops."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmark.errors import InputError, SettingsError
from dgmark_lab.evaluate.diversity import distinct_ngrams, diversity, periodic, repeated_ngrams


def slow_distinct(texts: list[list[str]], n: int) -> float:
    grams = [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


@settings(max_examples=40)
@given(st.lists(st.text(alphabet="ab ", max_size=20), min_size=1, max_size=4))
def test_figures_are_the_counts(texts: list[str]) -> None:
    found = diversity(texts)
    words = [text.split() for text in texts]
    for n in (1, 2, 3, 4):
        own = [slow_distinct([text], n) for text in words]
        assert found.distinct[n].value == pytest.approx(np.mean(own))
        assert found.corpus_distinct[n] == pytest.approx(slow_distinct(words, n))
        if n > 1:
            assert found.repeated[n].value == pytest.approx(1 - np.mean(own))
    products = [math.prod(slow_distinct([text], n) for n in (2, 3, 4)) for text in words]
    assert found.diversity.value == pytest.approx(np.mean(products))
    logs = [-math.log(max(1 - product, math.exp(-20))) for product in products]
    assert found.log_diversity.value == pytest.approx(np.mean(logs))


def test_a_loop_is_not_varied_and_prose_is() -> None:
    loop, prose = (
        diversity(["the end " * 40]),
        diversity(["he went down to the sea and saw a great white ship at rest"]),
    )
    assert loop.log_diversity.value < 0.001
    assert prose.log_diversity.value == 20.0
    assert loop.repeated[4].value > 0.9


def test_lengths_and_units() -> None:
    found = diversity([[1, 2, 3], [4] * 9, [], [5, 6]])
    assert found.unit == "token"
    assert [found.lengths[name] for name in ("min", "median", "max", "mean")] == [0, 2.5, 9, 3.5]
    assert diversity(["a b"]).unit == "word"
    assert [one.length for one in found.texts] == [3, 9, 0, 2]
    assert json.loads(json.dumps(found.to_dict()))["num_texts"] == 4


def test_mixtures_and_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="are mixed: give all texts in one form"):
        diversity(["a", [1]])
    with pytest.raises(InputError, match="no text"):
        diversity([])


# --- repetition ---

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
    """A token is in a run if some span over it is one unit, said `times` times, and nothing else."""
    span = period * times
    inside = [False] * len(ids)
    for start in range(len(ids) - span + 1):
        if ids[start : start + span] == ids[start : start + period] * times:
            inside[start : start + span] = [True] * span
    return inside


@given(TEXTS, st.integers(1, 5))
def test_repeated_ngrams_are_those_seen_before(ids: list[int], n: int) -> None:
    assert repeated_ngrams(ids, n) == pytest.approx(slow_repeated(ids, n))


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
    with pytest.raises(SettingsError, match="3 units of 0 tokens"):
        periodic([1, 2], 0)
    with pytest.raises(SettingsError, match="1 units of 1 tokens"):
        periodic([1, 2], 1, times=1)
