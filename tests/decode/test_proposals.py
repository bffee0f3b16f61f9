"""Proposals: the sampler's distribution, the rewards of each strategy, ties, and ids that must never be proposed."""

import math
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from dgmark.decode import DecodeConfig, propose
from dgmark.decode.steps.proposals import draw, filter_weights
from support.cases import cases
from support.plain_decoding import drawn_from

ALMOST_ONE = math.nextafter(1.0, 0.0)

LOGITS = [1.2, -0.5, 3.0, 0.0, 2.1, 2.1, -2.0, 2.8, 1.0, 9.0]
FORBIDDEN = [3, 9]


def settings(
    strategy: Any = "confidence", temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None
) -> DecodeConfig:
    return DecodeConfig(8, 8, strategy, temperature, top_k, top_p)


def uniforms(count: int, seed: int = 0) -> Tensor:
    return torch.rand(count, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def softmax(row: list[float]) -> list[float]:
    weights = [math.exp(x - max(row)) for x in row]
    return [w / sum(weights) for w in weights]


def law(temperature: float, top_k: int | None = None, top_p: float | None = None) -> list[float]:
    """The distribution that a candidate must have, from its definition."""
    weights = softmax([-math.inf if v in FORBIDDEN else x / temperature for v, x in enumerate(LOGITS)])
    if top_k is not None:
        kth = sorted(weights, reverse=True)[top_k - 1]
        weights = [w if w >= kth else 0.0 for w in weights]
    if top_p is not None:
        total, kept = sum(weights), set[int]()
        for v in sorted(range(len(weights)), key=lambda v: (-weights[v], v)):
            if sum(weights[u] for u in kept) >= top_p * total:
                break
            kept.add(v)
        weights = [w if v in kept else 0.0 for v, w in enumerate(weights)]
    return [w / sum(weights) for w in weights]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("tempered", [False, True], ids=["the model's own", "sampled"])
@pytest.mark.parametrize("strategy", ["confidence", "entropy", "random"])
@pytest.mark.parametrize("way", cases(__file__, "ways"))
def test_a_proposal_is_that_of_its_definition(
    way: dict[str, Any], strategy: Any, tempered: bool, dtype: torch.dtype
) -> None:
    """The first uniform draws the candidate by its law; the second is the reward of strategy "random".

    Other rewards are of the model's own distribution, which is neither tempered nor filtered and over the forbidden ids
    too, or of the sampled one.
    """
    count, given = 500, uniforms(500)
    logits = torch.tensor(LOGITS, dtype=dtype).expand(count, -1)
    found = propose(logits, given, torch.tensor(FORBIDDEN), settings(strategy, **way), tempered=tempered)
    shares = law(**way)
    tokens = [drawn_from(dict(enumerate(shares)), uniform) for uniform in given[:, 0].tolist()]
    assert found.tokens.tolist() == tokens
    rewarded = shares if tempered else softmax(LOGITS)
    rewards = {
        "confidence": [rewarded[token] for token in tokens],
        "entropy": [sum(q * math.log(q) for q in rewarded if q)] * count,
        "random": given[:, 1].tolist(),
    }
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert found.rewards.tolist() == pytest.approx(rewards[strategy], rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("kind", ["sharp", "flat", "equal", "few"])
@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.9, 0.999])
def test_top_p_is_that_of_a_full_sort(kind: str, top_p: float) -> None:
    """Against a stable sort of the whole vocabulary, of which the filter sorts only what holds the share."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(12, 5000, generator=generator) * {"sharp": 8.0, "flat": 0.1}.get(kind, 1.0)
    if kind in ("equal", "few"):
        logits = (3 * logits).round()
    if kind == "few":
        logits[:, 40:] = float("-inf")
    weights = logits.softmax(-1)
    ordered, order = weights.sort(dim=-1, descending=True, stable=True)
    mass = ordered.cumsum(-1, dtype=torch.float64)
    ordered = ordered.where(mass - ordered < top_p * mass[:, -1:], 0.0)
    expected = torch.zeros_like(weights).scatter(-1, order, ordered)
    assert torch.equal(filter_weights(weights, None, top_p), expected)


@given(
    st.lists(
        st.sampled_from([0.0, 0.0, 1e-300, 1e-20, 0.1, 1 / 3, 0.7, 5.0]) | st.floats(0, 1e6), min_size=1, max_size=12
    ).filter(any),
    st.sampled_from([0.0, ALMOST_ONE, 0.5]) | st.floats(0, 1, exclude_max=True),
)
@example([0.0, 5e-324, 0.0], ALMOST_ONE)  # here u * total rounds up to total
def test_no_token_of_weight_zero_is_ever_drawn(weights: list[float], uniform: float) -> None:
    token = int(draw(torch.tensor([weights], dtype=torch.float64), torch.tensor([uniform], dtype=torch.float64)))
    assert weights[token] > 0


@pytest.mark.parametrize("strategy", ["confidence", "entropy"])
def test_an_impossible_token_leaves_the_rewards_finite(strategy: Any) -> None:
    logits = torch.tensor([[0.0, -math.inf, 1.0, -math.inf]])
    found = propose(logits, uniforms(1), torch.tensor([0]), settings(strategy))
    assert found.tokens.tolist() == [2]
    assert found.rewards.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_greedy_ties_go_to_the_lowest_permitted_id(dtype: torch.dtype) -> None:
    logits = torch.zeros(3, 5000, dtype=dtype)
    logits[1, [4000, 17, 3000]] = 2.5
    logits[2, [4000, 0, 3000]] = 2.5
    found = propose(logits, uniforms(3), torch.tensor([0]), settings(temperature=0))
    assert found.tokens.tolist() == [1, 17, 3000]


@pytest.mark.parametrize("strategy", ["random", "confidence", "entropy", "margin"])
@pytest.mark.parametrize(
    ("dtype", "reward_dtype"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_rewards_are_computed_in_float32_or_better(
    strategy: Any, dtype: torch.dtype, reward_dtype: torch.dtype
) -> None:
    logits = torch.tensor([LOGITS], dtype=dtype)
    found = propose(logits, uniforms(1), torch.tensor(FORBIDDEN), settings(strategy, 0))
    cast_first = propose(logits.to(reward_dtype), uniforms(1), torch.tensor(FORBIDDEN), settings(strategy, 0))
    assert found.rewards.dtype == reward_dtype
    assert torch.equal(found.rewards, cast_first.rewards)
