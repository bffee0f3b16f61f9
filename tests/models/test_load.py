"""Models: the LLaDA loader against a second forward written from the architecture, its refusals, and the toy."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaForCausalLM

from dgmark.checkpoint.folder import Checkpoint, find_checkpoint
from dgmark.errors import CheckpointFormat, ModelNotFound, SettingsError
from dgmark.models.denoiser import Denoiser
from dgmark.models.families.llada import RENAMINGS, llama_config
from dgmark.models.load import NetworkDenoiser, load_model
from dgmark.models.toy import ToyDenoiser
from dgmark.models.weights import native_name

CONFIG: dict[str, Any] = {
    "model_type": "llada",
    "d_model": 32,
    "n_heads": 4,
    "n_kv_heads": 2,
    "n_layers": 3,
    "mlp_hidden_size": 48,
    "vocab_size": 26,
    "embedding_size": 32,
    "weight_tying": False,
    "rope": True,
    "rope_theta": 500000.0,
    "rms_norm_eps": 1e-5,
    "layer_norm_type": "rms",
    "block_type": "llama",
    "activation_type": "silu",
    "max_sequence_length": 4096,
    "mask_token_id": 0,
}
BLOCK_TENSORS = ("attn_norm", "ff_norm", "q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj", "ff_out")

State = dict[str, Tensor]


def random_state(config: dict[str, Any], seed: int = 0) -> State:
    """Random weights in LLaDA's layout; the norms differ from 1 and from each other, so that no two can be swapped."""
    generator = torch.Generator().manual_seed(seed)
    width, hidden = config["d_model"], config["mlp_hidden_size"]
    kv_width = width // config["n_heads"] * config["n_kv_heads"]

    def matrix(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator) / math.sqrt(columns)

    def norm() -> Tensor:
        return 0.5 + torch.rand(width, generator=generator)

    state = {
        "model.transformer.wte.weight": matrix(config["embedding_size"], width) * math.sqrt(width),
        "model.transformer.ln_f.weight": norm(),
    }
    if not config["weight_tying"]:
        state["model.transformer.ff_out.weight"] = 3 * matrix(config["embedding_size"], width)
    for n in range(config["n_layers"]):
        block = {
            "attn_norm": norm(),
            "ff_norm": norm(),
            "q_proj": 2 * matrix(width, width),
            "k_proj": 2 * matrix(kv_width, width),
            "v_proj": matrix(kv_width, width),
            "attn_out": matrix(width, width),
            "ff_proj": matrix(hidden, width),
            "up_proj": matrix(hidden, width),
            "ff_out": matrix(width, hidden),
        }
        state |= {f"model.transformer.blocks.{n}.{name}.weight": tensor for name, tensor in block.items()}
    return state


