"""How many places a step commits, and which candidates the guards let go first."""

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from dgmark.decode import DecodeConfig, Response, decode
from dgmark.decode.selection import blocks, good_enough, prolongs_loop, quotas, sure_places
from dgmark.models.denoiser import BlockOrigin, ConfidenceSource
from dgmark.models.toy import ToyDenoiser
from support.known_keys import bound_key
from support.plain_decoding import dream_counts, get_num_transfer_tokens, in_loop
from support.rules import rule_of_key

LENGTH, BLOCK = 18, 6
PROMPT = [2, 7, 5, 3]


@dataclass(frozen=True)
class CanvasToy(ToyDenoiser):
    """A toy whose blocks count from the start of the canvas."""

    block_origin: BlockOrigin = "canvas"


@dataclass(frozen=True)
class SamplingToy(ToyDenoiser):
    """A toy whose rewards come from the distribution that is sampled."""

    confidence_source: ConfidenceSource = "sampling"


def run(model: ToyDenoiser, config: DecodeConfig) -> Response:
    key = bound_key("commits", model, rule="position", modulus=2, code_length=0)
    return decode(model, torch.tensor([PROMPT]), config, rule_of_key(key), [0])[0]


# ---- thresholds and factors ----


def places_of(
    rewards: list[list[float]], masked: list[list[bool]], preferred: list[list[bool]], config: DecodeConfig
) -> list[list[int]]:
    """The sure places of each row."""
    sure = sure_places(torch.tensor(rewards), torch.tensor(masked), torch.tensor(preferred), config)
    assert sure is not None
    return [row.nonzero()[:, 0].tolist() for row in sure]


def test_the_factor_rule_by_hand() -> None:
    # factor 1: the n-th best needs n / (n + 1): 1/2, 2/3, 3/4, 4/5
    rewards = [[0.5, 0.9, 0.8, 0.75], [0.49, 0.4, 0.3, 0.2], [0.9, 0.66, 0.9, 0.9], [0.1, 0.99, 0.1, 0.1]]
    every, config = [[True] * 4] * 4, DecodeConfig(4, 4, commit="factor")
    assert places_of(rewards, every, every, config) == [[1, 2, 3], [], [0, 2, 3], [1]]
    # and among the preferred alone, or all if none of the masked ones is
    preferred = [[True, False, False, False]] * 3 + [[False] * 4]
    assert places_of(rewards, every, preferred, config) == [[0], [], [0], [1]]
    assert places_of(rewards, [[False, True, True, True]] * 4, preferred, config) == [[1, 2, 3], [], [2, 3], [1]]


def test_a_confidence_equal_to_the_threshold_is_not_above_it() -> None:
    every, config = [[True] * 3], DecodeConfig(3, 3, commit="threshold", threshold=0.75)
    assert places_of([[0.75, 0.76, 0.74]], every, every, config) == [[1]]
    assert places_of([[0.75, 0.76, 0.8]], [[True, True, False]], [[True, False, True]], config) == [[]]
    assert places_of([[0.75, 0.76, 0.8]], [[True, True, False]], [[False] * 3], config) == [[1]]


# ---- schedules ----


@pytest.mark.parametrize("schedule", ["llada", "dream"])
@pytest.mark.parametrize("block_count", [1, 3])
def test_quotas_are_those_of_the_published_procedures(schedule: Any, block_count: int) -> None:
    plain = get_num_transfer_tokens if schedule == "llada" else dream_counts
    for masked in range(1, 41):
        for steps in range(1, masked + 1):
            config = DecodeConfig(masked * block_count, masked, steps=steps * block_count, schedule=schedule)
            counts = quotas(masked, block_count, config)
            assert counts == [count for count in plain(masked, steps) if count]
            assert sum(counts) == masked


# ---- blocks that count from the start of the canvas ----


@pytest.mark.parametrize("offset", range(9))
@pytest.mark.parametrize("block_length", [1, 3, 8])
def test_blocks_are_cut_where_a_canvas_with_the_prompt_is(block_length: int, offset: int) -> None:
    length = 13
    numbers = [(offset + place) // block_length for place in range(length)]
    cut = [[place for place in range(length) if numbers[place] == number] for number in sorted({*numbers})]
    assert blocks(length, block_length, offset) == [(block[0], block[-1] + 1) for block in cut]


@pytest.mark.parametrize("schedule", ["llada", "dream"])
def test_fewer_steps_than_such_blocks_give_each_block_one(schedule: Any) -> None:
    """Three steps for a response that the prompt cuts into four blocks: one for each block, not one for each token."""
    model = CanvasToy(end_ids=())
    config = DecodeConfig(LENGTH, BLOCK, "confidence", 0.0, steps=3, schedule=schedule)
    trace = run(model, config).trace
    assert trace.position == [*range(LENGTH)]
    assert trace.step == [0] * 2 + [1] * 6 + [2] * 6 + [3] * 4


# ---- guards ----


def test_the_guard_by_hand() -> None:
    rewards = torch.tensor([[0.8, 0.4, 0.39, 0.9]], dtype=torch.float64)
    masked = torch.tensor([[True, True, True, False]])
    assert good_enough(rewards, masked, 0.5, logarithmic=False)[0, :3].tolist() == [True, True, False]
    assert good_enough(rewards, masked, 1.0, logarithmic=False)[0, :3].tolist() == [True, False, False]
    assert good_enough(rewards, masked, 0.0, logarithmic=False).all()
    surprise = torch.tensor([[-1.0, -1.0 - math.log(2) + 1e-9, -1.0 - math.log(2) - 1e-9, 0.0]], dtype=torch.float64)
    assert good_enough(surprise, masked, 0.5, logarithmic=True)[0, :3].tolist() == [True, True, False]
    assert good_enough(surprise, masked, 0.0, logarithmic=True).all()


@pytest.mark.parametrize("period", [1, 2, 5])
def test_a_loop_is_found_on_both_sides_and_at_the_edges(period: int) -> None:
    generator = torch.Generator().manual_seed(period)
    found = 0
    for _ in range(40):
        canvas = torch.randint(0, 3, (2, 14), generator=generator)
        tokens = torch.randint(1, 3, (2, 6), generator=generator)
        for start in (0, 4, 8):
            expected = [
                [in_loop(token, start + place, row, period) for place, token in enumerate(block)]
                for row, block in zip(canvas.tolist(), tokens.tolist(), strict=True)
            ]
            assert prolongs_loop(tokens, canvas, start, period).tolist() == expected
            found += sum(map(sum, expected))
    assert found > 20


# ---- rewards of the sampled distribution ----


def test_rewards_come_from_the_distribution_that_the_model_states() -> None:
    toys = ToyDenoiser(end_ids=()), SamplingToy(end_ids=())
    own, sampled = (run(model, DecodeConfig(LENGTH, BLOCK, temperature=0.5, top_k=1)) for model in toys)
    assert max(own.trace.reward) < 1
    assert {*sampled.trace.reward} == {1.0}
    greedy, other = (run(model, DecodeConfig(LENGTH, BLOCK, temperature=0.0)) for model in toys)
    assert greedy == other
