"""The levels of candidates under the bigram rule, against a loop over places; the loop commits by them."""

from typing import Any

import numpy as np
import pytest
import torch

from dgmark import WatermarkKey
from dgmark.decode import DecodeConfig, Steering, decode, select_positions
from dgmark.decode.pair_levels import KeyPairs, PairKeys, pair_levels
from dgmark.decode.selection import renewed_levels
from dgmark.decode.steering import Window
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.bigrams import matching_pairs, pair_words
from support.known_keys import share_of_pairs

CPU, MASK = torch.device("cpu"), 999
RNG = np.random.default_rng(5)


def key_of(nearest: int = 1, farthest: int = 4, subkeys: int = 1) -> WatermarkKey:
    return WatermarkKey.generate(rule="bigram", nearest=nearest, farthest=farthest, subkeys=subkeys)


def sign(key: WatermarkKey, left: int, right: int) -> int:
    word = np.array([pair_words(left, right)])
    return 1 if matching_pairs(word, key.pair_key, key.number or 0)[0] else -1


@pytest.mark.parametrize(("nearest", "farthest"), [(1, 1), (1, 4), (2, 9)])
def test_levels_and_links_are_those_of_a_loop_over_places(nearest: int, farthest: int) -> None:
    parent = key_of(nearest, farthest, subkeys=256)
    keys = [parent.subkey(3), parent.subkey(200)]
    start, width, first, stop = 12, 8, 10, 28
    ids = torch.from_numpy(RNG.integers(0, 900, (2, 30)))
    masked = torch.from_numpy(RNG.random((2, width)) < 0.6)
    ids[:, start : start + width][masked] = MASK
    ids[:, 24:] = MASK
    tokens = torch.from_numpy(RNG.integers(0, 900, (2, width)))
    levels, links = pair_levels(tokens, Window(ids, start, masked, (first, stop), MASK), PairKeys.of(keys, CPU))
    assert links is not None
    for row, place in masked.nonzero().tolist():
        level = 0
        for column in range(first, stop):
            distance = column - start - place
            if not nearest <= abs(distance) <= farthest:
                continue
            pair = sorted([(start + place, tokens[row, place]), (column, ids[row, column])])
            other = column - start
            if 0 <= other < width and masked[row, other]:
                pair = sorted([(place, tokens[row, place]), (other, tokens[row, other])])
                assert links[row, place, other] == sign(keys[row], int(pair[0][1]), int(pair[1][1]))
            elif ids[row, column] != MASK:
                level += sign(keys[row], int(pair[0][1]), int(pair[1][1]))
        assert levels[row, place] == level


def test_each_of_several_commits_has_the_levels_that_those_before_it_leave() -> None:
    rewards = torch.tensor([[0.9, 0.8, 0.7, 0.6]])
    levels, masked = torch.tensor([[2, 1, 1, 0]]), torch.ones(1, 4, dtype=torch.bool)
    links = torch.zeros(1, 4, 4, dtype=torch.long)
    links[0, 0, 1] = links[0, 1, 0] = -3
    quota = torch.tensor([2])
    renewed = renewed_levels(rewards, masked, levels, links, quota)
    assert select_positions(rewards, masked, renewed, quota).tolist() == [[True, False, True, False]]
    assert select_positions(rewards, masked, levels, quota).tolist() == [[True, True, False, False]]


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({}, 0.62),
        ({"steps": 48}, 0.58),
        ({"commit": "threshold", "threshold": 0.3}, 0.58),
        ({"lookahead": 3}, 0.62),
        ({"temperature": 0.0}, 0.6),
        ({"strategy": "entropy", "guard": 0.1}, 0.58),
    ],
)
def test_marked_text_has_more_matching_pairs(settings: dict[str, Any], least: float) -> None:
    # under another key the share is 0.5 with a standard deviation below 0.02: six of them
    model = ToyDenoiser(words=400, end_ids=())
    keys = [key_of(), None, key_of(1, 4, subkeys=64).subkey(9)]
    config = DecodeConfig(**{"length": 96, "block_length": 16, **settings})
    prompts = torch.tensor([[2, 3, 4]] * 3)
    rows = decode(model, prompts, config, Steering(pairs=KeyPairs(keys, CPU)), seeds=[1, 2, 3])
    marked = [share_of_pairs(key, row.token_ids) for key, row in zip(keys, rows, strict=True) if key]
    assert min(marked) > least
    assert abs(share_of_pairs(keys[2] or key_of(), rows[0].token_ids) - 0.5) < 0.15
    (alone,) = decode(model, prompts[:1], config, Steering(), seeds=[2])
    assert rows[1].token_ids == alone.token_ids


def test_a_batch_has_one_range_of_distances() -> None:
    with pytest.raises(SettingsError, match="different distances"):
        KeyPairs([key_of(1, 4), key_of(1, 2)], CPU)
