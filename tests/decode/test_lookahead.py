"""What the one-step lookahead costs; `test_whole_decodes` compares its texts with the paper's."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from dgmark.decode import DecodeConfig, Response, Rule
from dgmark.decode.canvas import Canvas, Commits, collect
from dgmark.decode.loop import decode_steps
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.known_keys import bound_key
from support.plain_decoding import decode_slowly
from support.rules import rule_of_key

LENGTH, BLOCK = 15, 5
PROMPTS = [[2, 7, 5], [9, 9, 30], [25, 3, 11]]
WAYS = [("confidence", 0.0), ("entropy", 0.0), ("margin", 0.0)]
SAMPLED = [("confidence", 0.8), ("entropy", 1.2)]
ENDLESS = ToyDenoiser(end_ids=())


@dataclass(frozen=True)
class CountingToy(ToyDenoiser):
    """A toy that keeps how many canvases each forward had."""

    sizes: list[int] = field(default_factory=list)

    def __call__(self, ids: Tensor) -> Tensor:
        self.sizes.append(len(ids))
        return super().__call__(ids)


@cache
def key_of(modulus: int = 2) -> WatermarkKey:
    """All toys share a vocabulary."""
    return bound_key("lookahead", ENDLESS, rule="position", modulus=modulus, code_length=0)


def marked(modulus: int = 2) -> Rule:
    return rule_of_key(key_of(modulus), len(PROMPTS))


def steps_of(
    model: ToyDenoiser, config: DecodeConfig, rule: Rule, prompts: list[list[int]], seeds: list[int]
) -> tuple[list[Response], list[Commits]]:
    canvas = Canvas.after(torch.tensor(prompts), config.length, model.mask_id)
    steps = [*decode_steps(model, canvas, config, rule, seeds)]
    return collect(model, canvas, iter(steps)), steps


def config_of(strategy: Any = "confidence", temperature: float = 0.0, k: int = 3, **settings: Any) -> DecodeConfig:
    return DecodeConfig(LENGTH, BLOCK, strategy, temperature, lookahead=k, **settings)


# ---- what it costs ----


@pytest.mark.parametrize("modulus", [3, 4])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_a_step_forwards_its_candidates_and_no_other_canvas(k: int, modulus: int) -> None:
    model = CountingToy(end_ids=())
    _, steps = steps_of(model, config_of(k=k), marked(modulus), PROMPTS[:1], [0])
    plain = decode_slowly(ENDLESS, PROMPTS[0], config_of(k=k), key_of(modulus))
    # a block begins with a forward of its own, and its last step has none
    expected = []
    for step, tried in enumerate(plain.tried):
        begins, last = step % BLOCK == 0, step % BLOCK == BLOCK - 1
        expected.append(begins + (0 if last else tried))
    assert [commits.forwards for commits in steps] == expected
    assert sum(model.sizes) == sum(expected)
    assert sum(expected) <= k * LENGTH
    # candidate sets of one member came up before a block's last step, and so did larger ones
    early = [tried for step, tried in enumerate(plain.tried) if step % BLOCK < BLOCK - 1]
    assert k == 1 or {1, 2} <= {*early}


def test_a_batch_forwards_each_rows_candidates_in_one_go() -> None:
    model = CountingToy(end_ids=())
    _, steps = steps_of(model, config_of(k=3), marked(), PROMPTS, [0] * 3)
    alone = [steps_of(ENDLESS, config_of(k=3), marked(), [prompt], [0])[1] for prompt in PROMPTS]
    assert [s.forwards for s in steps] == [sum(s.forwards for s in row) for row in zip(*alone, strict=True)]
    assert len(model.sizes) == LENGTH


@pytest.mark.parametrize(("strategy", "temperature"), [*WAYS, *SAMPLED])
@pytest.mark.parametrize("proposals", ["redrawn", "kept"])
def test_unmarked_text_is_the_same_with_any_lookahead_and_costs_the_same(
    strategy: Any, temperature: float, proposals: Any
) -> None:
    plain, plain_steps = steps_of(ENDLESS, config_of(strategy, temperature, 1), Rule(), PROMPTS, [0, 1, 2])
    for k in (2, 5):
        config = config_of(strategy, temperature, k, lookahead_proposals=proposals)
        responses, steps = steps_of(ENDLESS, config, Rule(), PROMPTS, [0, 1, 2])
        assert responses == plain
        assert [s.forwards for s in steps] == [s.forwards for s in plain_steps]


# ---- a region with blocks that are full already ----


def test_a_block_without_masks_is_passed_over() -> None:
    model = ToyDenoiser(seed=3, end_ids=())
    holes = [True] * BLOCK + [False] * BLOCK + [True] * BLOCK
    ids = torch.tensor([PROMPTS[0] + [model.mask_id if hole else 6 for hole in holes]])
    canvas = Canvas(ids, 3, torch.tensor(holes), torch.arange(LENGTH))
    config = config_of(k=3)
    (response,) = collect(model, canvas, decode_steps(model, canvas, config, marked(), [0]))

    # the last block alone, after a text that is the rest: the same commits
    front = torch.tensor([PROMPTS[0] + response.token_ids[: 2 * BLOCK]])
    tail = Canvas(
        torch.cat([front, torch.full((1, BLOCK), model.mask_id)], 1),
        3 + 2 * BLOCK,
        torch.ones(BLOCK, dtype=torch.bool),
        torch.arange(2 * BLOCK, LENGTH),
    )
    (rest,) = collect(model, tail, decode_steps(model, tail, config, marked(), [0]))
    assert response.token_ids[2 * BLOCK :] == rest.token_ids
    assert response.trace.position[BLOCK:] == rest.trace.position
