"""What a step commits: schedules, parallel commits and guards, against a plain loop."""

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch

from dgmark.decode import DecodeConfig, KeyMatching, Matching, Response, decode, match_all
from dgmark.decode.selection import blocks, confident_count, good_enough, prolongs_loop, quotas
from dgmark.models.denoiser import BlockOrigin, ConfidenceSource
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.groups import WatermarkSpec, group_table
from dgmark.watermark.key import WatermarkKey
from support.plain_decoding import InMatchingSet, Plain, decode_plainly, dream_counts, get_num_transfer_tokens, in_loop

SECRET = bytes(range(32))
LENGTH, BLOCK = 18, 6
PROMPT = [2, 7, 5, 3]
SHARP = ToyDenoiser(spread=100.0, end_ids=())  # confidences on both sides of every threshold below


@dataclass(frozen=True)
class CanvasToy(ToyDenoiser):
    """A toy whose blocks count from the start of the canvas."""

    block_origin: BlockOrigin = "canvas"


@dataclass(frozen=True)
class SamplingToy(ToyDenoiser):
    """A toy whose rewards come from the distribution that is sampled."""

    confidence_source: ConfidenceSource = "sampling"


@dataclass(frozen=True)
class ToyForwards:
    """The toy, one whole canvas at a time."""

    model: ToyDenoiser

    def begin(self, canvas: list[int], start: int, stop: int) -> list[list[float]]:
        logits: list[list[float]] = self.model(torch.tensor([canvas]))[0, start:stop].tolist()
        return logits

    def step(self, canvas: list[int], start: int, stop: int) -> list[list[float]]:
        return self.begin(canvas, start, stop)


def marked(_model: ToyDenoiser, modulus: int = 2) -> KeyMatching:
    return matching_of(modulus)


@cache
def matching_of(modulus: int) -> KeyMatching:
    # all toys have a table of one size
    model = SHARP
    spec = WatermarkSpec(
        modulus=modulus,
        table_size=model.vocab_size,
        tokenizer=model.tokenizer.name,
        tokenizer_fingerprint=model.tokenizer.fingerprint,
    )
    return KeyMatching(WatermarkKey(spec=spec, key_id="test", secret=SECRET), torch.device("cpu"))


def matching_set(modulus: int = 2) -> InMatchingSet:
    groups = group_table(SECRET, modulus, SHARP.vocab_size, 0).tolist()
    return lambda token, position: bool(groups[token] == position % modulus)


def plainly(
    model: ToyDenoiser,
    config: DecodeConfig,
    contains: InMatchingSet,
    prompt: list[int] = PROMPT,
    edges: list[int] | None = None,
    period: int | None = None,
) -> Plain:
    edges = edges or [*range(0, config.length + 1, config.block_length)]
    return decode_plainly(
        ToyForwards(model),
        prompt,
        [range(*pair) for pair in pairwise(edges)],
        config,
        contains,
        mask_id=model.mask_id,
        permitted=[*range(1, model.tokenizer.vocab_size)],
        end_ids=model.end_ids,
        period=period,
    )


def run(model: ToyDenoiser, config: DecodeConfig, matching: Matching, prompt: list[int] = PROMPT) -> Response:
    return decode(model, torch.tensor([prompt]), config, matching, [0])[0]


def places_by_step(response: Response) -> list[list[int]]:
    steps: dict[int, list[int]] = {}
    for step, position in zip(response.trace.step, response.trace.position, strict=True):
        steps.setdefault(step, []).append(position)
    return [sorted(steps[step]) for step in range(len(steps))]


def assert_same(response: Response, plain: Plain) -> None:
    assert places_by_step(response) == plain.steps
    assert response.token_ids == plain.y


# ---- parallel commits ----


@pytest.mark.parametrize("modulus", [0, 2, 3])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(
    "rule",
    [
        {"commit": "threshold", "threshold": 0.9},
        {"commit": "threshold", "threshold": 0.6},
        {"commit": "factor", "factor": 0.5},
        {"commit": "factor", "factor": 1.0},
    ],
    ids=str,
)
def test_confident_candidates_are_committed_at_once(rule: dict[str, Any], k: int, modulus: int) -> None:
    sizes = set()
    for seed in range(2):
        model = replace(SHARP, seed=seed)
        config = DecodeConfig(LENGTH, BLOCK, "confidence", 0.0, lookahead=k, **rule)
        matching = marked(model, modulus) if modulus else match_all
        contains = matching_set(modulus) if modulus else lambda *_: True
        # without a mark there is no lookahead
        plain = plainly(model, config if modulus else replace(config, lookahead=1), contains)
        assert_same(run(model, config, matching), plain)
        sizes |= {len(step) for step in plain.steps}
    assert len(sizes) > 1


