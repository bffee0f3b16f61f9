"""The shares of the false-positive rate add up to it, and the smallest p-value that has paid holds its level."""

from typing import get_args

import numpy as np
import pytest

from dgmark.detection.match_null import SMALLEST_P
from dgmark.detection.result import Mode
from dgmark.detection.shares import E_VALUE, RANK, paid, paid_for_all, shares_of


@pytest.mark.parametrize("mode", get_args(Mode))
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_the_shares_of_the_tests_add_up_to_the_share_of_the_text(mode: Mode, share: float) -> None:
    assert sum(shares_of(mode, share)) == share
    assert min(shares_of(mode, share)) >= 0


def test_each_mode_has_its_tests() -> None:
    assert shares_of("intact") == (1.0, 0.0)
    assert shares_of("edited") == (0.0, 1.0)
    assert min(shares_of("auto")) > 0
    assert RANK + E_VALUE == 1


def test_a_p_value_pays_for_its_share_and_stays_one() -> None:
    assert paid(0.01, 0.1) == pytest.approx(0.1)
    assert paid(0.2, 0.1) == 1.0
    assert paid(0.01, 0.0) == 1.0
    assert paid(0.0, 1.0) == SMALLEST_P
    assert paid_for_all(0.01, 20) == 0.2
    assert paid_for_all(0.2, 20) == 1.0


@pytest.mark.parametrize("alike", [False, True])
def test_the_smallest_p_value_that_has_paid_holds_its_level(alike: bool) -> None:
    """20,000 pairs of independent, or of opposite, uniform p-values; 4 standard errors."""
    coins = np.random.default_rng(0).random((20_000, 2))
    if not alike:
        coins[:, 1] = 1 - coins[:, 0]
    first, second = shares_of("auto")
    found = [min(paid(a, first), paid(b, second)) <= 0.05 for a, b in coins.tolist()]
    assert 0.04 < np.mean(found) <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / len(found))
