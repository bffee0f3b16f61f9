"""Figures of sets of texts: diversity, bootstrap intervals and paired comparisons, a key's test on many texts."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgmark.errors import InputError, SettingsError
from dgmark.watermark.bigram import matching_pairs, pair_key
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.evaluate.diversity import distinct_ngrams, diversity, repeated_ngrams
from dgmark_lab.evaluate.estimates import Estimate, auc, compare_paired, mean, ratio
from dgmark_lab.evaluate.pooled import pairs_in, pooled_p
from support.known_keys import known_key
from support.unchecked import unchecked

# ---- diversity, against counts made by hand and by slow loops ----


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
    assert found.distinct[4].value == pytest.approx(1 - np.mean(repeated))
    products = [math.prod(slow_distinct(text, n) for n in (2, 3, 4)) for text in words]
    logs = [-math.log(max(1 - product, math.exp(-20))) for product in products]
    assert found.log_diversity.value == pytest.approx(np.mean(logs))


def test_lengths_and_units() -> None:
    found = diversity([[1, 2, 3], [4] * 9, [], [5, 6]])
    assert (found.unit, found.median_length) == ("token", 2.5)
    assert [one.length for one in found.texts] == [3, 9, 0, 2]
    with pytest.raises(InputError, match="are mixed: give all texts in one form"):
        diversity(["a", [1]])
    with pytest.raises(InputError, match="no text"):
        diversity([])


# ---- intervals: coverage by simulation, known values, paired against unpaired, the sign test ----


def test_intervals_cover_as_often_as_they_say() -> None:
    """1,000 normal samples of 60: a bootstrap mean covers at .94 (small-sample undercoverage included).

    The count of a true .94 lies within 5 standard deviations (.0376) but for 6e-7.
    """
    rng = np.random.default_rng(5)
    found = [mean(rng.normal(1.0, 2.0, 60)) for _ in range(1000)]
    assert abs(np.mean([one.low <= 1.0 <= one.high for one in found]) - 0.94) < 0.0376


def test_a_ratio_weighs_texts_by_their_tokens_and_a_constant_has_a_point_for_an_interval() -> None:
    nats, tokens = np.array([10.0, 300.0]), np.array([10.0, 100.0])
    assert ratio(nats, tokens).value == pytest.approx(310 / 110)
    assert mean(np.full(7, 2.5)) == Estimate(2.5, 2.5, 2.5, 7)


def test_few_texts_have_no_interval() -> None:
    values = np.arange(5.0)
    assert math.isnan(mean(values[:4]).low)
    found = mean(values)
    assert 0 < found.low < 2 < found.high < 4
    assert math.isnan(auc(values, values[:4]).low)
    assert not math.isnan(auc(values, values).low)


def test_pairing_takes_out_what_the_prompts_share() -> None:
    rng = np.random.default_rng(7)
    prompt = rng.normal(0, 10, 100)
    first, second = prompt + rng.normal(0, 1, 100), prompt + 1 + rng.normal(0, 1, 100)
    found = compare_paired(first.tolist(), second.tolist())
    assert found.difference.value == pytest.approx(float((second - first).mean()))
    assert 0 < found.difference.low < 1 < found.difference.high < 2
    alone = mean(first)
    assert alone.high - alone.low > 3
    assert (found.larger, found.smaller) == (int((second > first).sum()), int((second < first).sum()))


def test_no_pairs_are_refused() -> None:
    with pytest.raises(InputError, match="no pair"):
        compare_paired([], [])


@pytest.mark.parametrize(("larger", "smaller", "p_value"), [(0, 0, 1), (5, 5, 1), (0, 8, 2 / 256), (1, 3, 10 / 16)])
def test_the_sign_test_is_the_exact_binomial(larger: int, smaller: int, p_value: float) -> None:
    second = [1.0] * larger + [-1.0] * smaller + [0.0]
    assert compare_paired([0.0] * len(second), second).sign_p_value == pytest.approx(p_value)


# ---- a key and many texts, against all outcomes of the coins ----

TEXTS = [[5, 6, 5, 7], [6, 5, 7], [5, 7, 8], [5, 6]]


def test_a_pair_counts_once_in_each_text_that_holds_it() -> None:
    _, counts = pairs_in(WatermarkKey.generate(subkeys=1), [[5, 6, 5, 6], [5, 6]])
    assert sorted(counts.tolist()) == [1, 1, 1, 2]  # 5 5, 6 5, 6 6 stand in the first text only


@pytest.mark.parametrize("number", range(4))
def test_the_p_value_is_the_share_of_outcomes_with_as_many_matches(number: int) -> None:
    drawn = WatermarkKey.generate(subkeys=1)
    key = WatermarkKey(drawn.spec, "fixed", bytes([number] * 32))
    pairs, counts = pairs_in(key, TEXTS)
    matched = counts[matching_pairs(pairs, pair_key(key))].sum()
    outcomes = np.array(list(product((0, 1), repeat=len(pairs)))) @ counts
    assert pooled_p(key, TEXTS) == pytest.approx(np.mean(outcomes >= matched))


def test_bytes_are_no_texts_and_no_ids() -> None:
    key = known_key("figures", rule="bigram")
    kinds: list[Any] = [b"a text", memoryview(b"a text"), np.frombuffer(b"a text", np.uint8)]
    with unchecked():
        for wrong in kinds:
            with pytest.raises(SettingsError, match="bytes"):
                distinct_ngrams(wrong)
            with pytest.raises(SettingsError, match="bytes"):
                diversity([wrong])
            with pytest.raises(SettingsError, match="bytes"):
                pooled_p(key, [wrong])
        assert distinct_ngrams(np.array([5, 6, 5, 6], np.uint16), 1) == 0.5
