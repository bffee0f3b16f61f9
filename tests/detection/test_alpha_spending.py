"""What a p-value pays: its share of the rate, the number of tests, and the balance of the group tables."""

import itertools

import numpy as np
import pytest

from dgmark.detection.match_null import MatchNull
from dgmark.detection.p_values import MIN_P, adjusted_p, bonferroni_p
from dgmark.detection.position_rule import balance_of
from dgmark.watermark.groups import group_table
from dgmark.watermark.spec import PositionSpec


def test_a_p_value_pays_for_its_share_and_is_at_most_one() -> None:
    assert adjusted_p(0.01, 0.1) == pytest.approx(0.1)
    assert adjusted_p(0.2, 0.1) == 1.0
    assert adjusted_p(0.0, 1.0) == MIN_P
    assert bonferroni_p(0.01, 20) == 0.2
    assert bonferroni_p(0.2, 20) == 1.0


# --- balanced tables -----------------------------------------------------------------------------


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


def test_segments_multiply_their_factors() -> None:
    one, other = balance_factor(64, 2, [20]), balance_factor(64, 2, [30])
    assert balance_factor(64, 2, [20, 30]) == pytest.approx(one * other)


@pytest.mark.parametrize(
    ("size", "modulus", "tokens", "documented"), [(8192, 2, 200, 1.0124), (126_464, 2, 200, 1.0008)]
)
def test_the_documented_factors(size: int, modulus: int, tokens: int, documented: float) -> None:
    assert balance_factor(size, modulus, [tokens]) == pytest.approx(documented, abs=5e-5)


@pytest.mark.parametrize("table_size", [2, 4, 8])
def test_with_a_table_of_a_handful_of_ids_the_match_count_holds_its_level(table_size: int) -> None:
    """All ids of the table in use, each once: every balanced table in turn is the key's."""
    counts = np.zeros((table_size, 2), dtype=np.int64)
    counts[np.arange(table_size), np.arange(table_size) % 2] = 1
    null, factor = MatchNull.of(counts), balance_factor(table_size, 2, [table_size])
    matched = []
    for first in itertools.combinations(range(table_size), table_size // 2):
        groups = np.ones(table_size, dtype=int)
        groups[list(first)] = 0
        matched.append(int(counts[np.arange(table_size), groups].sum()))
    p = np.minimum(1, [factor * null.tail(count) for count in matched])
    for level in set(p.tolist()):
        assert np.mean(p <= level) <= level + 1e-12
    assert np.bincount(group_table(b"s" * 32, 2, table_size)).tolist() == [table_size // 2] * 2
