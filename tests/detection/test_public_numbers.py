"""The public random numbers: uniform, and the same for the same text for ever."""

import numpy as np
import pytest
from numpy.typing import NDArray

from dgmark.detection.importance_sampling import DeterministicDraws

IDS = np.arange(50, dtype=np.int64)


@pytest.mark.parametrize("modulus", [2, 3, 16])
def test_the_groups_drawn_are_uniform_and_independent_of_the_batch_before(modulus: int) -> None:
    draws = DeterministicDraws("uniform", IDS, IDS)
    first, second = (draws.groups(100, 400, modulus) for _ in range(2))
    for groups in (first, second):
        counts = np.bincount(groups.ravel(), minlength=modulus)
        assert abs(counts - 40_000 / modulus).max() < 5 * np.sqrt(40_000 / modulus)
    assert abs((first == second).mean() - 1 / modulus) < 5 * np.sqrt(1 / modulus / 40_000)


def test_the_same_text_and_secret_give_the_same_draws_and_others_give_others() -> None:
    def drawn(secret: bytes | None, ids: NDArray[np.int64], positions: NDArray[np.int64]) -> bytes:
        return DeterministicDraws("test", ids, positions, secret).groups(64, 4, 2).tobytes()

    assert drawn(b"a", IDS, IDS) == drawn(b"a", IDS, IDS)
    different = {drawn(b"a", IDS, IDS), drawn(b"b", IDS, IDS), drawn(b"a", IDS + 1, IDS), drawn(b"a", IDS, IDS + 1)}
    assert len(different | {drawn(None, IDS, IDS)}) == 5


def test_the_draws_are_those_of_every_version() -> None:
    """A golden vector: the same text and key give the same p-value in ten years."""
    assert DeterministicDraws("redraw/v1", IDS, IDS, b"golden").groups(16, 4, 2).ravel().tolist() == GOLDEN_TWO
    assert DeterministicDraws("redraw/v1", IDS, IDS, b"golden").groups(4, 4, 5).ravel().tolist() == GOLDEN_FIVE
    assert (DeterministicDraws("golden", IDS, IDS).uniform(5) * 2**24).astype(int).tolist() == GOLDEN_UNIFORM


def test_two_purposes_have_two_streams() -> None:
    first, second = (DeterministicDraws(purpose, IDS, IDS).uniform(1000) for purpose in ("one", "two"))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(1000)


def test_the_numbers_lie_in_the_unit_interval_uniformly() -> None:
    """100,000 numbers; the shares of ten bins are within 5 standard errors."""
    numbers = DeterministicDraws("bins", IDS, IDS).uniform(200, 500)
    assert numbers.dtype == np.float32
    assert 0 <= numbers.min() <= numbers.max() < 1
    shares = np.bincount((numbers.ravel() * 10).astype(int), minlength=10) / numbers.size
    assert abs(shares - 0.1).max() < 5 * np.sqrt(0.09 / numbers.size)


GOLDEN_TWO = [int(bit) for bit in "0100010000111100000000001110000001100110111100001110111001001100"]
GOLDEN_FIVE = [int(group) for group in "4143423442204310"]
GOLDEN_UNIFORM = [6135294, 9549882, 6523109, 11219912, 7496283]
