"""Diversity of texts against counts made by hand and by a slow loop."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmark.errors import InputError
from dgmark_lab.evaluate.intervals import Bootstrap
from dgmark_lab.evaluate.variety import diversity


def slow_distinct(texts: list[list[str]], n: int) -> float:
    grams = [tuple(text[i : i + n]) for text in texts for i in range(len(text) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


@settings(max_examples=40)
@given(st.lists(st.text(alphabet="ab ", max_size=20), min_size=1, max_size=4))
def test_figures_are_the_counts(texts: list[str]) -> None:
    found = diversity(texts, Bootstrap(resamples=100))
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
    assert (found.lengths.min, found.lengths.median, found.lengths.max, found.lengths.mean) == (0, 2.5, 9, 3.5)
    assert diversity(["a b"]).unit == "word"
    assert [one.length for one in found.texts] == [3, 9, 0, 2]
    assert json.loads(json.dumps(found.to_dict()))["num_texts"] == 4


def test_mixtures_and_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="are mixed: give all texts in one form"):
        diversity(["a", [1]])
    with pytest.raises(InputError, match="no text"):
        diversity([])