@dataclass(frozen=True)
class Folder:
    """A checkpoint folder to be damaged."""

    path: Path
    state: State

    def write_config(self, **changes: Any) -> None:
        config = {name: value for name, value in (CONFIG | changes).items() if value is not ...}
        (self.path / "config.json").write_text(json.dumps(config))

    def write_weights(self, state: State) -> None:
        save_file(state, self.path / "model.safetensors")

    def load(self, dtype: str | torch.dtype = "fp32") -> NetworkDenoiser:
        return load_model(str(self.path), dtype=dtype, device="cpu")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A small untied LLaDA checkpoint with grouped heads and a padded vocabulary."""
    folder = Folder(tmp_path, random_state(CONFIG))
    folder.write_config()
    folder.write_weights(folder.state)
    ToyDenoiser().tokenizer.backend.save(str(tmp_path / "tokenizer.json"))
    return folder


@pytest.fixture(scope="module")
def story_ids(storyteller: NetworkDenoiser) -> Tensor:
    ids = storyteller.tokenizer.encode("The old woman looked up from the fire, and said nothing for a while.")
    return torch.tensor([ids + [storyteller.mask_id] * 20, ids[::-1] + [storyteller.mask_id] * 20])


# ---- LLaDA once more, from its description; shares nothing with the loader ----


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def rotated(x: Tensor, theta: float) -> Tensor:
    """Rotary embedding over the full head: pairs (i, i + half) turned by position / theta**(i / half)."""
    length, half = x.shape[-2], x.shape[-1] // 2
    angles = torch.arange(length)[:, None] / theta ** (torch.arange(half) / half)
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def llada_logits(state: State, config: dict[str, Any], ids: Tensor) -> Tensor:
    """Pre-norm blocks: bidirectional rotary attention, then SwiGLU; no biases, no mask, no shift."""
    heads, kv_heads = config["n_heads"], config["n_kv_heads"]
    eps, theta = config["rms_norm_eps"], config["rope_theta"]
    batch, length = ids.shape

    def weight(name: str) -> Tensor:
        return state[f"model.transformer.{name}.weight"].float()

    def split(x: Tensor, count: int) -> Tensor:
        return x.view(batch, length, count, -1).transpose(1, 2)

    x = weight("wte")[ids]
    for n in range(config["n_layers"]):
        h = rms_norm(x, weight(f"blocks.{n}.attn_norm"), eps)
        q = rotated(split(h @ weight(f"blocks.{n}.q_proj").T, heads), theta)
        k = rotated(split(h @ weight(f"blocks.{n}.k_proj").T, kv_heads), theta)
        v = split(h @ weight(f"blocks.{n}.v_proj").T, kv_heads)
        k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        attention = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1)
        x = x + (attention @ v).transpose(1, 2).reshape(batch, length, -1) @ weight(f"blocks.{n}.attn_out").T
        h = rms_norm(x, weight(f"blocks.{n}.ff_norm"), eps)
        gate = h @ weight(f"blocks.{n}.ff_proj").T
        x = x + (gate * torch.sigmoid(gate) * (h @ weight(f"blocks.{n}.up_proj").T)) @ weight(f"blocks.{n}.ff_out").T
    return rms_norm(x, weight("ln_f"), eps) @ weight("wte" if config["weight_tying"] else "ff_out").T


def random_ids(length: int, batch: int = 2) -> Tensor:
    return torch.randint(0, 26, (batch, length), generator=torch.Generator().manual_seed(3))


def test_the_built_in_model_is_llada_as_described(storyteller: NetworkDenoiser, story_ids: Tensor) -> None:
    checkpoint = find_checkpoint("storyteller")
    state = load_file(checkpoint.folder / "model.safetensors")
    expected = llada_logits(state, checkpoint.config, story_ids)
    assert (storyteller(story_ids) - expected).abs().max() < 1e-4


def test_an_untied_checkpoint_with_grouped_heads_is_llada_as_described(folder: Folder) -> None:
    ids = random_ids(40)
    expected = llada_logits(folder.state, CONFIG, ids)
    assert expected.std() > 1
    assert (folder.load()(ids) - expected).abs().max() < 1e-4


def test_a_tied_checkpoint_uses_its_embedding_as_output_matrix(folder: Folder) -> None:
    state = {name: t for name, t in folder.state.items() if name != "model.transformer.ff_out.weight"}
    folder.write_config(weight_tying=True)
    folder.write_weights(state)
    expected = llada_logits(state, CONFIG | {"weight_tying": True}, random_ids(40))
    assert (folder.load()(random_ids(40)) - expected).abs().max() < 1e-4


def test_without_n_kv_heads_every_head_has_its_own_keys(folder: Folder) -> None:
    config = CONFIG | {"n_kv_heads": CONFIG["n_heads"]}
    state = random_state(config)
    folder.write_config(n_kv_heads=None)
    folder.write_weights(state)
    assert (folder.load()(random_ids(40)) - llada_logits(state, config, random_ids(40))).abs().max() < 1e-4


def test_a_checkpoint_in_shards_is_the_same_model(folder: Folder) -> None:
    whole = folder.load()(random_ids(12))
    (folder.path / "model.safetensors").unlink()
    names = sorted(folder.state)
    shards = {"model-00001-of-00002.safetensors": names[::2], "model-00002-of-00002.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: folder.state[name] for name in part}, folder.path / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in shards.items() for name in part}}
    (folder.path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert torch.equal(folder.load()(random_ids(12)), whole)


@pytest.mark.parametrize("tied", [False, True])
def test_the_key_map_is_a_bijection_onto_the_llama_state_dict(tied: bool) -> None:
    config = CONFIG | {"weight_tying": tied}
    llada = {f"model.transformer.blocks.{n}.{name}.weight" for n in range(3) for name in BLOCK_TENSORS}
    llada |= {f"model.transformer.{name}.weight" for name in ("wte", "ln_f", "ff_out")}
    llama = set(LlamaForCausalLM(llama_config(Checkpoint("tiny", Path(), config))).state_dict())
    native = {native_name(name, RENAMINGS) for name in llada}
    assert len(native) == len(llada)
    assert native == llama


@pytest.mark.parametrize(
    "name",
    [
        "model.transformer.blocks.0.q_proj.bias",
        "model.transformer.blocks.0.q_norm.weight",
        "model.transformer.blocks.x.q_proj.weight",
        "model.transformer.wpe.weight",
        "model.layers.0.self_attn.q_proj.weight",
    ],
)
def test_a_tensor_outside_the_layout_is_refused(folder: Folder, name: str) -> None:
    tensor = folder.state["model.transformer.blocks.0.q_proj.weight"].clone()
    folder.write_weights(folder.state | {name: tensor})
    with pytest.raises(CheckpointFormat, match=native_name(name, RENAMINGS)):
        folder.load()


def test_a_later_token_changes_an_earlier_logit(storyteller: NetworkDenoiser, story_ids: Tensor) -> None:
    other = story_ids.clone()
    other[:, -1] = 100
    assert (storyteller(other)[:, 0] - storyteller(story_ids)[:, 0]).abs().max() > 1e-3


def test_the_models_of_this_package_meet_the_protocol(storyteller: NetworkDenoiser) -> None:
    denoisers: list[Denoiser] = [storyteller, ToyDenoiser()]
    for model in denoisers:
        logits = model(torch.tensor([[5, 6, model.mask_id]]))
        assert logits.shape == (1, 3, model.vocab_size)
        assert model.tokenizer.vocab_size <= model.vocab_size
        assert all(end < model.tokenizer.vocab_size for end in model.end_ids)


def test_the_built_in_model_says_what_it_is(storyteller: NetworkDenoiser) -> None:
    assert storyteller.name == "storyteller"
    assert (storyteller.mask_id, storyteller.end_ids) == (2, (0,))
    assert (storyteller.vocab_size, storyteller.context_length) == (8192, 320)
    assert storyteller.dtype == torch.float32
    assert not any(parameter.requires_grad for parameter in storyteller.network.parameters())
    assert not storyteller.network.training


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bf16", torch.bfloat16),
        ("bfloat16", torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
        ("fp16", torch.float16),
        ("float16", torch.float16),
        ("fp32", torch.float32),
        ("float32", torch.float32),
        (torch.float32, torch.float32),
    ],
    ids=str,
)
def test_the_dtype_is_that_of_the_weights_and_of_the_logits(
    folder: Folder, name: str | torch.dtype, dtype: torch.dtype
) -> None:
    model = folder.load(name)
    assert model.dtype == dtype
    assert {parameter.dtype for parameter in model.network.parameters()} == {dtype}
    assert model(random_ids(4)).dtype == dtype


def test_bf16_computes_rotary_angles_in_float32(folder: Folder) -> None:
    # frequencies rounded to bf16 would turn position 4000 by a wholly wrong angle
    positions = torch.arange(4000, 4096)
    exact = positions[:, None].double() / 500000.0 ** (torch.arange(4).double() / 4)
    cos, sin = folder.load("bf16").network.model.rotary_emb(torch.zeros(1, dtype=torch.bfloat16), positions[None])
    assert (cos[0, :, :4] - exact.cos()).abs().max() < 2**-8
    assert (sin[0, :, :4] - exact.sin()).abs().max() < 2**-8


def test_bf16_logits_are_near_those_of_float32(storyteller: NetworkDenoiser, story_ids: Tensor) -> None:
    rounded = load_model(dtype="bf16", device="cpu")(story_ids).float()
    exact = storyteller(story_ids)
    assert (rounded - exact).abs().mean() < 0.02 * exact.std()


def test_loading_leaves_torchs_own_generator_alone(folder: Folder) -> None:
    before = torch.get_rng_state()
    folder.load()
    assert torch.equal(torch.get_rng_state(), before)


# ---- refusals ----


def without_a_tensor(folder: Folder) -> None:
    folder.write_weights({name: t for name, t in folder.state.items() if "blocks.1.up_proj" not in name})


def with_another_layer(folder: Folder) -> None:
    extra = folder.state["model.transformer.blocks.0.q_proj.weight"].clone()
    folder.write_weights(folder.state | {"model.transformer.blocks.9.q_proj.weight": extra})


def with_a_foreign_tensor(folder: Folder) -> None:
    folder.write_weights(folder.state | {"model.transformer.wpe.weight": torch.zeros(2)})


def truncated(folder: Folder) -> None:
    weights = folder.path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])


def not_safetensors(folder: Folder) -> None:
    (folder.path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")


def of_other_sizes(folder: Folder) -> None:
    folder.write_config(mlp_hidden_size=40)


def index_not_json(folder: Folder) -> None:
    (folder.path / "model.safetensors").unlink()
    (folder.path / "model.safetensors.index.json").write_text("{")


def index_without_map(folder: Folder) -> None:
    (folder.path / "model.safetensors").unlink()
    (folder.path / "model.safetensors.index.json").write_text("{}")


def config_not_json(folder: Folder) -> None:
    (folder.path / "config.json").write_text("{'d_model': 32}")


def config_a_list(folder: Folder) -> None:
    (folder.path / "config.json").write_text("[]")


def config_without_width(folder: Folder) -> None:
    folder.write_config(d_model=...)


def config_without_context(folder: Folder) -> None:
    folder.write_config(max_sequence_length=...)


def config_with_heads_that_do_not_divide(folder: Folder) -> None:
    folder.write_config(n_heads=5, n_kv_heads=5)


def config_without_vocabulary(folder: Folder) -> None:
    folder.write_config(vocab_size=..., embedding_size=...)


def of_an_unknown_family(folder: Folder) -> None:
    folder.write_config(model_type="gpt2")


def of_no_family(folder: Folder) -> None:
    folder.write_config(model_type=...)


def with_another_norm(folder: Folder) -> None:
    folder.write_config(layer_norm_type="low_precision")


def with_alibi(folder: Folder) -> None:
    folder.write_config(rope=False)


def with_another_mask_id(folder: Folder) -> None:
    folder.write_config(mask_token_id=5)


def without_a_mask(folder: Folder) -> None:
    folder.write_config(mask_token_id=...)
    tokenizer = json.loads((folder.path / "tokenizer.json").read_text().replace("<|mdm_mask|>", "<|other|>"))
    (folder.path / "tokenizer.json").write_text(json.dumps(tokenizer))


def tokenizer_not_json(folder: Folder) -> None:
    (folder.path / "tokenizer.json").write_text("no tokenizer")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_a_tensor, r"missing \['model.layers.1.mlp.up_proj.weight'\]"),
        (with_another_layer, r"not expected \['model.layers.9.self_attn.q_proj.weight'\]"),
        (with_a_foreign_tensor, "wpe"),
        (truncated, "fetch the checkpoint again"),
        (not_safetensors, "fetch the checkpoint again"),
        (of_other_sizes, "does not fit the weights"),
        (index_not_json, "index.json"),
        (index_without_map, "index.json"),
        (config_not_json, "config.json is not valid JSON"),
        (config_a_list, "config.json does not hold a JSON object"),
        (config_without_width, "config.json lacks 'd_model'"),
        (config_without_context, "config.json lacks 'max_sequence_length'"),
        (config_with_heads_that_do_not_divide, "config"),
        (config_without_vocabulary, "config.json has no vocab_size"),
        (of_an_unknown_family, "model_type 'gpt2'; families that can be loaded: llada"),
        (of_no_family, "model_type None"),
        (with_another_norm, "layer_norm_type is 'low_precision', only 'rms' can be loaded"),
        (with_alibi, "rope is False"),
        (with_another_mask_id, "config.json says mask id 5, the tokenizer 0"),
        (without_a_mask, "names no mask token"),
        (tokenizer_not_json, "tokenizer.json is not a readable tokenizer"),
    ],
)
def test_a_checkpoint_that_is_not_llada_or_damaged_is_refused(
    folder: Folder, damage: Callable[[Folder], None], message: str
) -> None:
    damage(folder)
    with pytest.raises(CheckpointFormat, match=message) as caught:
        folder.load()
    assert str(folder.path) in str(caught.value)


@pytest.mark.parametrize("switch", ["alibi", "scale_logits", "input_emb_norm"])
def test_an_architecture_switch_that_the_llama_class_lacks_is_refused(folder: Folder, switch: str) -> None:
    folder.write_config(**{switch: False})
    folder.load()
    folder.write_config(**{switch: True})
    with pytest.raises(CheckpointFormat, match=switch):
        folder.load()


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_that_lacks_a_file_is_not_found_by_its_name(folder: Folder, missing: str) -> None:
    (folder.path / missing).unlink()
    with pytest.raises(ModelNotFound, match=missing):
        folder.load()


def test_a_shard_named_by_the_index_and_not_there_is_named(folder: Folder) -> None:
    (folder.path / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": dict.fromkeys(folder.state, "model-00001-of-00001.safetensors")}
    (folder.path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelNotFound, match="model-00001-of-00001"):
        folder.load()


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"metadata": {}, "weight_map": {"w": "../model-00001.safetensors"}}, "no safetensors file in the same folder"),
        (
            {"metadata": {}, "weight_map": {"w": "/tmp/model-00001.safetensors"}},
            "no safetensors file in the same folder",
        ),
        ({"metadata": {}, "weight_map": {"w": "pytorch_model.bin"}}, "no safetensors file in the same folder"),
        ({"metadata": {}, "weight_map": {}}, "is no index"),
        ({"weight_map": {"w": "model-00001.safetensors"}}, "is no index"),
    ],
)
def test_an_index_names_safetensors_files_of_its_folder(folder: Folder, index: Any, message: str) -> None:
    (folder.path / "model.safetensors").rename(folder.path / "model-00001.safetensors")
    (folder.path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointFormat, match=message):
        folder.load()


def test_an_output_matrix_in_addition_to_a_tie_is_refused(folder: Folder) -> None:
    folder.write_config(weight_tying=True)
    with pytest.raises(CheckpointFormat, match=r"transformer\.ff_out\.weight is the embedding, .* one more"):
        folder.load()


@pytest.mark.parametrize(("dtype", "name"), [(torch.int8, "I8"), (torch.float64, "F64"), (torch.float8_e4m3fn, "F8_")])
def test_number_formats_that_no_network_computes_in_are_refused(folder: Folder, dtype: torch.dtype, name: str) -> None:
    folder.write_weights(folder.state | {"model.transformer.ln_f.weight": torch.ones(32).to(dtype)})
    with pytest.raises(CheckpointFormat, match=rf"ln_f\.weight holds {name}"):
        folder.load()


def test_weights_in_a_pickle_are_not_loaded(folder: Folder) -> None:
    (folder.path / "model.safetensors").unlink()
    torch.save(folder.state, folder.path / "pytorch_model.bin")
    with pytest.raises(ModelNotFound, match="only safetensors weights are loaded"):
        folder.load()


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
    ids, prime = [4, 0, 2, 0], 2**31 - 1
    digest = sum((x + 1) * 48271**j for j, x in enumerate(ids)) + 11
    for i, row in enumerate(toy(torch.tensor([ids]))[0].tolist()):
        for v, logit in enumerate(row):
            h = digest + 69621 * i + 39373 * v
            for _ in range(2):
                h = (h**3 + h + 1) % prime
            bias = {0: -1.0, 1: 0.5, 7: -1.0, 8: -1.0}.get(v, 0.0)
            assert logit == 3.0 * (h / prime - 0.5) + bias


def test_the_toy_sees_each_token_and_its_place() -> None:
    toy = ToyDenoiser()
    logits = toy(torch.tensor([[2, 3, 4, 0], [3, 2, 4, 0], [2, 3, 4, 5]]))
    assert not torch.isclose(logits[0], logits[1]).any()
    assert not torch.isclose(logits[0], logits[2]).any()
    assert not torch.isclose(logits[0], replace(toy, seed=1)(torch.tensor([[2, 3, 4, 0]]))[0]).any()


def test_no_bit_of_a_toys_row_depends_on_the_batch() -> None:
    toy = ToyDenoiser()
    ids = torch.randint(0, 26, (37, 19), generator=torch.Generator().manual_seed(0))
    together = toy(ids)
    assert together.dtype == torch.float64
    assert all(torch.equal(toy(ids[i : i + 1])[0], together[i]) for i in range(37))


def test_the_toys_tokenizer_knows_words_mask_and_end() -> None:
    tokenizer = ToyDenoiser(words=3).tokenizer
    assert tokenizer.encode("w0 w2 <|mdm_mask|> w1<|endoftext|>") == [2, 4, 0, 3, 1]
    assert tokenizer.decode([2, 4, 1, 3]) == "w0 w2 w1"
    assert (tokenizer.vocab_size, set(tokenizer.special_ids), tokenizer.end_ids) == (5, {0, 1}, (1,))
