"""The expected evidence: the law of edits against edited ids and measured texts, and the verdict that knows a key."""

import math
from dataclasses import replace

import numpy as np
import pytest

from dgmark.detection.detector import Detector
from dgmark.detection.expected import expected_p, surviving, tokens_needed
from dgmark.detection.finding import Edit
from dgmark.errors import SettingsError
from dgmark.watermark.bigrams import pair_words, pairs_of
from dgmark.watermark.spec import MEASURED_MATCH, BigramSpec, PositionSpec, WatermarkSpec
from support.known_keys import builtin_tokenizer, known_key, known_spec

PAIRS: BigramSpec = replace(known_spec(rule="bigram"), expected_match=0.72)
TOKENS: PositionSpec = replace(known_spec(code_length=16), expected_match=0.9)


def edited(edit: Edit, share: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """The ids 0, 1, ... of a text after random edits; new tokens have ids that no other has."""
    ids, chosen = np.arange(count), rng.random(count) < share
    if edit == "deletion":
        return ids[~chosen]
    if edit == "insertion":
        chosen = rng.random(count) < share / (1 + share)
        ids = np.cumsum(~chosen)
    return np.where(chosen, count + np.arange(count), ids)


def words_of(ids: np.ndarray, spec: BigramSpec) -> np.ndarray:
    left, right = pairs_of(np.arange(len(ids)), spec.nearest, spec.farthest)
    return pair_words(ids[left], ids[right])


@pytest.mark.parametrize("distances", [(1, 4), (1, 1), (2, 5), (3, 3)])
@pytest.mark.parametrize("share", [0.1, 0.4])
@pytest.mark.parametrize("edit", ["deletion", "insertion", "substitution"])
def test_as_many_pairs_survive_edits_as_the_law_says(edit: Edit, share: float, distances: tuple[int, int]) -> None:
    spec = replace(PAIRS, nearest=distances[0], farthest=distances[1])
    ids = edited(edit, share, 40_000, np.random.default_rng([7, *distances]))
    kept = np.isin(words_of(ids, spec), words_of(np.arange(40_000), spec)).mean()
    assert surviving(spec, edit, share) == pytest.approx(kept, abs=0.01)


# medians of 64 texts of 256 tokens at T = .55, by the table of lab/docs/results/decoding.md
@pytest.mark.parametrize(
    ("edit", "share", "median"),
    [
        (None, 0.0, 2e-30), ("deletion", 0.1, 2e-21), ("deletion", 0.2, 1e-15), ("insertion", 0.1, 4e-23),
        ("insertion", 0.2, 4e-18), ("substitution", 0.1, 2e-19), ("substitution", 0.2, 6e-13),
        ("substitution", 0.4, 1e-5),
    ],
)  # fmt: skip
def test_the_law_agrees_with_texts_of_the_storyteller(edit: Edit | None, share: float, median: float) -> None:
    p = expected_p(PAIRS, 256, edit, share)
    assert abs(math.log10(p / median)) < 1.3
    assert p < expected_p(PAIRS, 256, edit, share, most=True)


@pytest.mark.parametrize("spec", [PAIRS, replace(PAIRS, subkeys=4096), TOKENS, replace(TOKENS, code_length=0)])
def test_so_many_tokens_are_needed_and_no_fewer(spec: WatermarkSpec) -> None:
    for most in (False, True):
        needed = tokens_needed(spec, 1e-6, "substitution", 0.1, most=most)
        assert needed is not None
        reached = [expected_p(spec, needed + more, "substitution", 0.1, most=most) <= 1e-6 for more in (-1, 0)]
        assert reached == [False, True]


def test_what_makes_a_mark_weaker_takes_more_tokens() -> None:
    weak, many = replace(PAIRS, expected_match=0.58), replace(PAIRS, subkeys=4096)
    needed = [tokens_needed(PAIRS, 1e-4), tokens_needed(many, 1e-4), tokens_needed(weak, 1e-4)]
    needed += [tokens_needed(weak, 1e-4, most=True), tokens_needed(weak, 1e-4, "deletion", 0.3, most=True)]
    assert needed == sorted(needed, key=lambda count: count or 0)
    assert len(set(needed)) == 5
    assert tokens_needed(TOKENS, 1e-4, "deletion", 0.1) is None  # every later token is out of phase


@pytest.mark.parametrize("share", [1.0, -0.1, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(SettingsError, match=r"is not in \[0, 1\)"):
        surviving(PAIRS, "deletion", share)


def test_longer_blocks_and_fewer_distances_match_more() -> None:
    for spec in (PAIRS, TOKENS):
        shares = [spec.measured_match(block) or 0.0 for block in (*MEASURED_MATCH, 256)]
        assert shares == sorted(shares)
        assert shares[-1] == shares[-2]
        assert spec.measured_match(3) is None
    assert replace(PAIRS, farthest=1).measured_match(32) == pytest.approx(0.76, abs=0.025)  # measured
    assert replace(PAIRS, farthest=8).measured_match(32) == pytest.approx(0.7, abs=0.01)  # measured
    assert replace(TOKENS, code_length=0).measured_match(32) is None


@pytest.mark.parametrize("rule", ["bigram", "position"])
def test_a_text_is_too_short_to_tell_by_the_share_that_its_key_expects(rule: str) -> None:
    plain = known_key("expecting", rule=rule)
    ids = np.random.default_rng(3).permutation(8000)[:60]
    found = {}
    for share in (0.55, 0.95, None):
        key = replace(plain, spec=replace(plain.spec, expected_match=share))
        found[share] = Detector(key, tokenizer=builtin_tokenizer()).detect(ids)
    assert found[0.55].uncertain_because == "short"
    assert found[0.95].uncertain_because is None
    assert len({one.p_value for one in found.values()}) == 1


def test_pairs_that_are_far_apart_need_a_text_that_is_longer() -> None:
    spec = replace(known_spec(rule="bigram"), nearest=60, farthest=64, expected_match=0.99)
    assert expected_p(spec, 60) == 1.0
    needed = tokens_needed(spec, 1e-4)
    assert needed is not None
    assert needed > 63  # 15 pairs, the fewest whose p, with the share of the whole text, is below 1e-4
