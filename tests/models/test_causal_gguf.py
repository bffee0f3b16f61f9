"""Language models from GGUF files: the surprisals of the same weights in safetensors, and what is refused."""

import pickle
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, dequantize, quantize
from huggingface_hub import constants
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2MoeConfig,
    Qwen2MoeForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from dgmark import Detector, LanguageModel
from dgmark.checkpoint.tokenizer import read_tokenizer
from dgmark.errors import CheckpointFormat, ModelNotFound, SettingsError
from dgmark.models.surprisal_models import load_surprisal_model
from support import tiny_gguf
from support.cases import cases
from support.known_keys import known_key, weight_figures
from support.marked_texts import marked_text

TEXTS = ["the cat sat on a mat, and the hat", "", "naïve — 1234", "a the " * 150]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def randomized(network: Any) -> Any:
    """The network with large random weights, so that each of its parts matters."""
    torch.manual_seed(3)
    with torch.no_grad():
        for name, param in network.named_parameters():
            param.copy_(0.5 + torch.rand_like(param) if "norm" in name else 0.3 * torch.randn_like(param))
    return network.train(False)


def qwen(config: type[Any], network: type[Any], **more: Any) -> Any:
    sizes = tiny_gguf.config().to_dict()
    kept = {name: sizes[name] for name in ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers")}
    kept |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-5}
    kept |= {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}, "tie_word_embeddings": False}
    return randomized(network(config(**{**kept, **more})))


def stretched_llama() -> Any:
    """A Llama whose rotary frequencies are those of Llama 3.1."""
    config = tiny_gguf.config()
    config.tie_word_embeddings = False
    config.rope_parameters = {
        "rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    return randomized(type(tiny_gguf.llama())(config))


def rotary_factors(network: Any) -> dict[str, Any]:
    """By what the frequencies of this Llama are smaller than without stretching: what such a file holds."""
    width = network.config.hidden_size // network.config.num_attention_heads
    plain = 5000.0 ** -(torch.arange(0, width, 2) / width)
    stretched, _ = ROPE_INIT_FUNCTIONS["llama3"](network.config, torch.device("cpu"))
    return {"rope_freqs.weight": (plain / stretched).numpy()}


# what the files of these state beside
FURTHER: dict[str, dict[str, Any]] = {
    "gemma2": {
        "gemma2.attention.sliding_window": 16,
        "gemma2.attn_logit_softcapping": 50.0,
        "gemma2.final_logit_softcapping": 30.0,
    },
    "gemma3": {"gemma3.attention.sliding_window": 16},
    "qwen2moe": {"qwen2moe.expert_shared_feed_forward_length": 48},
}
GEMMA3: dict[str, Any] = {
    "rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "default", "rope_theta": 5000.0},
    }
}

NETWORKS: dict[str, tuple[str, Callable[[], Any]]] = {
    "llama": ("llama", tiny_gguf.llama),
    "llama 3.1": ("llama", stretched_llama),
    "qwen2": ("qwen2", lambda: qwen(Qwen2Config, Qwen2ForCausalLM)),
    "qwen3": ("qwen3", lambda: qwen(Qwen3Config, Qwen3ForCausalLM, head_dim=24)),
    "qwen3moe": (
        "qwen3moe",
        lambda: qwen(
            Qwen3MoeConfig, Qwen3MoeForCausalLM,
            head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
        ),
    ),
    "qwen2moe": (
        "qwen2moe",
        lambda: qwen(
            Qwen2MoeConfig, Qwen2MoeForCausalLM, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
            shared_expert_intermediate_size=48,
        ),
    ),
    "gemma2": (
        "gemma2",
        lambda: qwen(Gemma2Config, Gemma2ForCausalLM, head_dim=16, sliding_window=16, tie_word_embeddings=True),
    ),
    "gemma3": (
        "gemma3", lambda: qwen(Gemma3TextConfig, Gemma3ForCausalLM, head_dim=16, sliding_window=16, **GEMMA3)
    ),
    "phi3": ("phi3", lambda: qwen(Phi3Config, Phi3ForCausalLM, pad_token_id=0)),
}  # fmt: skip


