"""The expected evidence: the law against measured texts, and the verdict that knows a key."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dgmark.detection.detector import Detector
from dgmark.detection.results.figures import PositionFigures
from dgmark.detection.statistics.expected import expected_p, matched_by_chance, tokens_needed
from dgmark.watermark.bigram import BigramSpec
from dgmark.watermark.measured import PAIRS as MEASURED
from dgmark.watermark.measured import match_of_pairs, match_of_tokens
from dgmark.watermark.position import PositionSpec
from dgmark.watermark.rules import find_rule
from dgmark.watermark.spec import WatermarkSpec
from support.known_keys import builtin_tokenizer, known_key, known_spec
from support.unmarked_texts import PROSE

PAIRS: BigramSpec = replace(known_spec(rule="bigram"), expected_match=0.72)
TOKENS: PositionSpec = replace(known_spec(code_length=16), expected_match=0.9)


def p_of(spec: WatermarkSpec, tokens: int, **options: Any) -> float:
    p = expected_p(spec, tokens, **options)
    assert p is not None
    return p


# medians of 64 texts at T = .55, by the table of lab/docs/results/decoding.md
@pytest.mark.parametrize(("tokens", "median"), [(256, 2e-30), (64, 6e-12)])
def test_the_law_agrees_with_texts_of_the_storyteller(tokens: int, median: float) -> None:
    p = p_of(PAIRS, tokens)
    assert abs(math.log10(p / median)) < 0.6
    assert p < p_of(PAIRS, tokens, most=True)


@pytest.mark.parametrize(("spec", "marked"), [(PAIRS, 0.75), (TOKENS, 0.5)])
def test_a_text_of_which_half_is_refilled_matches_where_a_pair_or_token_is_new(
    spec: WatermarkSpec, marked: float
) -> None:
    weaker = replace(spec, expected_match=0.5 + (spec.typical_match - 0.5) * marked)
    assert p_of(spec, 200, refilled=0.5) == pytest.approx(p_of(weaker, 200))


@pytest.mark.parametrize("spec", [PAIRS, replace(PAIRS, subkeys=4096), TOKENS, replace(TOKENS, code_length=0)])
def test_so_many_tokens_are_needed_and_no_fewer(spec: WatermarkSpec) -> None:
    for most in (False, True):
        needed = tokens_needed(spec, 1e-6, most=most)
        assert needed is not None
        reached = [p_of(spec, needed + more, most=most) <= 1e-6 for more in (-1, 0)]
        assert reached == [False, True]


def test_what_makes_a_mark_weaker_takes_more_tokens() -> None:
    weak, many = replace(PAIRS, expected_match=0.58), replace(PAIRS, subkeys=4096)
    needed = [tokens_needed(PAIRS, 1e-4), tokens_needed(many, 1e-4), tokens_needed(weak, 1e-4)]
    needed.append(tokens_needed(weak, 1e-4, most=True))
    assert needed == sorted(needed, key=lambda count: count or 0)
    assert len(set(needed)) == 4


def test_longer_blocks_and_fewer_distances_match_more() -> None:
    for spec in (PAIRS, TOKENS):
        expected = find_rule(spec.rule).expected_match
        shares = [expected(spec, block) or 0.0 for block in (*MEASURED, 256)]
        assert shares == sorted(shares)
        assert shares[-1] == shares[-2]
        assert expected(spec, 3) is None
    assert match_of_pairs(replace(PAIRS, farthest=1), 32) == pytest.approx(0.76, abs=0.025)  # measured
    assert match_of_pairs(replace(PAIRS, farthest=8), 32) == pytest.approx(0.7, abs=0.01)  # measured
    assert match_of_tokens(replace(TOKENS, code_length=0), 32) is None


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
    assert p_of(spec, 60) == 1.0
    needed = tokens_needed(spec, 1e-4)
    assert needed is not None
    assert needed > 63  # 15 pairs, the fewest whose p, with the share of the whole text, is below 1e-4


@pytest.mark.parametrize(
    "options",
    [{"rule": "bigram"}, {"subkeys": 16}, {"subkeys": 256}, {"rule": "position"}, {"rule": "position", "modulus": 4}],
)
def test_what_matches_by_chance_is_what_texts_without_the_key_show(options: dict[str, Any]) -> None:
    """The median of 40 keys lies within 5 standard errors of a median (rate of false alarms: 6e-7) of the range."""
    text = (PROSE / "willows.txt").read_text()[:1500]
    counts, told, errors = [], set(), set()
    for number in range(40):
        key = known_key(f"chance-{number}", **options)
        found = Detector(key).detect(text)
        _, matched, scored = found.counts
        counts.append(matched)
        told.add(matched_by_chance(key.spec, found))
        errors.add(1.2533 * math.sqrt(scored * key.spec.chance * (1 - key.spec.chance) / 40))
    ((low, high),), (error,) = told, errors
    assert (low == high) == (found.subkeys_tested == 1 and not isinstance(found.figures, PositionFigures))
    assert low - 5 * error - 1 < np.median(counts) < high + 5 * error + 1
    assert high - low < 0.1 * scored


def test_nothing_matches_by_chance_in_an_empty_text() -> None:
    key = known_key("chance", subkeys=256)
    assert matched_by_chance(key.spec, Detector(key).detect("")) == (0, 0)
