"""The match count's null is exact: against enumeration of all keys, closed forms and whole-number arithmetic.

And that a p-value is corrected for all that is tried, and for the balance of the group tables.
"""

import itertools
import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dgmark.detection.detector import Detector
from dgmark.detection.results.figures import Phase
from dgmark.detection.statistics.match_null import MatchNull, residue_counts
from dgmark.detection.statistics.p_values import MIN_P
from dgmark.detection.statistics.position import balance_of, window_statistic
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import PositionSpec, tables_of
from support.known_keys import builtin_tokenizer, known_key

Ints = NDArray[np.int64]
Item = tuple[int, int]  # (segment, token), to which a random key gives one group

KEYS = 10
RANDOM_TEXTS = 80
FIRST = 4  # the built-in tokenizer's special ids lie below


# --- oracles -------------------------------------------------------------------------------------


def items_of(ids: list[int], rotation: int) -> list[Item]:
    return [(position // rotation if rotation else 0, token) for position, token in enumerate(ids)]


def all_keys_matches(items: list[Item], modulus: int, code: Sequence[int] = ()) -> Ints:
    """Matches of a text at each phase of a code, under each of the m^U group assignments: array (m^U, phases).

    Each distinct item takes each group in turn; nothing is convolved or counted together. By default position i wants
    residue i mod m.
    """
    code = code or range(modulus)
    phases = range(len(code))
    matches = np.zeros((1, len(code)), dtype=np.int64)
    for item in sorted(set(items)):
        standing = [position for position, other in enumerate(items) if other == item]
        gained = np.array(
            [
                [sum(group == code[(position + phase) % len(code)] for position in standing) for phase in phases]
                for group in range(modulus)
            ]
        )
        matches = (matches[:, None, :] + gained[None, :, :]).reshape(-1, len(code))
    return matches


def observed(key: WatermarkKey, ids: list[int], phase: int = 0) -> int:
    """Matches under `key`, straight from the definition."""
    spec, code = tables_of(key).spec, tables_of(key).code.tolist()
    return sum(
        int(tables_of(key).table(segment)[token]) == code[(position + phase) % len(code)]
        for position, (segment, token) in enumerate(items_of(ids, spec.rotation))
    )


def binomial_log_tail(n: int, k: int, modulus: int) -> float:
    """ln P(Binomial(n, 1/m) >= k) in whole numbers."""
    return math.log(sum(math.comb(n, j) * (modulus - 1) ** (n - j) for j in range(max(k, 0), n + 1))) - n * math.log(
        modulus
    )


@cache
def numbered_key(number: int, modulus: int, rotation: int = 0, code_length: int = 0) -> WatermarkKey:
    return known_key(f"statistics {number}", modulus=modulus, rotation=rotation, code_length=code_length)


def p_value(key: WatermarkKey, ids: list[int], phase: Phase) -> float:
    """The exact p-value, less its correction for the balance of the group tables."""
    detector = Detector(key, tokenizer=builtin_tokenizer(), phase=phase)
    with patch("dgmark.detection.statistics.position.balance_of", return_value=1.0):
        return detector.detect(ids).p_value


def null_of(ids: list[int], modulus: int) -> MatchNull:
    array = np.array(ids, dtype=np.int64)
    return MatchNull.of(residue_counts(array, np.arange(len(array)) % modulus, modulus))


few_tokens = st.lists(st.integers(FIRST, FIRST + 7), max_size=14)
moduli = st.sampled_from([2, 3, 4])
key_numbers = st.integers(0, KEYS - 1)
periods = st.sampled_from([0, 2])  # in moduli; 0: no position code


# --- the p-value against all keys ----------------------------------------------------------------


@settings(max_examples=250)
@given(ids=few_tokens, modulus=moduli, rotation=st.sampled_from([0, 0, 1, 3, 8]), periods=periods, number=key_numbers)
def test_the_p_value_is_the_share_of_all_keys_that_match_as_well(
    ids: list[int], modulus: int, rotation: int, periods: int, number: int
) -> None:
    key = numbered_key(number, modulus, rotation, periods * modulus)
    ids = ids[:8] if rotation else ids  # each token of each segment has a group of its own
    matches = all_keys_matches(items_of(ids, rotation), modulus, tables_of(key).code.tolist())[:, 0]
    assert p_value(key, ids, "start") == pytest.approx(np.mean(matches >= observed(key, ids)), rel=1e-12, abs=0)


@settings(max_examples=250)
@given(ids=few_tokens, modulus=moduli, periods=periods, number=key_numbers)
def test_the_p_value_at_any_phase_pays_for_every_phase_and_no_more(
    ids: list[int], modulus: int, periods: int, number: int
) -> None:
    key = numbered_key(number, modulus, code_length=periods * modulus)
    period = tables_of(key).spec.period
    counts = [observed(key, ids, phase) for phase in range(period)]
    best = max(counts)
    matches = all_keys_matches(items_of(ids, 0), modulus, tables_of(key).code.tolist())
    p = p_value(key, ids, "any")
    one_phase = float(np.mean(matches[:, counts.index(best)] >= best))
    assert p <= min(1.0, period * one_phase) * (1 + 1e-12)
    # of all keys, each at the phase where it matches most, a share of at most p has so small a p-value
    tails = np.array([[np.mean(column >= count) for count in range(len(ids) + 1)] for column in matches.T])
    p_of_keys = np.minimum(1.0, period * tails[matches.argmax(axis=1), matches.max(axis=1)])
    truth = float(np.mean(p_of_keys <= p * (1 + 1e-12)))
    assert truth * (1 - 1e-12) <= p
    if period == 2:  # the counts of both phases add up to the length
        assert p == pytest.approx(truth, rel=1e-12, abs=0)


@settings(max_examples=100)
@given(ids=few_tokens, modulus=moduli)
def test_the_tail_is_the_share_of_all_keys_at_every_count(ids: list[int], modulus: int) -> None:
    matches = all_keys_matches(items_of(ids, 0), modulus)[:, 0]
    null = null_of(ids, modulus)
    shares = [np.mean(matches >= count) for count in range(-1, len(ids) + 2)]
    assert [null.tail(count) for count in range(-1, len(ids) + 2)] == pytest.approx(shares, rel=1e-12, abs=0)
    assert null.largest == matches.max()  # the count of the luckiest key


# --- the p-value against closed forms ------------------------------------------------------------


@pytest.mark.parametrize("modulus", [2, 3, 16])
@pytest.mark.parametrize("length", [100, 900, 2500])
def test_the_tail_equals_the_binomials_to_its_farthest_end(length: int, modulus: int) -> None:
    null = null_of(list(range(length)), modulus)
    counts = sorted({length // modulus, length // 2, length * 3 // 4, length * 9 // 10, length - 1, length})
    expected = [binomial_log_tail(length, count, modulus) for count in counts]
    assert [null.log_tail(count) for count in counts] == pytest.approx(expected, rel=1e-10, abs=1e-9)
    if length == 100:  # convolved
        assert [null.tail(count) for count in counts] == pytest.approx(np.exp(expected), rel=1e-9, abs=0)


@pytest.mark.parametrize("modulus", [2, 3])
def test_a_few_frequent_tokens_among_many_leave_the_tail_exact(modulus: int) -> None:
    heavy, distinct = [5000, 2400, 700], 300
    counts = [[weight] + [0] * (modulus - 1) for weight in heavy] + [[1] + [0] * (modulus - 1)] * distinct
    null = MatchNull.of(np.array(counts))
    values = [1, 140, 250, 300, 301, 690, 800, 950, 2400, 2700, 3300, 3400, 4000, 5200, 5600, 7000, 8100, 8300, 8400]
    expected = []
    for value in values:
        total = Fraction(0)
        for chosen in range(2 ** len(heavy)):
            lucky = [bool(chosen >> bit & 1) for bit in range(len(heavy))]
            weight = Fraction(math.prod(1 if luck else modulus - 1 for luck in lucky), modulus ** len(heavy))
            need = value - sum(w for w, luck in zip(heavy, lucky, strict=True) if luck)
            ways = sum(
                math.comb(distinct, j) * (modulus - 1) ** (distinct - j) for j in range(max(need, 0), distinct + 1)
            )
            total += weight * Fraction(ways, modulus**distinct)
        expected.append(math.log(total.numerator) - math.log(total.denominator))
    assert [null.log_tail(value) for value in values] == pytest.approx(expected, rel=1e-10, abs=1e-9)


# --- the two paths -------------------------------------------------------------------------------


def random_counts(generator: np.random.Generator) -> Ints:
    """How often the tokens of some text are at each residue: short or long, even or repetitive."""
    modulus = int(generator.integers(2, 6))
    most = int(1000 / math.log2(modulus))  # the package does not convolve more items
    distinct = int(generator.integers(9 * most // 10, most) if generator.random() < 0.2 else generator.integers(1, 120))
    means = generator.pareto(1.2, size=(distinct, 1)) * generator.choice([0.3, 1.0, 4.0])
    counts = generator.poisson(np.minimum(means, 60.0), size=(distinct, modulus))
    while (np.sort(counts, axis=1)[:, -1] - counts.min(axis=1)).sum() > 4000:
        counts = counts // 2
    return np.asarray(counts, dtype=np.int64)


def log_tail_unused(_null: MatchNull, _matched: int) -> float:
    raise AssertionError("this text is short enough to be convolved")


@pytest.mark.parametrize("seed", range(RANDOM_TEXTS))
def test_convolution_and_fourier_transform_agree_at_every_depth(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    null = MatchNull.of(random_counts(np.random.default_rng(seed)))
    steps = np.unique(np.concatenate([np.linspace(-1, null.span, 15), [1, 2, null.span - 1, null.span]]).astype(int))
    counts = [null.offset + int(step) for step in steps]
    with monkeypatch.context() as patched:
        patched.setattr(MatchNull, "log_tail", log_tail_unused)
        convolved = [null.tail(count) for count in counts]
    assert [math.exp(null.log_tail(count)) for count in counts] == pytest.approx(convolved, rel=1e-9, abs=0)


# --- far and large -------------------------------------------------------------------------------


def test_a_tail_keeps_its_digits_within_the_range_of_a_float_and_is_the_smallest_float_below() -> None:
    null = null_of(list(range(2000)), 2)
    assert null.tail(2000) == MIN_P == sys.float_info.min
    assert null.log_tail(2000) == pytest.approx(-2000 * math.log(2), rel=1e-12, abs=0)
    null = null_of(list(range(1020)), 2)
    assert null.tail(1020) == pytest.approx(2.0**-1020, rel=1e-9, abs=0)
    assert null.tail(1019) == pytest.approx(1021 * 2.0**-1020, rel=1e-9, abs=0)


# --- the paper's windows -------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "window"), [(20, 8), (8, 8), (9, 1), (30, 7)])
@pytest.mark.parametrize("modulus", [2, 5])
def test_the_scores_are_the_definitions(length: int, window: int, modulus: int) -> None:
    matched = np.random.default_rng(length).random(length) < 0.6
    chance = 1 / modulus
    scores = [
        (matched[s : s + window].sum() - window * chance) / np.sqrt(window * chance * (1 - chance))
        for s in range(length - window + 1)
    ]
    assert window_statistic(np.stack([~matched, matched], axis=1), modulus, window)[1] == pytest.approx(
        np.mean(np.square(scores))
    )
    assert float(window_statistic(matched, modulus, window)) == pytest.approx(np.mean(np.square(scores)))


def test_a_text_shorter_than_a_window_scores_its_mean() -> None:
    assert float(window_statistic(np.ones(5, dtype=bool), 2, 8)) == 1.0


# --- what a p-value pays: its share of the rate, the number of tests, the balance of the tables ----


def balance_factor(size: int, modulus: int, distinct: list[int]) -> float:
    return balance_of(PositionSpec(modulus=modulus, table_size=size), distinct)


@pytest.mark.parametrize(("size", "modulus"), [(6, 2), (7, 2), (7, 3), (8, 4)])
def test_the_balance_factor_is_the_largest_ratio_over_all_groups(size: int, modulus: int) -> None:
    for tokens in range(size + 1):
        likeliest = 0.0
        for groups in itertools.product(range(modulus), repeat=tokens):
            left = [len(range(group, size, modulus)) for group in range(modulus)]
            chance = 1.0
            for place, group in enumerate(groups):
                chance *= left[group] / (size - place)
                left[group] -= 1
            likeliest = max(likeliest, chance * modulus**tokens)
        assert balance_factor(size, modulus, [tokens]) == pytest.approx(likeliest)


@pytest.mark.parametrize(
    ("size", "modulus", "tokens", "documented"), [(8192, 2, 200, 1.0124), (126_464, 2, 200, 1.0008)]
)
def test_the_documented_factors(size: int, modulus: int, tokens: int, documented: float) -> None:
    assert balance_factor(size, modulus, [tokens]) == pytest.approx(documented, abs=5e-5)
