"""Llamas adapted to block diffusion: logits from their description, the exact cache, padding, decoding."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dgmark import WatermarkKey, WatermarkSpec, generate
from dgmark.errors import SettingsError
from dgmark.models.load import NetworkDenoiser, load_model
from support import tiny_checkpoints as tiny

CLOSE = 1e-4
CONFIG: tiny.Config = {
    "model_type": "block_llama",
    "architectures": ["BlockLlamaModelLM"],
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    "tie_word_embeddings": False,
    "vocab_size": tiny.VOCABULARY,
}


def llama_state() -> tiny.State:
    return {name: t for name, t in tiny.dream_state(tiny.CONFIGS["dream"]).items() if not name.endswith("bias")}


def described(state: tiny.State, ids: Tensor, start: int, stop: int) -> Tensor:
    """Logits of the block [start, stop): what is before it is read left to right, the block from both sides, what is
    behind it not at all; the output at i - 1 predicts position i."""
    ids = ids[:, :stop]
    place = torch.arange(stop)
    allowed = (place[None] <= place[:, None]) | (place >= start)[:, None]
    x = state["model.embed_tokens.weight"][ids]
    for n in range(3):
        w = {name.removeprefix(f"model.layers.{n}."): t for name, t in state.items() if f"model.layers.{n}." in name}
        h = tiny.rms_norm(x, w["input_layernorm.weight"], 1e-6)
        q, k, v = (h @ w[f"self_attn.{p}_proj.weight"].T for p in "qkv")
        q, k = tiny.rotated(tiny.heads_of(q, 4), 1000.0), tiny.rotated(tiny.heads_of(k, 2), 1000.0)
        x = x + tiny.attend(q, k, tiny.heads_of(v, 2), allowed) @ w["self_attn.o_proj.weight"].T
        h = tiny.rms_norm(x, w["post_attention_layernorm.weight"], 1e-6)
        x = (
            x
            + (tiny.silu(h @ w["mlp.gate_proj.weight"].T) * (h @ w["mlp.up_proj.weight"].T))
            @ w["mlp.down_proj.weight"].T
        )
    logits = tiny.rms_norm(x, state["model.norm.weight"], 1e-6) @ state["lm_head.weight"].T
    return torch.cat([logits[:, :1], logits], 1)[:, start:stop]


def random_ids(length: int, batch: int = 2, seed: int = 0) -> Tensor:
    return torch.randint(0, 64, (batch, length), generator=torch.Generator().manual_seed(seed))


def write(folder: Path) -> Path:
    tiny.write(folder, "dream", llama_state())
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> NetworkDenoiser:
    return load_model(str(write(tmp_path_factory.mktemp("block-llama"))), dtype="fp32", device="cpu")


@pytest.mark.parametrize("cache", ["none", "prefix"])
@pytest.mark.parametrize(("start", "stop"), [(0, 12), (1, 9), (20, 52), (39, 40)])
def test_it_is_what_its_description_says(model: NetworkDenoiser, cache: Any, start: int, stop: int) -> None:
    ids = random_ids(60)
    expected = described(llama_state(), ids, start, stop)
    assert expected.std() > 0.5
    assert (model.session(cache).begin(ids, start, stop) - expected).abs().max() < CLOSE


def test_its_traits_are_stated(model: NetworkDenoiser) -> None:
    traits = model.traits
    assert (model.family.name, traits.confidence_source, traits.block_origin, traits.pads) == (
        "block-llama",
        "model",
        "response",
        True,
    )
    assert (model.traits.defaults["block_length"], model.traits.defaults["cache"]) == (8, "prefix")
    assert (model.mask_id, model.end_ids, model.context_length) == (0, (1, 2), 256)


def test_the_cache_is_exact(model: NetworkDenoiser) -> None:
    """Block after block, candidates of a lookahead, rows that leave: the cached forwards are those without a cache."""
    ids = random_ids(70, batch=3)
    cached, plain = model.session("prefix"), model.session("none")
    for number, (start, stop) in enumerate([(10, 26), (26, 42), (50, 70)]):  # given tokens lie between the last two
        ids[:, start:stop] = model.mask_id
        expected = plain.begin(ids, start, stop)
        assert (cached.begin(ids, start, stop) - expected).abs().max() < CLOSE
        owner = torch.arange(len(ids)).repeat_interleave(torch.tensor([1, 3, 2])[: len(ids)])
        canvases = ids[owner].clone()
        canvases[:, start:stop] = random_ids(stop - start, len(owner), seed=number)
        expected = plain.step(canvases, owner, start, stop)
        assert (cached.step(canvases, owner, start, stop) - expected).abs().max() < CLOSE
        ids[:, start:stop] = random_ids(stop - start, len(ids), seed=10 + number)
        if number == 0:
            kept = torch.tensor([0, 2])
            cached.keep(kept)
            plain.keep(kept)
            ids = ids[kept]


@pytest.mark.parametrize("cache", ["none", "prefix"])
def test_padded_rows_answer_as_they_do_alone(model: NetworkDenoiser, cache: Any) -> None:
    padding = torch.tensor([0, 7, 3])
    ids = random_ids(48, batch=3)
    session = model.session(cache, padding)
    first = session.begin(ids, 30, 40)
    second = session.step(ids[[1, 1, 2]], torch.tensor([1, 1, 2]), 30, 40)
    session.keep(torch.tensor([1, 2]))
    third = session.begin(ids[1:], 40, 48)
    for row, columns in enumerate(padding.tolist()):
        alone = ids[row, None, columns:]
        expected = model.session("none").begin(alone, 30 - columns, 40 - columns)[0]
        assert (first[row] - expected).abs().max() < CLOSE
        if row:
            assert (second[row] - expected).abs().max() < CLOSE
            expected = model.session("none").begin(alone, 40 - columns, 48 - columns)[0]
            assert (third[row - 1] - expected).abs().max() < CLOSE


def test_a_dual_cache_and_going_back_are_refused(model: NetworkDenoiser) -> None:
    with pytest.raises(SettingsError, match="use prefix, it is exact"):
        model.session("dual")
    session = model.session("prefix")
    session.begin(random_ids(40), 20, 30)
    with pytest.raises(SettingsError, match="position 10 is before text that is finished up to 20"):
        session.begin(random_ids(40), 10, 20)


@pytest.mark.parametrize("lookahead", [1, 3])
def test_the_cache_changes_no_text(model: NetworkDenoiser, lookahead: int) -> None:
    spec = WatermarkSpec(
        table_size=tiny.VOCABULARY, tokenizer="tiny", tokenizer_fingerprint=model.tokenizer.fingerprint
    )
    key = WatermarkKey(spec=spec, key_id="test", secret=bytes(range(32)))
    prompts = [random_ids(9, 1, seed)[0].tolist() for seed in range(3)]
    texts = [
        [
            one.token_ids
            for one in generate(
                model, prompts, key=key, length=24, block_length=8, lookahead=lookahead, cache=cache, seed=5
            )
        ]
        for cache in ("none", "prefix")
    ]
    assert texts[0] == texts[1]
    assert any(texts[0])
