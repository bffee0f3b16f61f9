"""`load_model`: LLaDA and the built-in model as described, number formats, refusals; and the toy."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dgmark.checkpoint.folder import Checkpoint, find_checkpoint
from dgmark.errors import CheckpointFormat, ModelNotFound, SettingsError
from dgmark.models.architecture import causal_config, stated_theta
from dgmark.models.language_model import LanguageModel
from dgmark.models.load import NetworkDenoiser, load_model
from dgmark.models.toy import ToyDenoiser
from support import tiny_checkpoints as tiny
from support.tiny_checkpoints import load, random_ids

CONFIG = tiny.CONFIGS["llada"]
Q_PROJ = "model.transformer.blocks.{}.q_proj.weight"


@pytest.fixture
def state(tmp_path: Path) -> tiny.State:
    """The weights of a small untied LLaDA with grouped heads and a padded vocabulary, which is written to a folder."""
    return tiny.write(tmp_path, "llada")


@pytest.fixture(scope="module")
def story_ids(storyteller: NetworkDenoiser) -> Tensor:
    ids = storyteller.tokenizer.encode("The old woman looked up from the fire, and said nothing for a while.")
    return torch.tensor([ids + [storyteller.mask_id] * 20, ids[::-1] + [storyteller.mask_id] * 20])


def test_the_built_in_model_is_llada_as_described(storyteller: NetworkDenoiser, story_ids: Tensor) -> None:
    checkpoint = find_checkpoint("storyteller")
    state = load_file(checkpoint.folder / "model.safetensors")
    expected = tiny.decoder_logits(state, checkpoint.config, story_ids)
    assert (storyteller(story_ids) - expected).abs().max() < 1e-4


@pytest.mark.parametrize("changes", [{}, {"weight_tying": True}, {"n_kv_heads": None}], ids=str)
def test_a_checkpoint_is_llada_as_described(tmp_path: Path, changes: dict[str, Any]) -> None:
    state = tiny.write(tmp_path, "llada", **changes)
    expected = tiny.decoder_logits(state, CONFIG | changes, random_ids(40))
    assert expected.std() > 1
    assert (load(tmp_path)(random_ids(40)) - expected).abs().max() < 1e-4


def test_the_built_in_model_says_what_it_is(storyteller: NetworkDenoiser) -> None:
    assert storyteller.name == "storyteller"
    assert (storyteller.mask_id, storyteller.end_ids) == (2, (0,))
    assert (storyteller.vocab_size, storyteller.context_length) == (8192, 320)
    assert storyteller.dtype == torch.float32
    assert not any(parameter.requires_grad for parameter in storyteller.network.parameters())
    assert not storyteller.network.training


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_the_dtype_is_that_of_the_weights_and_of_the_logits(
    tmp_path: Path, state: tiny.State, dtype: torch.dtype
) -> None:
    long = str(dtype).removeprefix("torch.")
    short = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}[long]
    for name in (short, long, dtype):
        model = load(tmp_path, name)
        assert model.dtype == dtype
        assert {parameter.dtype for parameter in model.network.parameters()} == {dtype}
    assert model(random_ids(4)).dtype == dtype


@pytest.mark.parametrize("amx", [True, False])
def test_the_default_dtype_is_that_of_the_environment_else_that_of_the_device(
    monkeypatch: pytest.MonkeyPatch, amx: bool
) -> None:
    monkeypatch.setattr("dgmark.models.load.has_amx", lambda: amx)
    monkeypatch.delenv("DGMARK_DTYPE", raising=False)
    assert load_model(device="cpu").dtype == (torch.bfloat16 if amx else torch.float32)
    monkeypatch.setenv("DGMARK_DTYPE", "fp16")
    assert (load_model(device="cpu").dtype, LanguageModel(device="cpu").dtype) == (torch.float16, "float16")
    assert load_model(device="cpu", dtype="fp32").dtype == torch.float32
    monkeypatch.setenv("DGMARK_DTYPE", "fp8")
    with pytest.raises(SettingsError, match="the environment variable DGMARK_DTYPE: 'fp8' is not one of: bf16"):
        load_model(device="cpu")


def test_loading_leaves_torchs_own_generator_alone(tmp_path: Path, state: tiny.State) -> None:
    before = torch.get_rng_state()
    load(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)


# ---- refusals ----


def truncated(weights: Path) -> None:
    weights.write_bytes(weights.read_bytes()[:-1000])


def replaced(name: str, content: str) -> Callable[[Path], None]:
    """Write a file beside the weights; an index in place of them."""

    def damage(weights: Path) -> None:
        if "index" in name:
            weights.unlink()
        (weights.parent / name).write_text(content)

    return damage


def without_a_mask(weights: Path) -> None:
    path = weights.parent / "tokenizer.json"
    path.write_text(path.read_text().replace("<|mdm_mask|>", "<|other|>"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (truncated, "fetch the checkpoint again"),
        (
            replaced("model.safetensors", "version https://git-lfs.github.com/spec/v1"),
            "safetensors is a pointer of git-lfs",
        ),
        (replaced("tokenizer.json", "version https://git-lfs.github.com/spec/v1"), "json is a pointer of git-lfs"),
        (replaced("model.safetensors.index.json", "{"), "index.json"),
        (replaced("config.json", "{'d_model': 32}"), "config.json is not valid JSON"),
        (replaced("config.json", "[]"), "config.json does not hold a JSON object"),
        (without_a_mask, "names no mask token"),
        (replaced("tokenizer.json", "no tokenizer"), "tokenizer.json is not a readable tokenizer"),
    ],
)
def test_a_damaged_file_is_refused(
    tmp_path: Path, state: tiny.State, damage: Callable[[Path], None], message: str
) -> None:
    damage(tmp_path / "model.safetensors")
    with pytest.raises(CheckpointFormat, match=message) as caught:
        load(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_shards_without_their_index_are_named(tmp_path: Path, state: tiny.State) -> None:
    (tmp_path / "model.safetensors").rename(tmp_path / "model-00001-of-00001.safetensors")
    with pytest.raises(
        ModelNotFound, match=r"lacks model.safetensors.index.json, which says what model-00001-of-00001"
    ):
        load(tmp_path)


@pytest.mark.parametrize(
    ("config", "theta"),
    [
        ({}, None),
        ({"rope_theta": 5e5}, 5e5),
        ({"rope_theta": 5e5, "rope_parameters": {"rope_type": "default"}}, 5e5),
        ({"rope_theta": 500000, "rope_parameters": {"rope_theta": 5e5}}, 5e5),
        ({"rope_parameters": {"rope_theta": 5e5}}, 5e5),
    ],
)
def test_the_rotary_base_is_read_in_both_places(config: dict[str, Any], theta: float | None) -> None:
    assert stated_theta(Checkpoint("it", Path("it"), config)) == theta
    contradiction = {"rope_theta": 1e4, "rope_parameters": {"rope_theta": 5e5}}
    with pytest.raises(CheckpointFormat, match=r"rope_theta as 10000.0 and as 500000.0"):
        stated_theta(Checkpoint("it", Path("it"), contradiction))
    qwen = {"model_type": "qwen3", "rope_parameters": {"rope_type": "default"}, "rope_theta": 5e5}
    assert causal_config(Checkpoint("it", Path("it"), qwen)).rope_parameters["rope_theta"] == 5e5


@pytest.mark.parametrize("stored", [torch.int8, torch.float8_e4m3fn, torch.float64], ids=str)
def test_weights_in_another_number_format_are_refused(tmp_path: Path, state: tiny.State, stored: torch.dtype) -> None:
    name = Q_PROJ.format(0)
    save_file(state | {name: state[name].to(stored)}, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointFormat, match=rf"{name} holds [IF]\S+; only BF16, F16 and F32 are loaded"):
        load(tmp_path)


def test_a_tensor_under_both_its_names_is_refused(tmp_path: Path, state: tiny.State) -> None:
    again = {"model.layers.0.self_attn.q_proj.weight": torch.zeros_like(state[Q_PROJ.format(0)])}
    save_file(state | again, tmp_path / "model.safetensors")
    with pytest.raises(CheckpointFormat, match=r"holds model\.\S*q_proj.weight a second time"):
        load(tmp_path)


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_that_lacks_a_file_is_not_found_by_its_name(tmp_path: Path, state: tiny.State, missing: str) -> None:
    (tmp_path / missing).unlink()
    with pytest.raises(ModelNotFound, match=missing):
        load(tmp_path)


def test_a_damaged_or_missing_shard_is_named(tmp_path: Path, state: tiny.State) -> None:
    tiny.write_shards(tmp_path, state)
    second = tmp_path / "model-00002-of-00002.safetensors"
    truncated(second)
    with pytest.raises(CheckpointFormat, match="fetch the checkpoint again"):
        load(tmp_path)
    second.unlink()
    with pytest.raises(ModelNotFound, match=r"lacks model-00002-of-00002"):
        load(tmp_path)


@pytest.mark.parametrize("shards", [{"w": "../model-00001.safetensors"}, {"w": "pytorch_model.bin"}, {}, None])
def test_an_index_names_safetensors_files_of_its_folder(tmp_path: Path, state: tiny.State, shards: Any) -> None:
    (tmp_path / "model.safetensors").rename(tmp_path / "model-00001.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    with pytest.raises(CheckpointFormat, match="is not an index of safetensors files in its folder"):
        load(tmp_path)


def test_an_unknown_model_is_not_found() -> None:
    with pytest.raises(ModelNotFound, match=r"'gpt-5'.*\(storyteller, narrator\)"):
        load_model("gpt-5")


@pytest.mark.parametrize("dtype", ["fp8", "", "float64", torch.float64, torch.int8], ids=str)
def test_an_unknown_dtype_is_refused_with_those_that_are_known(dtype: str | torch.dtype) -> None:
    known = "bf16, bfloat16, fp16, float16, fp32, float32"
    with pytest.raises(SettingsError, match=f"dtype '{dtype}' is not one of: {known}"):
        load_model(dtype=dtype)


@pytest.mark.parametrize("device", ["abacus", "cuda:99", ""])
def test_a_missing_device_is_refused(device: str) -> None:
    with pytest.raises(SettingsError, match=r"device .* cannot be used here"):
        load_model(device=device)


# ---- the toy ----


def test_the_toy_is_the_formula_of_its_docstring() -> None:
    toy = ToyDenoiser(words=5, padding=2, seed=11, spread=3.0, end_bias=0.5, forbidden_bias=-1.0)
    canvases, prime = [[4, 0, 2, 0], [1, 6, 0, 3]], 2**31 - 1
    logits = toy(torch.tensor(canvases))
    assert logits.dtype == torch.float64
    for row, i, v in itertools.product(range(2), range(4), range(9)):
        h = sum((x + 1) * 48271**j for j, x in enumerate(canvases[row])) + 11 + 69621 * i + 39373 * v
        for _ in range(2):
            h = (h**3 + h + 1) % prime
        bias = {0: -1.0, 1: 0.5, 7: -1.0, 8: -1.0}.get(v, 0.0)
        assert logits[row, i, v] == 3.0 * (h / prime - 0.5) + bias
