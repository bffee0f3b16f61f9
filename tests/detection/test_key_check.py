"""Shares of p-values under a deployed key, and templates that stand out."""

import random

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from dgmark import Detector
from dgmark.detection.key_check import LEVELS, check_on_texts
from dgmark.detection.key_check import _share as share
from dgmark.detection.statistics.match_null import MatchNull
from support.known_keys import known_key
from support.marked_texts import marked_ids

KEY = known_key("checked", rule="bigram")


def unmarked(seed: int, length: int = 80) -> np.ndarray:
    return np.random.default_rng(seed).integers(300, 8000, length)


def of_one_template(ids: np.ndarray, number: int) -> list[tuple[str, np.ndarray]]:
    """Texts that differ in every eighth token."""
    found = []
    for text in range(number):
        changed = ids.copy()
        changed[::8] = unmarked(1000 + text, len(ids))[::8]
        found.append((f"template-{text}", changed))
    return found


def test_shares_are_those_of_the_detector() -> None:
    texts = [(str(seed), unmarked(seed)) for seed in range(60)]
    found = check_on_texts(Detector(KEY), texts)
    p = np.array([Detector(KEY).detect(ids).p_value for _, ids in texts])
    assert [one.level for one in found.shares] == list(LEVELS)
    assert [one.texts for one in found.shares] == [int((p <= level).sum()) for level in LEVELS]
    assert (found.texts, found.templates, found.above) == (60, (), ())
    assert "the key can stay. 60 texts say little of levels below 0.06" in found.advice


def test_texts_of_a_template_that_fits_the_key_stand_out_together() -> None:
    lucky, other = marked_ids(KEY, 80, rate=0.8, seed=1), unmarked(7)
    texts = [*of_one_template(lucky, 8), *[(f"o-{name}", ids) for name, ids in of_one_template(other, 8)]]
    texts += [(str(seed), unmarked(seed)) for seed in range(20)]
    random.Random(3).shuffle(texts)
    found = check_on_texts(Detector(KEY), texts)
    (template,) = found.templates
    assert sorted(template.ids) == [f"template-{text}" for text in range(8)]
    assert template.found == 8
    assert {one.level for one in found.above} >= {0.1, 0.01}
    assert "draw another key" in found.advice
    assert check_on_texts(Detector(known_key("another", rule="bigram")), texts).templates == ()


def test_it_says_that_a_key_of_distance_0_without_sub_keys_marks_a_word_alike_in_all_texts() -> None:
    texts = [(str(seed), unmarked(seed)) for seed in range(5)]
    alike, apart = (Detector(known_key("words", nearest=0, subkeys=subkeys)) for subkeys in (1, 4))
    assert "a word has the same bit in all texts" in check_on_texts(alike, texts).advice
    assert "same bit" not in check_on_texts(apart, texts).advice


def test_any_rule_and_texts_without_tokens_can_be_checked() -> None:
    found = check_on_texts(Detector(known_key("groups")), [("a", ""), ("b", "one"), ("c", "some words of a text")])
    assert found.texts == 3
    assert check_on_texts(Detector(KEY), []).advice == "No text was tested, so nothing is known of this key."


@pytest.mark.parametrize(("found", "of"), [(0, 10), (3, 40), (17, 17), (5, 100_000)])
def test_the_interval_is_wilsons(found: int, of: int) -> None:
    expected = binomtest(found, of).proportion_ci(method="wilson")
    assert share(0.1, found, of)[3:] == pytest.approx((expected.low, expected.high), abs=1e-6)
    tail = MatchNull.of_distinct(min(of, 5000), 10).tail(found)
    assert tail == pytest.approx(binom.sf(found - 1, min(of, 5000), 0.1), rel=1e-6)