def write(path: Path, name: str = "llama", more: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """Write a network as a GGUF file, and return it."""
    architecture, build = NETWORKS[name]
    network = build()
    more = {**(rotary_factors(network) if name == "llama 3.1" else {}), **FURTHER.get(name, {}), **(more or {})}
    ids = {"bos": 1, "eos": 2}
    tiny_gguf.write_network(path, architecture, network, tiny_gguf.TOKENS, tiny_gguf.SPECIAL, ids, more=more, **options)
    return network


def loaded(path: Any, **options: Any) -> LanguageModel:
    return LanguageModel(path, device="cpu", **{"dtype": "fp32", **options})


def equal(one: LanguageModel, other: LanguageModel) -> bool:
    pairs = zip(one.surprisals(TEXTS), other.surprisals(TEXTS), strict=True)
    return all(np.array_equal(a[0], b[0]) and np.allclose(a[1], b[1], atol=1e-4, rtol=1e-4) for a, b in pairs)


@pytest.mark.parametrize("name", NETWORKS)
def test_surprisals_are_those_of_the_same_weights_in_safetensors(tmp_path: Path, name: str) -> None:
    network = write(tmp_path / "model.gguf", name)
    network.save_pretrained(tmp_path / "folder")
    tokenizer = read_tokenizer(tmp_path / "model.gguf", "tiny")
    tokenizer.backend.save(str(tmp_path / "folder/tokenizer.json"))
    model, wanted = loaded(tmp_path / "model.gguf"), loaded(tmp_path / "folder")
    assert equal(model, wanted)
    assert (model.context_length, model.vocab_size) == (wanted.context_length, wanted.vocab_size)
    assert model.surprisals(TEXTS[:1])[0][1].std() > 0.5  # so that the weights matter


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_1", "Q8_0", "F16", "BF16"])
def test_quantized_weights_are_those_that_the_file_stands_for(tmp_path: Path, kind: str) -> None:
    type_ = GGMLQuantizationType[kind]
    network = write(tmp_path / "model.gguf", kind=type_)
    state = loaded(tmp_path / "model.gguf").network.state_dict()
    for name, tensor in network.state_dict().items():
        values = tensor.numpy()
        stands_for = dequantize(quantize(values, type_), type_) if values.ndim == 2 else values
        assert np.array_equal(state[name].numpy(), stands_for.astype(np.float32)), name


def test_weights_have_the_number_format_asked_for(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf", kind=GGMLQuantizationType.Q8_0)
    model = loaded(tmp_path / "model.gguf", dtype="bf16")
    assert {param.dtype for param in model.network.parameters()} == {torch.bfloat16}


def test_a_text_begins_as_the_file_says(tmp_path: Path) -> None:
    begins = {"tokenizer.ggml.add_bos_token": True}
    write(tmp_path / "plain.gguf")
    write(tmp_path / "begun.gguf", more=begins)
    write(tmp_path / "llama3.gguf", split="llama-bpe")
    write(tmp_path / "denied.gguf", split="llama-bpe", more={"tokenizer.ggml.add_bos_token": False})
    openings = [loaded(tmp_path / f"{name}.gguf").opening for name in ("plain", "begun", "llama3", "denied")]
    assert openings == [(), (1,), (1,), ()]


def test_a_file_is_found_behind_a_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "models--some--tiny-GGUF"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs/main").write_text(COMMIT)
    (repo / "snapshots" / COMMIT).mkdir(parents=True)
    write(repo / "snapshots" / COMMIT / "tiny-Q8_0.gguf", kind=GGMLQuantizationType.Q8_0)
    model = load_surprisal_model("some/tiny-GGUF/tiny-Q8_0.gguf", "0" * 16, device="cpu")
    assert model.name == "some/tiny-GGUF/tiny-Q8_0.gguf"
    assert len(model.surprisals(TEXTS[:1])[0][1])
    with pytest.raises(ModelNotFound, match=r"hub id some/tiny-GGUF.*hf download some/tiny-GGUF other\.gguf"):
        loaded("some/tiny-GGUF/other.gguf")
    with pytest.raises(ModelNotFound):  # a path is not a hub id
        loaded(Path("some/tiny-GGUF/tiny-Q8_0.gguf"))


def test_the_fingerprint_follows_weights_and_statements(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf")
    shutil.copy(tmp_path / "model.gguf", tmp_path / "same.bin")
    write(tmp_path / "begun.gguf", more={"tokenizer.ggml.add_bos_token": True})
    content = bytearray((tmp_path / "model.gguf").read_bytes())
    content[-3] ^= 1
    (tmp_path / "other.gguf").write_bytes(bytes(content))
    names = ("model.gguf", "same.bin", "begun.gguf", "other.gguf")
    first, same, *others = (loaded(tmp_path / name).fingerprint for name in names)
    assert first == same
    assert len({first, *others}) == 3


@pytest.mark.parametrize(("more", "factor"), cases(__file__, "rotary"))
def test_rotary_frequencies_are_scaled_as_the_file_says(tmp_path: Path, more: Mapping[str, Any], factor: float) -> None:
    network = write(tmp_path / "model.gguf", more=more)
    if factor != 1.0:
        network.config.rope_parameters = {**network.config.rope_parameters, "rope_type": "linear", "factor": factor}
    network.save_pretrained(tmp_path / "folder")
    read_tokenizer(tmp_path / "model.gguf", "tiny").backend.save(str(tmp_path / "folder" / "tokenizer.json"))
    assert equal(loaded(tmp_path / "model.gguf"), loaded(tmp_path / "folder"))


def test_another_process_loads_the_file_again(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf")
    model = loaded(tmp_path / "model.gguf")
    again = pickle.loads(pickle.dumps(model))
    assert again.network is not model.network
    assert equal(again, model)


def test_a_text_is_weighed_by_a_file(tmp_path: Path) -> None:
    write(tmp_path / "model.gguf")
    key = known_key("language model", rule="bigram")
    model = load_surprisal_model(str(tmp_path / "model.gguf"), key.spec.tokenizer_fingerprint, device="cpu")
    found = Detector(key, surprisal_model=model).detect(marked_text(key, 90))
    assert (found.test, weight_figures(found).fingerprint) == ("weighted", model.fingerprint)


def test_a_tokenizer_that_is_not_in_the_file_is_given_beside_it(tmp_path: Path) -> None:
    write(tmp_path / "plain.gguf")
    write(tmp_path / "odd.gguf", split="some-rule")
    with pytest.raises(CheckpointFormat, match=r"tokenizer \(gpt2, some-rule\) cannot be made .*folder or hub id"):
        loaded(tmp_path / "odd.gguf")
    tokenizer = read_tokenizer(tmp_path / "plain.gguf", "tiny")
    tokenizer.backend.save(str(tmp_path / "tokenizer.json"))
    assert equal(
        loaded(tmp_path / "odd.gguf", tokenizer=str(tmp_path / "tokenizer.json")), loaded(tmp_path / "plain.gguf")
    )
    with pytest.raises(CheckpointFormat, match="is not that of"):
        loaded(tmp_path / "odd.gguf", tokenizer="storyteller")
    with pytest.raises(SettingsError, match="not an option of a model that is not a GGUF file"):
        loaded("builtin", tokenizer="storyteller")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        *cases(__file__, "refused"),
        ({"blk.0.attn_sinks.weight": np.ones(4)}, r"tensors that a llama .*blk\.0\.attn_sinks\.weight.*server"),
        ({"blk.1.attn_q.bias": np.ones(64)}, r"tensors that a llama .*blk\.1\.attn_q\.bias"),
        ({"model.norm.weight": np.ones(64)}, r"tensors that a llama .*model\.norm\.weight"),
        ({"rope_freqs.weight": np.ones(5)}, "5 factors of 8 rotary frequencies"),
    ],
)
def test_what_is_not_read_of_a_file_is_refused(tmp_path: Path, more: Mapping[str, Any], why: str) -> None:
    write(tmp_path / "model.gguf", more=more)
    with pytest.raises(CheckpointFormat, match=why):
        loaded(tmp_path / "model.gguf")


def test_a_diffusion_model_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointFormat, match=r"architecture 'llada'.*llama, qwen2.*address of a server .*vLLM"):
        loaded(tiny_gguf.GOLDEN / "llada.gguf")
    write(tmp_path / "model.gguf")
    content = (tmp_path / "model.gguf").read_bytes()
    (tmp_path / "short.gguf").write_bytes(content[: len(content) // 2])
    with pytest.raises(CheckpointFormat, match="not a whole GGUF file"):
        loaded(tmp_path / "short.gguf")
    (tmp_path / "lacking.gguf").write_bytes(content.replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"))
    with pytest.raises(CheckpointFormat, match=r"does not have, such as blk\.1\.ffn_xx"):
        loaded(tmp_path / "lacking.gguf")
