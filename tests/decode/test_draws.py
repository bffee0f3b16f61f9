"""Keyed draws against exact fractions, and their mean over all assignments of the bits."""

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from dgmark.decode import DecodeConfig, propose
from dgmark.decode.bigram import BigramSide
from dgmark.decode.proposals import KeyedDraw, keyed_shares
from dgmark.models.toy import ToyDenoiser
from support.known_keys import bound_key
from support.plain_decoding import moved, new_pairs
from support.rules import places_from

ALPHAS = [Fraction(0), Fraction(1, 3), Fraction(1, 2), Fraction(1)]
MASK = 9


def tensor_of(shares: list[Fraction], rows: int = 1) -> Tensor:
    return torch.tensor([list(map(float, shares))] * rows, dtype=torch.float64)


def all_signs(present: list[list[int]]) -> Iterator[list[list[int]]]:
    """All assignments of 1 and -1 to the bits that are present, (candidates, bits)."""
    flat = [bit for candidate in present for bit in candidate]
    width = len(present[0])
    for signs in product(*([-1, 1] if bit else [0] for bit in flat)):
        yield [list(signs[i : i + width]) for i in range(0, len(signs), width)]


# ---- the formula ----


@pytest.mark.parametrize("alpha", ALPHAS, ids=str)
@pytest.mark.parametrize(
    "shares",
    [
        [Fraction(1, 7), Fraction(2, 7), Fraction(4, 7)],
        [Fraction(1, 2), Fraction(1, 2)],
        [Fraction(1, 10), Fraction(0), Fraction(3, 10)],  # of a place whose other tokens are no candidates
        [Fraction(1)],
    ],
    ids=str,
)
def test_shares_are_those_of_exact_fractions(shares: list[Fraction], alpha: Fraction) -> None:
    """All values of two bits for each candidate: 1, 0 and absent; among them bits that all or none have."""
    every = [*product([-1, 0, 1], repeat=2 * len(shares))]
    signs = [[list(row[2 * i : 2 * i + 2]) for i in range(len(shares))] for row in every]
    found = keyed_shares(tensor_of(shares, len(signs)), torch.tensor(signs, dtype=torch.int8), float(alpha))
    for row, bits in zip(found.tolist(), signs, strict=True):
        exact = moved(dict(enumerate(shares)), dict(enumerate(bits)), alpha)
        assert row == pytest.approx([float(share) for share in exact.values()], abs=1e-15, rel=1e-13)


def shares_after(shares: list[float], bits: list[list[int]], alpha: float, bias: float = 0.0) -> list[float]:
    """The shares of one place."""
    signs = torch.tensor([bits], dtype=torch.int8)
    after: list[float] = keyed_shares(torch.tensor([shares], dtype=torch.float64), signs, alpha, bias)[0].tolist()
    return after


def test_the_formula_by_hand() -> None:
    shares = [1 / 4, 1 / 4, 1 / 2]
    assert shares_after(shares, [[1], [-1], [-1]], 1) == pytest.approx([1 / 2, 1 / 6, 1 / 3])  # M(1/4) = 1/2
    assert shares_after(shares, [[-1], [1], [1]], 1) == pytest.approx([0, 1 / 3, 2 / 3])  # M(3/4) = 1
    assert shares_after(shares, [[1], [-1], [-1]], 0.5) == pytest.approx([3 / 8, 5 / 24, 5 / 12])
    assert shares_after(shares, [[1], [-1], [0]], 1) == pytest.approx([1 / 2, 0, 1 / 2])  # of two, M(1/2) = 1
    # the second bit works on what the first has left: M(1/6) = 1/3
    assert shares_after(shares, [[1, -1], [-1, 1], [-1, -1]], 1) == pytest.approx([2 / 5, 1 / 3, 4 / 15])


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_a_bias_multiplies_the_ones_and_keeps_the_sum(alpha: float) -> None:
    shares = [0.1, 0.2, 0.5]
    for bits in ([[1, 1], [-1, 1], [0, -1]], [[1, 0], [1, 0], [-1, 0]], [[1, 1]] * 3, [[-1, 0]] * 3):
        after = shares_after(shares, bits, alpha, 0.8)
        exact = moved(dict(enumerate(shares)), dict(enumerate(bits)), alpha, 0.8)
        assert after == pytest.approx([*exact.values()], rel=1e-13)
        assert sum(after) == pytest.approx(0.8, rel=1e-13)
    one, other = shares_after([0.3, 0.6], [[1, 1], [-1, 1]], 0.0, 0.7)
    assert one / other == pytest.approx(math.exp(0.7) / 2)


