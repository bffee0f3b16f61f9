"""Diversity and repetition of texts against counts made by hand and by slow loops."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmark.errors import InputError
from dgmark_lab.evaluate.diversity import diversity, repeated_ngrams


def slow_distinct(text: list[str], n: int) -> float:
    grams = [tuple(text[i : i + n]) for i in range(len(text) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 1.0


@settings(max_examples=40)
@given(st.lists(st.text(alphabet="ab ", max_size=20), min_size=1, max_size=4))
def test_figures_are_the_counts(texts: list[str]) -> None:
    found = diversity(texts)
    words = [text.split() for text in texts]
    for n in (1, 2, 3, 4):
        assert found.distinct[n].value == pytest.approx(np.mean([slow_distinct(text, n) for text in words]))
    repeated = [repeated_ngrams([sorted({*text}).index(word) for word in text]) for text in words]
    assert found.repeated_4.value == pytest.approx(1 - found.distinct[4].value) == pytest.approx(np.mean(repeated))
    products = [math.prod(slow_distinct(text, n) for n in (2, 3, 4)) for text in words]
    logs = [-math.log(max(1 - product, math.exp(-20))) for product in products]
    assert found.log_diversity.value == pytest.approx(np.mean(logs))


def test_a_loop_is_not_varied_and_prose_is() -> None:
    loop, prose = (
        diversity([text]) for text in ("the end " * 40, "he went down to the sea and saw a great white ship")
    )
    assert loop.log_diversity.value < 0.001
    assert prose.log_diversity.value == 20.0
    assert loop.repeated_4.value > 0.9


def test_lengths_and_units() -> None:
    found = diversity([[1, 2, 3], [4] * 9, [], [5, 6]])
    assert (found.unit, found.median_length) == ("token", 2.5)
    assert [one.length for one in found.texts] == [3, 9, 0, 2]
    assert json.loads(json.dumps(found.to_dict()))["num_texts"] == 4
    with pytest.raises(InputError, match="are mixed: give all texts in one form"):
        diversity(["a", [1]])
    with pytest.raises(InputError, match="no text"):
        diversity([])
