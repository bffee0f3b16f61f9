"""What the decoding loop shows the strategy, what it leaves alone, and where a text ends.

`test_whole_decodes` compares whole texts.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor

import dgmark.decode.proposals as proposals
from dgmark.decode import DecodeConfig, Response, Rule, decode
from dgmark.decode.proposals import Proposals, propose
from dgmark.models.toy import ToyDenoiser
from support.known_keys import bound_key
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
    "unmarked": Rule(),
    "marked": rule_of_key(bound_key("decoding", ENDLESS, rule="position", modulus=2, code_length=0)),
}


def run(
    model: ToyDenoiser,
    strategy: Any = "confidence",
    temperature: float = 1.0,
    rule: Rule = RULES["unmarked"],
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
    strategy: Any, temperature: float, rule: Rule, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
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


# ---- what is committed ----


def test_a_mask_inside_the_prompt_is_left_alone() -> None:
    model = RecordingToy(end_ids=())
    prompt = [2, model.mask_id, model.mask_id]
    response = run(model, prompt=prompt)
    assert len(response.token_ids) == LENGTH
    assert all(canvas[0, :3].tolist() == prompt for canvas in model.canvases)


def test_the_prompts_tensor_is_not_written_to() -> None:
    prompts = torch.tensor([PROMPT])
    decode(ENDLESS, prompts, DecodeConfig(LENGTH, BLOCK), Rule(), [0])
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
