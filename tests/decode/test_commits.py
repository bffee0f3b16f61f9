"""How many places a step commits, in which blocks; `test_whole_decodes` has whole texts."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from dgmark.decode import DecodeConfig, Response, decode
from dgmark.decode.selection import blocks, confident_places, quotas
from dgmark.models.denoiser import ConfidenceSource
from dgmark.models.toy import ToyDenoiser
from support.known_keys import bound_key
from support.plain_decoding import dream_counts, get_num_transfer_tokens
from support.rules import rule_of_key

LENGTH, BLOCK = 18, 6
PROMPT = [2, 7, 5, 3]


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
    """The confident places of each row."""
    confident = confident_places(torch.tensor(rewards), torch.tensor(masked), torch.tensor(preferred), config)
    assert confident is not None
    return [row.nonzero()[:, 0].tolist() for row in confident]


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


# ---- rewards of the sampled distribution ----


def test_rewards_come_from_the_distribution_that_the_model_states() -> None:
    toys = ToyDenoiser(end_ids=()), SamplingToy(end_ids=())
    own, sampled = (run(model, DecodeConfig(LENGTH, BLOCK, temperature=0.5, top_k=1)) for model in toys)
    assert max(own.trace.reward) < 1
    assert {*sampled.trace.reward} == {1.0}
    greedy, other = (run(model, DecodeConfig(LENGTH, BLOCK, temperature=0.0)) for model in toys)
    assert greedy == other
