"""p-values by re-drawn keys: uniform under the null, early stopping included."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dgmark.detection.importance_sampling import DeterministicDraws
from dgmark_lab.baselines.pattern_mark import ENOUGH, redrawn_p
from support.unchecked import unchecked

IDS = np.arange(50, dtype=np.int64)


def draws_for(name: str) -> DeterministicDraws:
    return DeterministicDraws(name, IDS, IDS)


def matches(groups: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(groups.sum(axis=0, dtype=np.int64))


@pytest.mark.parametrize("alpha", [0.5, 0.1, 0.02])
def test_the_p_value_by_rank_holds_its_level_with_early_stopping(alpha: float) -> None:
    """2,000 null keys; the share may exceed alpha by 4 standard errors (false alarm about 1e-4)."""
    rng = np.random.default_rng(0)
    with unchecked():
        p = [
            redrawn_p(matches, rng.integers(0, 2, 50, dtype=np.uint8), draws_for(f"level {k}"), most=400)[0]
            for k in range(2000)
        ]
    share = np.mean(np.array(p) <= alpha)
    assert share <= alpha + 4 * np.sqrt(alpha * (1 - alpha) / 2000)
    assert share > 0.4 * alpha  # and is not far too small: match counts take few values, so ties cost some


def test_a_hopeless_key_stops_after_a_few_draws() -> None:
    found = redrawn_p(matches, np.zeros(50, dtype=np.uint8), draws_for("zero"), most=10**9)
    assert found == (1.0, ENOUGH)


def test_the_best_key_gets_the_smallest_p_value_that_so_many_draws_give() -> None:
    found = redrawn_p(matches, np.ones(50, dtype=np.uint8), draws_for("ones"), most=999)
    assert found == (1 / 1000, 999)
