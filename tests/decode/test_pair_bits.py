"""The bits of candidates under the bigram rule, against a loop over places and candidates; and the mark they leave."""

from typing import Any

import numpy as np
import pytest
import torch

from dgmark.decode import DecodeConfig, Steering, decode
from dgmark.decode.matching import key_steering
from dgmark.decode.pair_bits import PairKeys
from dgmark.decode.steering import Places, Window
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.known_keys import bound_key, share_of_pairs
from support.plain_decoding import bits_at

CPU, MASK = torch.device("cpu"), 2
TOY = ToyDenoiser(words=400, end_ids=())
# few ids, so that texts repeat pairs; the largest that a pair can hold among them
IDS = [0, 1, 5, 77, 2**23, 2**24 - 1]


def key_of(nearest: int = 1, farthest: int = 4, subkeys: int = 1) -> WatermarkKey:
    return bound_key("pairs", TOY, nearest=nearest, farthest=farthest, subkeys=subkeys)


def signs_of(rule: PairKeys, text: list[int], candidates: list[int]) -> list[list[int]]:
    """The bits of candidates at the first mask of a text."""
    row = torch.tensor([0])
    window = Window(torch.tensor([text]), text.index(MASK), row[None], (0, len(text)), MASK, row)
    signs: list[list[int]] = rule.signs(torch.tensor([candidates]), Places.all_of(window))[0].tolist()
    return signs


@pytest.mark.parametrize("fixed_shapes", [False, True])
@pytest.mark.parametrize(("nearest", "farthest"), [(1, 1), (1, 4), (2, 9)])
def test_bits_are_those_of_a_loop_over_places_and_candidates(nearest: int, farthest: int, fixed_shapes: bool) -> None:
    """In rows with different sub-keys and one without a mark; at committed places too, where an edit asks for them."""
    rng, parent = np.random.default_rng(5), key_of(nearest, farthest, subkeys=256)
    keys = [parent.subkey(3), None, parent.subkey(200)]
    rule = PairKeys.of(keys, CPU, fixed_shapes=fixed_shapes)
    first, stop, start, width = 6, 24, 8, 12
    rows = torch.tensor([2, 0, 1, 0])
    seen: set[tuple[Any, ...]] = set()
    for _ in range(20):
        ids = torch.from_numpy(rng.choice(IDS, (len(rows), 28)))
        ids[torch.from_numpy(rng.random(ids.shape) < 0.4)] = MASK
        tokens = torch.from_numpy(np.array([rng.permutation([*IDS, -1])[:5] for _ in range(len(rows) * width)]))
        places = Places.all_of(Window(ids, start, torch.zeros(len(rows), width).long(), (first, stop), MASK, rows))
        signs, reached = rule.signs(tokens, places).tolist(), rule.reached(places).tolist()
        for at, (canvas, column) in enumerate(zip(places.canvas.tolist(), places.column.tolist(), strict=True)):
            text = [-1 if token == MASK else token for token in ids[canvas, first:stop].tolist()]
            place, key = start - first + column, keys[int(rows[canvas])]
            candidates = [token for token in tokens[at].tolist() if token >= 0]
            none = [0] * 2 * (farthest - nearest + 1)
            expected = {-1: none} | bits_at(key, text, place, candidates) if key else dict.fromkeys([*IDS, -1], none)
            assert signs[at] == [expected[token] for token in tokens[at].tolist()]
            beside = [text[j] for j in range(len(text)) if nearest <= abs(j - place) <= farthest]
            assert reached[at] == (key is not None and any(token >= 0 for token in beside))
            seen.update((reached[at], *bits) for bits in signs[at])
    assert len(seen) > 8  # of two bits each three values


