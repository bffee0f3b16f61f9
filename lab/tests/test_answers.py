"""Answers to one prompt: figures against plain loops, and permutation tests that see a repeated answer only."""

from itertools import pairwise, product

import numpy as np
import pytest

from dgmark_lab.experiments.prompt_sets import load_prompts
from dgmark_lab.experiments.spec import PromptSet
from dgmark_lab.experiments.views.answers import drift_of_means, drift_of_pairs, halves, likeness, overlaps

DICE = np.random.default_rng(4)
TEXTS = [[DICE.integers(6, size=20).tolist() for _ in range(8)] for _ in range(5)]


def test_drifts_are_differences_of_means() -> None:
    splits = halves(5, 4)[[0, 7]]
    values = DICE.normal(size=(5, 8))
    shared = np.array([overlaps(group) for group in TEXTS])
    for split, means, pairs in zip(splits, drift_of_means(values, splits), drift_of_pairs(shared, splits), strict=True):
        for prompt in range(5):
            ours, theirs = np.flatnonzero(split[prompt] > 0), np.flatnonzero(split[prompt] < 0)
            assert len(ours) == len(theirs) == 4
            assert means[prompt] == pytest.approx(abs(values[prompt, ours].mean() - values[prompt, theirs].mean()))
            within = [shared[prompt, i, j] for half in (ours, theirs) for i, j in product(half, half) if i != j]
            across = [shared[prompt, i, j] for i, j in product(ours, theirs)]
            assert pairs[prompt] == pytest.approx(np.mean(within) - np.mean(across))
    one, other = (set(pairwise(TEXTS[0][n])) for n in (2, 5))
    assert shared[0, 2, 5] == len(one & other) / min(len(one), len(other))


def test_answers_that_repeat_each_other_share_all_pairs_and_show_a_mark() -> None:
    same = [[group[0]] * 4 for group in TEXTS]
    found = likeness(same)
    assert found["overlap"].value == 1
    assert found["distinct-2 of all"].value == pytest.approx(found["distinct-2"].value / 4)
    splits = halves(5, 4)
    for service, marked in ((same, True), ([group[4:] for group in TEXTS], False)):
        both = [[*ours, *group[:4]] for ours, group in zip(service, TEXTS, strict=True)]
        drifts = drift_of_pairs(np.array([overlaps(group) for group in both]), splits).mean(1)
        assert (np.mean(drifts >= drifts[0] - 1e-12) <= 1e-3) == marked


def test_a_prompt_set_may_ask_for_several_answers() -> None:
    prompts = PromptSet(dataset="two", texts=["one", "two"], answers=3, first_seed=100)
    made = load_prompts("two", prompts, 5, {})
    assert [(one.text, one.seed) for one in made] == [
        ("one", 100), ("one", 101), ("one", 102), ("two", 103), ("two", 104),
    ]  # fmt: skip
