"""What the decoding loop shows the strategy, what it leaves alone, where texts and edits end, what a lookahead costs.

`test_whole_decodes` compares whole texts.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import dgmark.decode.steps.proposals as proposals
from dgmark.decode import DecodeConfig, NoMark, Response, decode
from dgmark.decode.marks.rules import DecodeSide
from dgmark.decode.steps.canvas import Canvas, Commits, collect
from dgmark.decode.steps.decoding import decode_steps
from dgmark.decode.steps.proposals import Proposals, propose
from dgmark.decode.steps.selection import MOST_EDITING_STEPS
from dgmark.models.denoiser import ConfidenceSource
from dgmark.models.load import load_model
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support import tiny_checkpoints as tiny
from support.known_keys import bound_key
from support.plain_decoding import decode_slowly
from support.rules import rule_of_key

PROMPT = [2, 7, 5]
LENGTH, BLOCK = 18, 6
ENDLESS = ToyDenoiser(end_ids=())


@dataclass(frozen=True)
class RecordingToy(ToyDenoiser):
    """A toy that keeps each canvas it was called with, and its logits both as returned and in a copy."""

    canvases: list[Tensor] = field(default_factory=list)
    given: list[Tensor] = field(default_factory=list)
    copies: list[Tensor] = field(default_factory=list)

    def __call__(self, ids: Tensor) -> Tensor:
        logits = super().__call__(ids)
        self.canvases.append(ids.clone())
        self.given.append(logits)
        self.copies.append(logits.clone())
        return logits


RULES = {
    "unmarked": NoMark(),
    "marked": rule_of_key(bound_key("decoding", ENDLESS, rule="position", modulus=2, code_length=0)),
}


def run(
    model: ToyDenoiser,
    strategy: Any = "confidence",
    temperature: float = 1.0,
    rule: DecodeSide = RULES["unmarked"],
    seed: int = 0,
    prompt: list[int] = PROMPT,
    length: int = LENGTH,
    block_length: int = BLOCK,
) -> Response:
    config = DecodeConfig(length, block_length, strategy, temperature)
    return decode(model, torch.tensor([prompt]), config, rule, [seed])[0]


# ---- logits are not biased ----


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize(("strategy", "temperature"), [("confidence", 0.8), ("margin", 0.0)])
def test_the_strategy_sees_the_models_logits_bit_for_bit(
    strategy: Any, temperature: float, rule: DecodeSide, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Tensor] = []

    def spy(logits: Tensor, *rest: Any, **options: Any) -> Proposals:
        seen.append(logits.clone())
        return propose(logits, *rest, **options)

    monkeypatch.setattr(proposals, "propose", spy)
    model = RecordingToy(dtype=dtype, end_ids=())
    run(model, strategy, temperature, rule)

    assert len(seen) == LENGTH
    for step, (canvas, logits) in enumerate(zip(model.canvases, model.copies, strict=True)):
        start = len(PROMPT) + step // BLOCK * BLOCK
        masked = [i for i in range(start, start + BLOCK) if canvas[0, i] == model.mask_id]
        assert seen[step].dtype == dtype
        assert same_bits(seen[step], logits[0, masked])
        assert same_bits(model.given[step], logits)  # and nothing was written into the model's own tensor


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


# ---- rewards ----


@dataclass(frozen=True)
class SamplingToy(ToyDenoiser):
    """A toy whose rewards come from the distribution that is sampled."""

    confidence_source: ConfidenceSource = "sampling"


def test_rewards_come_from_the_distribution_that_the_model_states() -> None:
    toys = ENDLESS, SamplingToy(end_ids=())

    def written(config: DecodeConfig) -> list[Response]:
        return [decode(model, torch.tensor([PROMPT]), config, RULES["marked"], [0])[0] for model in toys]

    own, sampled = written(DecodeConfig(LENGTH, BLOCK, temperature=0.5, top_k=1))
    assert max(own.trace.reward) < 1
    assert {*sampled.trace.reward} == {1.0}
    greedy, other = written(DecodeConfig(LENGTH, BLOCK, temperature=0.0))
    assert greedy == other


# ---- what is committed ----


def test_a_mask_inside_the_prompt_is_left_alone() -> None:
    model = RecordingToy(end_ids=())
    prompt = [2, model.mask_id, model.mask_id]
    response = run(model, prompt=prompt)
    assert len(response.token_ids) == LENGTH
    assert all(canvas[0, :3].tolist() == prompt for canvas in model.canvases)


def test_the_prompts_tensor_is_not_written_to() -> None:
    prompts = torch.tensor([PROMPT])
    decode(ENDLESS, prompts, DecodeConfig(LENGTH, BLOCK), NoMark(), [0])
    assert prompts.tolist() == [PROMPT]


# ---- rows ----


def test_decoding_leaves_torchs_own_generator_alone() -> None:
    before = torch.get_rng_state()
    torch.manual_seed(1)
    first, state = run(ENDLESS), torch.get_rng_state()
    torch.manual_seed(2)
    assert run(ENDLESS) == first
    torch.manual_seed(1)
    assert torch.equal(torch.get_rng_state(), state)
    torch.set_rng_state(before)


# ---- the end of a text ----


def test_an_end_token_of_the_prompt_does_not_stop_the_response() -> None:
    model = ToyDenoiser(end_bias=-100.0)
    response = run(model, prompt=[1, 5, 1])
    assert len(response.token_ids) == LENGTH
    assert not response.ended


def test_each_of_several_end_ids_ends_a_text() -> None:
    model = ToyDenoiser(end_ids=(4, 9), end_bias=0.0)
    unstopped = run(replace(model, end_ids=()), seed=1, length=66)
    response = run(model, seed=1, length=66)
    assert response.ended
    assert response.token_ids == unstopped.token_ids[: len(response.token_ids)]
    assert unstopped.token_ids[len(response.token_ids)] in (4, 9)
    assert not {4, 9} & set(response.token_ids)


def test_a_text_may_end_at_once() -> None:
    model = RecordingToy(end_bias=100.0)
    response = run(model, "confidence", 0.0)
    assert response.token_ids == []
    assert response.ended
    assert len(model.canvases) == len(response.trace.step) < LENGTH


# ---- what a lookahead costs ----

PROMPTS = [PROMPT, [9, 9, 30], [25, 3, 11]]


def key_of(modulus: int = 2) -> WatermarkKey:
    return bound_key("lookahead", ENDLESS, rule="position", modulus=modulus, code_length=0)


def marked(modulus: int = 2) -> DecodeSide:
    return rule_of_key(key_of(modulus), len(PROMPTS))


def steps_of(
    model: ToyDenoiser, config: DecodeConfig, rule: DecodeSide, prompts: list[list[int]], seeds: list[int]
) -> tuple[list[Response], list[Commits]]:
    canvas = Canvas.after(torch.tensor(prompts), config.length, model.mask_id)
    steps = [*decode_steps(model, canvas, config, rule, seeds)]
    return collect(model, canvas, iter(steps)), steps


def config_of(strategy: Any = "confidence", temperature: float = 0.0, k: int = 3, **settings: Any) -> DecodeConfig:
    return DecodeConfig(LENGTH, BLOCK, strategy, temperature, lookahead=k, **settings)


@pytest.mark.parametrize("modulus", [3, 4])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_a_step_forwards_its_candidates_and_no_other_canvas(k: int, modulus: int) -> None:
    model = RecordingToy(end_ids=())
    _, steps = steps_of(model, config_of(k=k), marked(modulus), [PROMPT], [0])
    plain = decode_slowly(ENDLESS, PROMPT, config_of(k=k), key_of(modulus))
    # a block begins with a forward of its own, and its last step has none
    expected = []
    for step, tried in enumerate(plain.tried):
        begins, last = step % BLOCK == 0, step % BLOCK == BLOCK - 1
        expected.append(begins + (0 if last else tried))
    assert [commits.forwards for commits in steps] == expected
    assert sum(map(len, model.canvases)) == sum(expected)
    assert sum(expected) <= k * LENGTH
    # candidate sets of one member came up before a block's last step, and so did larger ones
    early = [tried for step, tried in enumerate(plain.tried) if step % BLOCK < BLOCK - 1]
    assert k == 1 or {1, 2} <= {*early}


def test_a_batch_forwards_each_rows_candidates_in_one_go() -> None:
    model = RecordingToy(end_ids=())
    _, steps = steps_of(model, config_of(k=3), marked(), PROMPTS, [0] * 3)
    alone = [steps_of(ENDLESS, config_of(k=3), marked(), [prompt], [0])[1] for prompt in PROMPTS]
    assert [s.forwards for s in steps] == [sum(s.forwards for s in row) for row in zip(*alone, strict=True)]
    assert len(model.canvases) == LENGTH


@pytest.mark.parametrize(
    ("strategy", "temperature"),
    [("confidence", 0.0), ("entropy", 0.0), ("margin", 0.0), ("confidence", 0.8), ("entropy", 1.2)],
)
def test_unmarked_text_is_the_same_with_any_lookahead_and_costs_the_same(strategy: Any, temperature: float) -> None:
    plain, plain_steps = steps_of(ENDLESS, config_of(strategy, temperature, 1), NoMark(), PROMPTS, [0, 1, 2])
    for k in (2, 5):
        config = config_of(strategy, temperature, k)
        responses, steps = steps_of(ENDLESS, config, NoMark(), PROMPTS, [0, 1, 2])
        assert responses == plain
        assert [s.forwards for s in steps] == [s.forwards for s in plain_steps]


# ---- a region with blocks that are full already ----


def test_a_block_without_masks_is_passed_over() -> None:
    model = ToyDenoiser(seed=3, end_ids=())
    holes = [True] * BLOCK + [False] * BLOCK + [True] * BLOCK
    ids = torch.tensor([PROMPT + [model.mask_id if hole else 6 for hole in holes]])
    canvas = Canvas(ids, 3, torch.tensor(holes), torch.arange(LENGTH))
    config = config_of(k=3)
    (response,) = collect(model, canvas, decode_steps(model, canvas, config, marked(), [0]))

    # the last block alone, after a text that is the rest: the same commits
    front = torch.tensor([PROMPT + response.token_ids[: 2 * BLOCK]])
    tail = Canvas(
        torch.cat([front, torch.full((1, BLOCK), model.mask_id)], 1),
        3 + 2 * BLOCK,
        torch.ones(BLOCK, dtype=torch.bool),
        torch.arange(2 * BLOCK, LENGTH),
    )
    (rest,) = collect(model, tail, decode_steps(model, tail, config, marked(), [0]))
    assert response.token_ids[2 * BLOCK :] == rest.token_ids
    assert response.trace.position[BLOCK:] == rest.trace.position


# ---- edits ----


def test_a_block_is_edited_until_nothing_changes_or_sixteen_times() -> None:
    def forwards(model: ToyDenoiser, threshold: float | None) -> int:
        canvas = Canvas.after(torch.tensor([PROMPT]), LENGTH, model.mask_id)
        config = DecodeConfig(LENGTH, BLOCK, edit_threshold=threshold)
        return sum(step.forwards for step in decode_steps(model, canvas, config, NoMark(), [0]))

    assert forwards(ENDLESS, None) == LENGTH
    assert forwards(ENDLESS, 0.0) == LENGTH + LENGTH // BLOCK * MOST_EDITING_STEPS
    assert forwards(replace(ENDLESS, spread=0.0), 0.9) == LENGTH + LENGTH // BLOCK  # one that finds nothing to edit


def test_with_the_exact_cache_of_llada_2_the_text_is_that_without_it(tmp_path: Path) -> None:
    tiny.write(tmp_path, "llada2")
    model = load_model(str(tmp_path), dtype="fp32")
    key = bound_key("edits", model)

    def text(**settings: Any) -> Response:
        config = DecodeConfig.of(model, length=64, steps=32, temperature=0.7, **settings)
        canvas = Canvas.after(torch.tensor([[5, 9, 7, 11]]), 64, model.mask_id)
        return decode(model, canvas.ids[:, :4], config, rule_of_key(key), [6])[0]

    plain = text(cache="none", edit_threshold=0.0)
    assert len(plain.trace.position) > len({*plain.trace.position}) + 10  # edits
    assert text(cache="prefix", edit_threshold=0.0).token_ids == plain.token_ids
    assert text(cache="none").token_ids == text(cache="prefix").token_ids != plain.token_ids
