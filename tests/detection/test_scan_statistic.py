"""The block and scan statistics against their definitions, one block and one stretch at a time."""

import numpy as np
import pytest
from numpy.typing import NDArray

from dgmark.detection.edit_test import MIN_BLOCK, STRENGTHS, block_statistics
from dgmark.detection.hidden_markov import HiddenMarkovModel
from dgmark.detection.scan_statistic import grids_of, scan
from dgmark.watermark.groups import GroupTables, WatermarkSpec

SHAPES = [(2, 0, 0), (3, 0, 0), (2, 0, 4), (2, 20, 0)]  # modulus, rotation, code length


def model_of(length: int, shape: tuple[int, int, int]) -> HiddenMarkovModel:
    modulus, rotation, code_length = shape
    spec = WatermarkSpec(modulus, rotation, table_size=64, code_length=code_length)
    ids = np.random.default_rng(length).integers(4, 64, length)
    return HiddenMarkovModel.of(ids, np.arange(length), GroupTables(spec, b"s" * 32))


def ratio(model: HiddenMarkovModel, key: NDArray[np.uint8], tokens: range, strength: float) -> float:
    """The likelihood ratio of these tokens, if they are all in one state."""
    states = []
    for state in range(model.states):
        value = 1.0
        for i in tokens:
            match = key[model.items[i, state if model.items.shape[1] > 1 else 0]] == model.wanted[i, state]
            value *= 1 + (model.modulus - 1) * strength if match else 1 - strength
        states.append(value)
    return float(np.mean(states))


def in_blocks(model: HiddenMarkovModel, key: NDArray[np.uint8], tokens: range, size: int, strength: float) -> float:
    """The product of the ratios of blocks of this size."""
    starts = range(tokens.start, tokens.stop, size)
    return float(np.prod([ratio(model, key, range(at, min(at + size, tokens.stop)), strength) for at in starts]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("length", [1, 8, 9, 50])
def test_the_block_statistic_is_the_mean_over_sizes_and_strengths(length: int, shape: tuple[int, int, int]) -> None:
    model = model_of(length, shape)
    keys = np.random.default_rng(0).integers(0, model.modulus, (len(model.distinct), 4), dtype=np.uint8)
    sizes = [MIN_BLOCK]
    while sizes[-1] < length:
        sizes.append(2 * sizes[-1])
    expected = [
        np.log(np.mean([in_blocks(model, key, range(length), size, a) for size in sizes for a in STRENGTHS]))
        for key in keys.T
    ]
    assert block_statistics(model, keys) == pytest.approx(expected, rel=1e-9)
    each = np.repeat(model.wanted[..., None], 4, axis=2)
    assert block_statistics(model, keys, each) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_scan_is_the_definition_for_every_stretch(shape: tuple[int, int, int]) -> None:
    length = 100
    model = model_of(length, shape)
    key = np.random.default_rng(0).integers(0, model.modulus, (len(model.distinct), 1), dtype=np.uint8)
    grids = grids_of(length)
    found = scan(model, grids, key)[:, 0]
    expected = []
    for grid in grids:
        for first, last in zip(grid.first.tolist(), grid.last.tolist(), strict=True):
            tokens = range(first * grid.unit, last * grid.unit)
            sizes = [len(tokens), *(MIN_BLOCK << level for level in range(grid.level + 1))]
            values = [in_blocks(model, key[:, 0], tokens, size, a) for a in STRENGTHS for size in sizes]
            expected.append(np.log(np.mean(values)) - np.log(len(grids) * len(grid.first)))
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [0, 7, 8, 100, 1000])
def test_the_stretches_lie_within_the_text_and_grow_with_its_length_only(n: int) -> None:
    grids = grids_of(n)
    assert all((grid.last * grid.unit <= n).all() and (grid.first < grid.last).all() for grid in grids)
    assert sum(len(grid.first) for grid in grids) <= 2 * n
