"""`KeyMatching` with one key or one for each row, positions shared or not, against a loop over rows and places."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dgmark.decode import KeyMatching
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_of
from support.known_keys import matches

CPU = torch.device("cpu")
SIZE, BATCH, BLOCK = 61, 6, 9


def key_of(secret: int, table_size: int = SIZE, **spec: Any) -> WatermarkKey:
    """A key that is the same in every run."""
    return WatermarkKey(spec_of({"rule": "position", "table_size": table_size, **spec}), "test", bytes([secret]) * 32)


KEYS = [
    key_of(1),
    key_of(2, modulus=3),
    key_of(3, rotation=4),
    key_of(4, modulus=3, code_length=12, rotation=5),
    key_of(5, modulus=4, code_length=8),
]


def slowly(keys: list[WatermarkKey | None], tokens: Tensor, positions: list[list[int]]) -> list[list[bool]]:
    """One token at a time, from the key's own tables."""
    return [
        [key is None or matches(key, token, position) for token, position in zip(row, places, strict=True)]
        for key, row, places in zip(keys, tokens.tolist(), positions, strict=True)
    ]


def draw(seed: int) -> tuple[Tensor, Tensor]:
    """Candidates, and positions of each row."""
    rng = np.random.default_rng(seed)
    tokens = torch.from_numpy(rng.integers(0, SIZE, (BATCH, BLOCK)))
    return tokens, torch.from_numpy(rng.integers(0, 40, (BATCH, BLOCK)))


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"m{key.spec.modulus}-r{key.spec.rotation}-c{key.spec.period}")
@pytest.mark.parametrize("per_row", [False, True], ids=["shared positions", "positions per row"])
def test_one_key_matches_as_its_tables_say(key: WatermarkKey, per_row: bool) -> None:
    matching = KeyMatching(key, CPU)
    for seed in range(5):  # one object for all, as the tables of other segments are loaded on the way
        tokens, positions = draw(seed)
        given = positions if per_row else positions[0]
        expected = slowly([key] * BATCH, tokens, given.expand(BATCH, BLOCK).tolist())
        assert matching(tokens, given).tolist() == expected
        assert {True, False} == {match for row in expected for match in row}


@pytest.mark.parametrize("per_row", [False, True], ids=["shared positions", "positions per row"])
@pytest.mark.parametrize(
    "keys",
    [
        [KEYS[0], None, KEYS[1], KEYS[0], None, KEYS[4]],
        [KEYS[2], KEYS[3], KEYS[0], None, KEYS[2], KEYS[1]],
        [KEYS[3], None, None, KEYS[3], None, KEYS[3]],
        [None] * BATCH,
    ],
    ids=["none rotates", "some rotate", "one key and none", "no key"],
)
def test_each_row_matches_under_its_own_key(keys: list[WatermarkKey | None], per_row: bool) -> None:
    matching = KeyMatching(keys, CPU)
    for seed in range(5):
        tokens, positions = draw(seed)
        given = positions if per_row else positions[0]
        expected = slowly(keys, tokens, given.expand(BATCH, BLOCK).tolist())
        assert matching(tokens, given).tolist() == expected
        some = [4, 0, 0, 3]  # the canvases of a lookahead: several of one row
        of_some = matching.of_rows(torch.tensor(some))
        assert of_some(tokens[some], given[some] if per_row else given).tolist() == [expected[row] for row in some]


def test_a_list_of_one_key_is_the_key_itself() -> None:
    tokens, positions = draw(0)
    alone = KeyMatching(KEYS[3], CPU)(tokens, positions[0])
    assert torch.equal(KeyMatching([KEYS[3]] * BATCH, CPU)(tokens, positions[0]), alone)


def test_the_period_of_a_row_is_that_of_its_key() -> None:
    assert KeyMatching([*KEYS, None], CPU).periods(6).tolist() == [2, 3, 2, 12, 8, 0]
    assert KeyMatching(KEYS[4], CPU).periods(3).tolist() == [8, 8, 8]
    assert KeyMatching([None, None], CPU).periods(2).tolist() == [0, 0]