def test_the_factor_rule_by_hand() -> None:
    # factor 1: the n-th best needs n / (n + 1): 1/2, 2/3, 3/4, 4/5
    rewards = torch.tensor(
        [[0.5, 0.9, 0.8, 0.75], [0.49, 0.4, 0.3, 0.2], [0.9, 0.66, 0.9, 0.9], [0.1, 0.99, 0.1, 0.1]],
        dtype=torch.float64,
    )
    every = torch.ones(4, 4, dtype=torch.bool)
    config = DecodeConfig(4, 4, commit="factor")
    assert confident_count(rewards, every, every, config).tolist() == [3, 0, 3, 1]
    # and among the preferred alone
    preferred = torch.tensor([[True, False, False, False]] * 3 + [[False] * 4])
    assert confident_count(rewards, every, preferred, config).tolist() == [1, 0, 1, 1]


def test_a_confidence_equal_to_the_threshold_is_not_above_it() -> None:
    every = torch.ones(1, 2, dtype=torch.bool)
    config = DecodeConfig(2, 2, commit="threshold", threshold=0.75)
    assert confident_count(torch.tensor([[0.75, 0.76]]), every, every, config).tolist() == [1]


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


def test_schedules_by_hand() -> None:
    assert quotas(8, 1, DecodeConfig(8, 8, steps=3)) == [3, 3, 2]
    assert quotas(5, 1, DecodeConfig(8, 8, steps=8)) == [1] * 5
    assert quotas(8, 1, DecodeConfig(8, 8, steps=4, schedule="dream")) == [1, 2, 2, 3]
    assert quotas(8, 1, DecodeConfig(8, 8)) == [1] * 8


@pytest.mark.parametrize("schedule", ["llada", "dream"])
@pytest.mark.parametrize("steps", [3, 6, 12, 18])
@pytest.mark.parametrize(("strategy", "k"), [("confidence", 1), ("entropy", 3), ("margin", 2)])
def test_a_schedule_in_the_loop(strategy: Any, k: int, steps: int, schedule: Any) -> None:
    model = replace(SHARP, seed=steps, spread=8.0)
    config = DecodeConfig(LENGTH, BLOCK, strategy, 0.0, lookahead=k, steps=steps, schedule=schedule)
    response = run(model, config, marked(model))
    assert_same(response, plainly(model, config, matching_set()))
    assert len({*response.trace.step}) <= steps


# ---- blocks that count from the start of the canvas ----


def test_blocks_by_hand() -> None:
    assert blocks(12, 4) == [(0, 4), (4, 8), (8, 12)]
    assert blocks(12, 4, 1) == [(0, 3), (3, 7), (7, 11), (11, 12)]
    assert blocks(12, 4, 3) == [(0, 1), (1, 5), (5, 9), (9, 12)]
    assert blocks(12, 4, 4) == blocks(12, 4)
    assert blocks(4, 4, 2) == [(0, 2), (2, 4)]
    assert blocks(2, 32, 5) == [(0, 2)]