@pytest.mark.parametrize(
    ("text", "candidates", "distances", "exist"),
    [
        ([5, MASK, 77], [1, 0], (1, 1), [[1, 1], [1, 1]]),
        ([5, 1, 77, 77, 5, MASK], [1, 0], (1, 1), [[0, 0], [1, 0]]),  # the text holds 5, 1
        ([5, 5, MASK], [1], (1, 2), [[1, 0, 0, 0]]),  # 5, 1 at two distances
        ([0, 0, 0, MASK, MASK, 5, 5], [1], (1, 4), [[1, 0, 0, 1, 0, 0, 0, 0]]),
        ([5, MASK, 5], [5, 1], (1, 1), [[1, 0], [1, 1]]),  # 5, 5 on both sides
        ([MASK, 5, MASK], [5, 1], (1, 2), [[0, 1, 0, 0], [0, 1, 0, 0]]),
        ([5, MASK, 77], [5, 77], (1, 1), [[1, 0], [1, 1]]),  # both complete 5, 77
        ([5, MASK, 77], [5, 1], (1, 1), [[1, 1], [1, 1]]),
    ],
    ids=str,
)
@pytest.mark.parametrize("fixed_shapes", [False, True])
def test_each_pair_is_counted_once(
    text: list[int], candidates: list[int], distances: tuple[int, int], exist: list[list[int]], fixed_shapes: bool
) -> None:
    rule = PairKeys.of([key_of(*distances)], CPU, fixed_shapes=fixed_shapes)
    assert [[abs(sign) for sign in row] for row in signs_of(rule, text, candidates)] == exist


def test_bits_may_be_told_by_somebody_else() -> None:
    """1, -1, or 0 for what is not known; the nearest first, and left before right."""
    rule = PairKeys.of([key_of(1, 2)], CPU, bits_of=lambda words, _: (words % 2**24 + (words >> 24)) % 3 - 1)
    assert signs_of(rule, [6, 7, MASK, 8, 9], [0, 1, 3]) == [[0, 1, -1, -1], [1, -1, 0, 0], [0, 1, -1, -1]]


@pytest.mark.parametrize(
    ("settings", "least"),
    [
        ({}, 0.85),
        ({"alpha": 0.5}, 0.75),
        ({"bias": 1.0}, 0.9),
        ({"steps": 48}, 0.8),
        ({"commit": "threshold", "threshold": 0.018}, 0.75),
        ({"temperature": 0.0, "bias": 2.0}, 0.95),
        ({"strategy": "entropy"}, 0.85),
        ({"noise": "fixed"}, 0.85),
    ],
    ids=str,
)
def test_marked_text_has_more_matching_pairs(settings: dict[str, Any], least: float) -> None:
    """Under another key the share is 0.5 with a standard deviation below 0.03."""
    keys = [key_of(), None, key_of(subkeys=64).subkey(9)]
    config = DecodeConfig(**{"length": 96, "block_length": 16, **settings})
    prompts = torch.tensor([[2, 3, 4]] * 3)
    rows = decode(TOY, prompts, config, key_steering(keys, CPU), seeds=[1, 2, 3])
    assert min(share_of_pairs(key, row.token_ids) for key, row in zip(keys, rows, strict=True) if key) > least
    assert abs(share_of_pairs(keys[2] or key_of(), rows[0].token_ids) - 0.5) < 0.12
    (alone,) = decode(TOY, prompts[:1], config, Steering(), seeds=[2])
    assert rows[1].token_ids == alone.token_ids
    assert all(rows[1].trace.matched)


def test_a_batch_has_keys_of_one_rule_and_one_range_of_distances() -> None:
    with pytest.raises(SettingsError, match="different distances"):
        key_steering([key_of(1, 4), None, key_of(1, 2)], CPU)
    with pytest.raises(SettingsError, match="keys of both rules mark no batch together"):
        key_steering([key_of(), None, bound_key("pairs", TOY, rule="position")], CPU)
    with pytest.raises(SettingsError, match=r"has 64 sub-keys.*take one with key\.subkey"):
        key_steering([key_of(subkeys=64)], CPU)
