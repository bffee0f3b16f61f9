"""LLaDA 2.2: the experts that a block admits, and what sessions show its router."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Glm4MoeConfig

from dgmark.checkpoint.families import LLADA2, LLADA22
from dgmark.errors import SettingsError
from dgmark.models.denoiser import CacheMode, traits_of
from dgmark.models.families.llada22 import BlockRouter
from dgmark.models.load import NetworkDenoiser, load_model
from support import tiny_checkpoints as tiny
from support.plain_edits import GOLDEN, number

ROUTINGS = [case for case in GOLDEN if case["kind"] == "routing"]


def router_of(experts: int, used: int, block: int, capacity: int) -> BlockRouter:
    """A router whose hidden states are the logits, once its matrix is 1."""
    config = Glm4MoeConfig(
        hidden_size=experts, n_routed_experts=experts, num_experts_per_tok=used, routed_scaling_factor=2.5
    )
    own: Any = config
    own.block_size, own.expert_capacity = block, capacity
    return BlockRouter(config)


@pytest.mark.parametrize("case", ROUTINGS, ids=lambda case: case["name"])
def test_a_block_admits_experts_as_the_reference_does(case: dict[str, Any]) -> None:
    count, block, seed = case["experts"], case["block"], case["seed"]
    router = router_of(count, case["k"], block, case["capacity"])
    router.weight.data = torch.eye(count)
    router.e_score_correction_bias.data = torch.tensor([0.4 * number(seed, "bias", e) - 0.2 for e in range(count)])
    logits = torch.tensor([[8 * number(seed, t, e) - 4 for e in range(count)] for t in range(case["tokens"])])
    whole = len(logits) // block * block  # the sessions fill the last block
    _, weights, chosen = router(logits[None, :whole])
    assert chosen.tolist() == case["out"]["ids"][:whole]
    assert torch.allclose(weights, torch.tensor(case["out"]["weights"])[:whole], atol=1e-5)


def test_of_equal_experts_the_lower_goes_first() -> None:
    router = router_of(300, 8, 4, 40)
    _, _, chosen = router(torch.zeros(2, 8, 300))
    assert torch.equal(chosen, torch.arange(8).expand(16, 8))


# --- the network ---


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> tuple[NetworkDenoiser, tiny.State]:
    folder = tmp_path_factory.mktemp("llada22")
    state = tiny.write(folder, "llada2.2")
    return tiny.load(folder), state


@pytest.mark.parametrize("prompt", [1, 31, 32, 33, 65])
@pytest.mark.parametrize("cache", ["none", "prefix"])
@pytest.mark.parametrize("batch", [1, 4])
def test_logits_of_each_block_are_those_of_a_second_forward(
    state: tuple[NetworkDenoiser, tiny.State], prompt: int, cache: CacheMode, batch: int
) -> None:
    """Block after block, with several canvases for a row; routing by groups would give others."""
    model, tensors = state
    config = tiny.CONFIGS["llada2.2"]
    grouped = {name: value for name, value in config.items() if name != "expert_capacity"}
    session = model.session(cache)
    ids = torch.cat([tiny.random_ids(prompt, batch), torch.zeros(batch, 70, dtype=torch.long)], 1)

    def expected(canvases: Tensor, fields: dict[str, Any] = config) -> Tensor:
        return tiny.window_logits("llada2.2", tensors, fields, canvases, start, stop)

    edges = [prompt, *range(prompt // 32 * 32 + 32, prompt + 70, 32), prompt + 70]
    for start, stop in pairwise(edges):
        assert (session.begin(ids, start, stop) - expected(ids)).abs().max() < 1e-4
        assert (expected(ids, grouped) - expected(ids)).abs().max() > 0.1
        owner = torch.arange(batch).repeat_interleave(2)
        canvases = ids[owner].clone()
        canvases[:, start:stop] = tiny.random_ids(stop - start, len(owner), seed=stop)
        assert (session.step(canvases, owner, start, stop) - expected(canvases)).abs().max() < 1e-4
        ids[:, start:stop] = tiny.random_ids(stop - start, batch, seed=start)


@pytest.mark.parametrize("place", ["both", "rope_parameters", "top"])
def test_rotary_frequencies_are_read_where_they_stand(
    state: tuple[NetworkDenoiser, tiny.State], tmp_path: Path, place: str
) -> None:
    model, tensors = state
    top: dict[str, Any] = {"rope_theta": 1e6, "partial_rotary_factor": 0.5}
    nested = {"rope_type": "default", **top}
    changes = dict.fromkeys(top, ...) if place == "rope_parameters" else top
    if place != "top":
        changes = changes | {"rope_parameters": nested}
    tiny.write(tmp_path, "llada2.2", tensors, **changes)
    ids = tiny.random_ids(64)
    assert torch.equal(tiny.load(tmp_path)(ids), model(ids))


def test_the_family_follows_from_the_experts_that_a_block_admits(
    state: tuple[NetworkDenoiser, tiny.State], tmp_path: Path
) -> None:
    model, _ = state
    assert model.family is LLADA22
    assert traits_of(model).edit_ids == (62, 63)
    tiny.write(tmp_path, "llada2", expert_capacity=0)
    other = tiny.load(tmp_path)
    assert other.family is LLADA2
    assert traits_of(other).edit_ids is None


def test_mlx_does_not_take_it_for_llada_2(tmp_path: Path) -> None:
    tiny.write(tmp_path, "llada2.2")
    with pytest.raises(SettingsError, match=r"of the families llada2 and nemotron, not llada2\.2"):
        load_model(tmp_path, device="mlx")
