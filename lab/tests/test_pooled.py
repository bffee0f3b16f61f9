"""A key's test on many texts together, against all outcomes of the coins."""

from itertools import product

import numpy as np
import pytest

from dgmark.watermark.bigrams import matching_pairs
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.evaluate.pooled import pairs_in, pooled_p

TEXTS = [[5, 6, 5, 7], [6, 5, 7], [5, 7, 8], [5, 6]]


def test_a_pair_counts_once_in_each_text_that_holds_it() -> None:
    _, counts = pairs_in(WatermarkKey.generate(subkeys=1), [[5, 6, 5, 6], [5, 6]])
    assert sorted(counts.tolist()) == [1, 1, 1, 2]  # 5 5, 6 5, 6 6 stand in the first text only


@pytest.mark.parametrize("number", range(4))
def test_the_p_value_is_the_share_of_outcomes_with_as_many_matches(number: int) -> None:
    drawn = WatermarkKey.generate(subkeys=1)
    key = WatermarkKey(drawn.spec, "fixed", bytes([number] * 32))
    pairs, counts = pairs_in(key, TEXTS)
    matched = counts[matching_pairs(pairs, key.pair_key)].sum()
    outcomes = np.array(list(product((0, 1), repeat=len(pairs)))) @ counts
    assert pooled_p(key, TEXTS) == pytest.approx(np.mean(outcomes >= matched))