# ---- each draw is unbiased: the mean over all assignments of the bits, with no statistic ----


@pytest.mark.parametrize("alpha", ALPHAS, ids=str)
@pytest.mark.parametrize(
    "present",
    [
        [[1], [1], [1], [1]],
        [[1], [0], [1], [1]],
        [[1, 1, 1], [1, 1, 1], [1, 1, 1]],
        [[1, 1, 0], [0, 1, 1], [1, 0, 1], [0, 1, 0]],
    ],
    ids=str,
)
def test_over_all_bits_each_candidate_keeps_its_share(present: list[list[int]], alpha: Fraction) -> None:
    shares = [Fraction(weight, 23) for weight in (2, 9, 3, 5)][: len(present)]
    assignments = [*all_signs(present)]
    exact = [moved(dict(enumerate(shares)), dict(enumerate(bits)), alpha) for bits in assignments]
    assert [sum(row[v] for row in exact) / len(exact) for v in range(len(shares))] == shares
    signs = torch.tensor(assignments, dtype=torch.int8)
    found = keyed_shares(tensor_of(shares, len(signs)), signs, float(alpha))
    assert found.mean(0).tolist() == pytest.approx([float(share) for share in shares], abs=1e-12)
    assert alpha == 0 or (found - tensor_of(shares)).abs().max() > 0.05


@pytest.mark.parametrize("alpha", [0.5, 1.0])
@pytest.mark.parametrize("fixed_shapes", [False, True])
@pytest.mark.parametrize(
    ("text", "distances"),
    [
        ([1, MASK, 2], (1, 1)),  # 1 and 2 both complete 1, 2
        ([1, MASK, 1], (1, 1)),
        ([1, MASK, 1], (1, 2)),
        ([4, 4, MASK, 3], (1, 2)),
        ([5, 1, MASK, 2, 5], (1, 2)),
        ([2, 1, MASK, 1, 2], (1, 2)),
        ([3, 1, 6, 6, MASK, 3], (1, 2)),  # the text holds 3, 1
    ],
    ids=str,
)
def test_over_all_bits_of_the_pairs_each_token_keeps_its_probability(
    text: list[int], distances: tuple[int, int], fixed_shapes: bool, alpha: float
) -> None:
    """One row for each assignment of bits to the pairs that the candidates complete."""
    place, candidates = text.index(MASK), [1, 2, 3]
    known = [-1 if token == MASK else token for token in text]
    found = new_pairs(known, place, candidates, *distances)
    numbers = {pair: number for number, pair in enumerate(pair for row in found.values() for pair in row if pair)}
    count = 2 ** len(numbers)

    class Enumerated(BigramSide):
        def signs_of_pairs(self, words: Tensor, rows: Tensor) -> Tensor:
            pairs = [(word % 2**24, word >> 24) for word in words.flatten().tolist()]
            number = torch.tensor([numbers.get(pair, 0) for pair in pairs]).view(words.shape)
            return (2 * (rows >> number & 1) - 1).to(torch.int8)

    key = bound_key("draws", ToyDenoiser(), nearest=distances[0], farthest=distances[1])
    rule = Enumerated.empty([key], count, "cpu", fixed_shapes=fixed_shapes)
    for row in range(count):
        rule.put(row, key)
    places = places_from(torch.tensor([text] * count), place, width=1, mask_id=MASK)
    before = torch.tensor([0.1, 0.2, 0.3, 0.35, 0.05, 0, 0, 0, 0], dtype=torch.float64)
    before[[0, 4]] = 0  # no candidates, whose bits are not enumerated
    weights = before.repeat(count, 1)
    KeyedDraw(lambda tokens: rule.signs(tokens, places), None, alpha, 0.0).apply(weights)
    assert weights.mean(0).tolist() == pytest.approx(before.tolist(), abs=1e-12)
    assert len({tuple(row) for row in weights.tolist()}) > 2


# ---- proposals ----

