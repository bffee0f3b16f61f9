"""What the decoding loop shows the strategy, what it must never commit, and where a text ends."""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from scipy.stats import chi2
from torch import Tensor

import dgmark.decode.proposals as proposals
from dgmark.decode import DecodeConfig, Response, Rule, Trace, decode
from dgmark.decode.proposals import Proposals, propose
from dgmark.models.toy import ToyDenoiser
from support.known_keys import bound_key
from support.rules import NothingMatches, rule_of_key

PROMPT = [2, 7, 5]
LENGTH, BLOCK = 18, 6
ENDLESS = ToyDenoiser(end_ids=())
WAYS = [
    ("random", 0.0),
    ("random", 1.3),
    ("confidence", 0.0),
    ("confidence", 0.7),
    ("entropy", 0.0),
    ("entropy", 1.0),
    ("margin", 0.0),
]


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
    "marked": rule_of_key(bound_key("decoding", ENDLESS, rule="position", modulus=2, code_length=0), rows=12),
    "empty": NothingMatches(),
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


@pytest.mark.parametrize("forbidden_bias", [20.0, 5000.0])
@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize(("strategy", "temperature"), WAYS)
def test_mask_and_padding_are_never_committed(
    strategy: Any, temperature: float, rule: Rule, forbidden_bias: float
) -> None:
    model = RecordingToy(forbidden_bias=forbidden_bias, end_ids=())
    response = run(model, strategy, temperature, rule)
    favoured = model.copies[0].argmax(-1)
    assert ((favoured == model.mask_id) | (favoured >= model.tokenizer.vocab_size)).all()
    assert len(response.token_ids) == LENGTH
    assert all(model.mask_id < token < model.tokenizer.vocab_size for token in response.token_ids)


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


def test_two_tokens_in_random_order_have_their_exact_joint_distribution() -> None:
    # Chi-square over all 9 texts of 2 tokens, at false-alarm rate 1e-6 (fixed seeds). Draws that were reused from one
    # step to the next, or that order and token shared, would pass any test of one token alone.
    model = ToyDenoiser(words=2, padding=1, spread=3.0, end_ids=())
    rows, permitted = 8_000, [1, 2, 3]

    def p(canvas: list[int], position: int) -> dict[int, float]:
        logits = model(torch.tensor([[2, *canvas]]))[0, 1 + position].tolist()
        total = sum(math.exp(logits[v]) for v in permitted)
        return {v: math.exp(logits[v]) / total for v in permitted}

    law = {
        (a, b): 0.5 * (p([0, 0], 0)[a] * p([a, 0], 1)[b] + p([0, 0], 1)[b] * p([0, b], 0)[a])
        for a in permitted
        for b in permitted
    }
    assert sum(law.values()) == pytest.approx(1)
    counts = dict.fromkeys(law, 0)
    for start in range(0, rows, 500):
        seeds = range(start, start + 500)
        for response in decode(model, torch.full((500, 1), 2), DecodeConfig(2, 2, "random"), Rule(), seeds):
            first, second = response.token_ids
            counts[first, second] += 1
    statistic = sum((counts[pair] - rows * q) ** 2 / (rows * q) for pair, q in law.items())
    assert min(law.values()) * rows > 20
    assert statistic < float(chi2.isf(1e-6, len(law) - 1))


# ---- the end of a text ----

END = 1


def complete(trace: Trace, commits: int) -> bool:
    """Whether the first `commits` commits hold an end token before which nothing is masked."""
    tokens = dict(zip(trace.position[:commits], trace.token_id[:commits], strict=True))
    return any(t == END and all(j in tokens for j in range(position)) for position, t in tokens.items())


@pytest.mark.parametrize("rule", [*RULES.values()][:2], ids=["unmarked", "marked"])
@pytest.mark.parametrize(("strategy", "temperature"), WAYS)
def test_stopping_at_the_end_token_changes_no_token_before_it(strategy: Any, temperature: float, rule: Rule) -> None:
    stopping = ToyDenoiser()
    config = DecodeConfig(LENGTH, BLOCK, strategy, temperature)
    prompts = torch.tensor([[2 + row, 5, 11] for row in range(12)])
    stopped = decode(stopping, prompts, config, rule, range(12))
    endless = decode(replace(stopping, end_ids=()), prompts, config, rule, range(12))
    assert {response.ended for response in stopped} == {True, False}
    for short, long in zip(stopped, endless, strict=True):
        steps = len(short.trace.step)
        assert short.trace == Trace(*(column[:steps] for column in vars(long.trace).values()))
        if short.ended:
            assert short.token_ids == long.token_ids[: long.token_ids.index(END)]
        else:
            assert short.token_ids == long.token_ids
            assert END not in long.token_ids


@pytest.mark.parametrize(("strategy", "temperature"), WAYS)
def test_a_row_stops_at_the_first_step_that_completes_its_text(strategy: Any, temperature: float) -> None:
    model = ToyDenoiser(end_bias=1.0)
    config = DecodeConfig(LENGTH, BLOCK, strategy, temperature)
    prompts = torch.tensor([[2 + row, 5, 11] for row in range(12)])
    waited = False
    for response in decode(model, prompts, config, Rule(), range(12)):
        commits = len(response.trace.position)
        assert not complete(response.trace, commits - 1)
        assert response.ended == complete(response.trace, commits)
        assert response.ended or commits == LENGTH
        # an end token with a gap before it does not stop the row
        waited |= END in response.trace.token_id[:-1]
    assert waited


def test_an_end_token_of_the_prompt_does_not_stop_the_response() -> None:
    model = ToyDenoiser(end_bias=-100.0)
    response = run(model, prompt=[END, 5, END])
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