@pytest.mark.parametrize("offset", range(9))
@pytest.mark.parametrize("block_length", [1, 3, 8])
def test_blocks_are_cut_where_a_canvas_with_the_prompt_is(block_length: int, offset: int) -> None:
    length = 13
    numbers = [(offset + place) // block_length for place in range(length)]
    cut = [[place for place in range(length) if numbers[place] == number] for number in sorted({*numbers})]
    assert blocks(length, block_length, offset) == [(block[0], block[-1] + 1) for block in cut]


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(("prompt", "edges"), [(4, [0, 2, 8, 14, 18]), (6, [0, 6, 12, 18]), (7, [0, 5, 11, 17, 18])])
def test_a_model_whose_blocks_count_from_the_canvas_is_decoded_in_those_blocks(
    prompt: int, edges: list[int], k: int
) -> None:
    model = CanvasToy(end_ids=())
    config = DecodeConfig(LENGTH, BLOCK, "confidence", 0.0, lookahead=k)
    x = [*range(2, 2 + prompt)]
    assert_same(run(model, config, marked(model), x), plainly(model, config, matching_set(), x, edges))


@pytest.mark.parametrize("schedule", ["llada", "dream"])
def test_fewer_steps_than_such_blocks_give_each_block_one(schedule: Any) -> None:
    """Three steps for a response that the prompt cuts into four blocks: one for each block, not one for each token."""
    model = CanvasToy(end_ids=())
    config = DecodeConfig(LENGTH, BLOCK, "confidence", 0.0, steps=3, schedule=schedule)
    response = run(model, config, marked(model))
    assert places_by_step(response) == [[0, 1], [*range(2, 8)], [*range(8, 14)], [*range(14, 18)]]


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


@pytest.mark.parametrize("guard", [0.3, 0.8, 1.0])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("strategy", ["confidence", "entropy", "margin"])
def test_a_guarded_match_is_treated_like_a_candidate_that_does_not_match(strategy: Any, k: int, guard: float) -> None:
    model = replace(SHARP, seed=int(10 * guard), spread=8.0)
    config = DecodeConfig(LENGTH, BLOCK, strategy, 0.0, lookahead=k, guard=guard)
    guarded = run(model, config, marked(model))
    assert_same(guarded, plainly(model, config, matching_set()))
    free = run(model, replace(config, guard=0.0), marked(model))
    if guard > 0.3:
        assert guarded.trace.position != free.trace.position


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


def test_each_row_has_the_period_of_its_own_code() -> None:
    tokens = torch.randint(2, 4, (4, 6), generator=torch.Generator().manual_seed(1))
    canvas = torch.randint(2, 4, (4, 12), generator=torch.Generator().manual_seed(2))
    periods = [2, 3, 0, 1]
    together = prolongs_loop(tokens, canvas, 3, torch.tensor(periods))
    for row, period in enumerate(periods):
        alone = prolongs_loop(tokens[[row]], canvas[[row]], 3, period)
        assert together[[row]].tolist() == alone.tolist()
        assert bool(alone.any()) == (period > 0)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("modulus", [2, 3])
def test_a_match_that_prolongs_a_loop_is_not_preferred(modulus: int, k: int) -> None:
    differ = 0
    for seed in range(3):
        model = ToyDenoiser(words=2, padding=28, seed=seed, end_ids=())  # few words, so that loops occur
        config = DecodeConfig(LENGTH, BLOCK, "confidence", 0.0, lookahead=k, repetition_guard=True)
        guarded = run(model, config, marked(model, modulus))
        assert_same(guarded, plainly(model, config, matching_set(modulus), period=modulus))
        differ += guarded != run(model, replace(config, repetition_guard=False), marked(model, modulus))
    assert differ


# ---- rewards of the sampled distribution ----


@pytest.mark.parametrize("filters", [{}, {"top_k": 4}, {"top_p": 0.6}], ids=str)
@pytest.mark.parametrize("strategy", ["confidence", "entropy"])
def test_rewards_come_from_the_distribution_that_the_model_states(strategy: Any, filters: dict[str, Any]) -> None:
    """The first commit's reward, from the logits of the first canvas."""
    for model in (ToyDenoiser(end_ids=()), SamplingToy(end_ids=())):
        trace = run(model, DecodeConfig(LENGTH, BLOCK, strategy, 0.5, **filters), marked(model)).trace
        canvas = torch.tensor([PROMPT + [model.mask_id] * LENGTH])
        logits: list[float] = model(canvas)[0, len(PROMPT) + trace.position[0]].tolist()
        p = softmax(dict(enumerate(logits)))
        if isinstance(model, SamplingToy):
            p = softmax({v: logits[v] / 0.5 for v in range(1, model.tokenizer.vocab_size)})
            kept, mass = [], 0.0
            for v in sorted(p, key=lambda v: -p[v])[: filters.get("top_k")]:
                if mass < filters.get("top_p", 1.0):
                    kept.append(v)
                mass += p[v]
            p = {v: p[v] / sum(p[w] for w in kept) for v in kept}
        reward = p[trace.token_id[0]] if strategy == "confidence" else sum(q * math.log(q) for q in p.values())
        assert trace.reward[0] == pytest.approx(reward, rel=1e-9)


def softmax(logits: dict[int, float]) -> dict[int, float]:
    peak = max(logits.values())
    weights = {v: math.exp(x - peak) for v, x in logits.items()}
    return {v: w / sum(weights.values()) for v, w in weights.items()}


def test_at_temperature_0_both_sources_are_the_softmax_of_the_logits() -> None:
    config = DecodeConfig(LENGTH, BLOCK, "confidence", 0.0)
    model, sampling = ToyDenoiser(end_ids=()), SamplingToy(end_ids=())
    assert run(model, config, marked(model)) == run(sampling, config, marked(sampling))