LOGITS = torch.randn(40, 100, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
UNIFORMS = torch.rand(40, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
FORBIDDEN = torch.tensor([0])
SIGNS = torch.randint(-1, 2, (40, 64, 3), generator=torch.Generator().manual_seed(3), dtype=torch.int8)


def config_of(**settings: Any) -> DecodeConfig:
    return DecodeConfig(8, 4, **settings)


def keyed(alpha: float, bias: float = 0.0, signs: Tensor = SIGNS, at: Tensor | None = None) -> KeyedDraw:
    return KeyedDraw(lambda tokens: signs * (tokens >= 0)[:, :, None], at, alpha, bias)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tempered", [False, True])
@pytest.mark.parametrize(
    "settings",
    [{}, {"temperature": 0.0}, {"temperature": 0.5, "top_k": 9}, {"top_p": 0.7}, {"strategy": "entropy"}],
    ids=str,
)
def test_without_alpha_and_bias_a_proposal_is_the_plain_one_bit_by_bit(
    settings: dict[str, Any], tempered: bool, dtype: torch.dtype
) -> None:
    given = LOGITS.to(dtype), UNIFORMS, FORBIDDEN, config_of(**settings)
    plain = propose(*given, tempered=tempered)
    for draw in (keyed(0.0), keyed(1.0, 0.5, 0 * SIGNS), keyed(1.0, 0.5, SIGNS[:, :, :0])):
        found = propose(*given, tempered=tempered, keyed=draw)
        assert torch.equal(found.tokens, plain.tokens)
        assert torch.equal(found.rewards, plain.rewards)
        assert torch.equal(found.scores, plain.rewards)
        assert found.net_bits is not None
        assert bool(found.net_bits.any()) == (draw.alpha == 0)


@pytest.mark.parametrize("tempered", [False, True])
@pytest.mark.parametrize("strategy", ["confidence", "entropy", "random"])
def test_a_score_is_the_reward_times_what_the_bits_made_of_the_probability(strategy: Any, tempered: bool) -> None:
    """The reward is that of the model, or of what is drawn from as it was before the bits."""
    config = config_of(strategy=strategy, temperature=0.6)
    at = torch.arange(0, 40, 2)
    found = propose(LOGITS, UNIFORMS, FORBIDDEN, config, tempered=tempered, keyed=keyed(0.8, 0.3, SIGNS[at], at))
    before = (LOGITS.index_fill(-1, FORBIDDEN, -torch.inf) / 0.6).softmax(-1)
    after = before.clone()
    keyed(0.8, 0.3, SIGNS[at], at).apply(after)
    assert torch.equal(after[1::2], before[1::2])
    own = before if tempered else LOGITS.softmax(-1)
    net_bits = []
    for place, token in enumerate(found.tokens.tolist()):
        rewards = {"confidence": own[place, token], "entropy": own[place].xlogy(own[place]).sum()}
        reward = UNIFORMS[place, 1] if strategy == "random" else rewards[strategy]
        gain = after[place, token] / before[place, token]
        scores = {"confidence": reward * gain, "entropy": reward + gain.log(), "random": reward}
        assert found.rewards[place].item() == pytest.approx(reward.item(), rel=1e-12)
        assert found.scores[place].item() == pytest.approx(scores[strategy].item(), rel=1e-12)
        order = before[place].topk(64).indices.tolist()
        net = SIGNS[place, order.index(token)].sum().item() if place % 2 == 0 and token in order else 0
        net_bits.append(net)
    assert found.net_bits is not None
    assert found.net_bits.tolist() == net_bits
    assert len({*net_bits}) > 3


@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_only_the_64_most_likely_tokens_of_a_ten_thousandth_have_bits(bias: float) -> None:
    asked = []

    def signs(tokens: Tensor) -> Tensor:
        asked.append(tokens)
        return (torch.where(tokens % 2 == 0, 1, -1) * (tokens >= 0))[:, :, None].to(torch.int8)

    many = torch.linspace(1.0, 2.0, 100, dtype=torch.float64)
    few = torch.full((100,), 0.9e-4, dtype=torch.float64)
    few[[3, 50, 51]] = torch.tensor([0.4, 0.55, 1.1e-4], dtype=torch.float64)
    weights = torch.stack([many, 7.0 * few / few.sum()])  # after top-k and top-p their sum is not 1
    before = weights.clone()
    KeyedDraw(signs, None, 1.0, bias).apply(weights)
    assert [{*row} for row in asked[0].tolist()] == [{*range(36, 100)}, {-1, 3, 50, 51}]
    assert torch.equal(weights[0, :36], before[0, :36])
    assert (weights[0, 36::2] > before[0, 36::2]).all()
    assert weights.sum(1).tolist() == pytest.approx(before.sum(1).tolist())
    rest = [v for v in range(100) if v not in (3, 50, 51)]
    assert bias or torch.equal(weights[1, rest], before[1, rest])  # a bias divides all 64 by one number
