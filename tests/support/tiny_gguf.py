"""Tiny networks as GGUF files, written by the gguf package with rows ordered as llama.cpp has them."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import MODEL_ARCH_NAMES, GGMLQuantizationType, GGUFWriter, LlamaFileType, get_tensor_name_map, quantize
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from dgmark.models import assembly
from dgmark.models.assembly import BASE_VARIABLE, Base
from dgmark.models.load import NetworkDenoiser, load_model
from dgmark.models.loaded import LoadedModel
from support import tiny_checkpoints

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
ROWS = 272  # of the output matrix, more than there are tokens
GOLDEN = Path(__file__).parents[1] / "golden"
MERGES = ("Ġ a", "t h", "th e")
TOKENS = (*SPECIAL, *ALPHABET, "Ġa", "th", "the")


def diffusion(
    folder: Path, family: str, kind: GGMLQuantizationType = GGMLQuantizationType.F32, **changes: Any
) -> tuple[LoadedModel, Path]:
    """A tiny diffusion model as transformers computes it, in the published layout, and the GGUF file made from it."""
    rows: dict[str, Any] = {"vocab_size": ROWS} | ({"embedding_size": ROWS} if family == "llada" else {})
    tiny_checkpoints.write(folder, family, **rows, **changes)
    special = tiny_checkpoints.SPECIAL[family]
    tokens = [*special, *ALPHABET, *(merge.replace(" ", "") for merge in MERGES)]
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    (folder / "merges.txt").write_text("\n".join(MERGES))
    added = {str(i): {"content": token, "special": True} for i, token in enumerate(special)}
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "Qwen2Tokenizer", "added_tokens_decoder": added})
    )
    model = load_model(str(folder), device="cpu", dtype="fp32")
    assert isinstance(model, NetworkDenoiser)
    write_network(folder / "model.gguf", family, model.network, tokens, special, {"mask": 0, "eos": 1}, kind=kind)
    return model, folder / "model.gguf"


def llama(seed: int = 0) -> LlamaForCausalLM:
    """A Llama of two blocks with tied embeddings."""
    torch.manual_seed(seed)
    network = LlamaForCausalLM(config())
    with torch.no_grad():
        for name, param in network.named_parameters():
            param.copy_(0.5 + torch.rand_like(param) if "norm" in name else 0.3 * torch.randn_like(param))
    network.train(False)
    return network


def config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(TOKENS), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0}, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip


def write(path: Path, network: LlamaForCausalLM, kind: GGMLQuantizationType = GGMLQuantizationType.F32) -> None:
    """Write a Llama as a GGUF file, with its matrices in this quantization."""
    write_network(path, "llama", network, TOKENS, SPECIAL, {"bos": 1, "eos": 2}, kind=kind)


def write_network(
    path: Path,
    architecture: str,
    network: Any,
    tokens: Sequence[str],
    special: Sequence[str],
    ids: Mapping[str, int],
    *,
    split: str = "qwen2",
    kind: GGMLQuantizationType = GGMLQuantizationType.F32,
    more: Mapping[str, Any] | None = None,
) -> None:
    """Write a decoder of transformers as a GGUF file.

    Args:
        path: the file.
        architecture: what llama.cpp calls it.
        network: the decoder, with its output matrix.
        tokens: the tokens by id; the rows of the output matrix after them have none.
        special: those that are special.
        ids: ids of special tokens by what they are for, such as "eos".
        split: name of the rule that splits text.
        kind: quantization of the matrices.
        more: other fields, and other tensors in float32, by name.
    """
    writer: Any = GGUFWriter(path, architecture)
    sizes: Any = network.config
    writer.add_block_count(sizes.num_hidden_layers)
    writer.add_context_length(sizes.max_position_embeddings)
    writer.add_embedding_length(sizes.hidden_size)
    writer.add_feed_forward_length(sizes.intermediate_size)
    writer.add_head_count(sizes.num_attention_heads)
    writer.add_head_count_kv(sizes.num_key_value_heads)
    width = getattr(sizes, "head_dim", None) or sizes.hidden_size // sizes.num_attention_heads
    for add in (writer.add_key_length, writer.add_value_length, writer.add_rope_dimension_count):
        add(width)
    writer.add_layer_norm_rms_eps(sizes.rms_norm_eps)
    rotary = sizes.rope_parameters
    writer.add_rope_freq_base(rotary.get("full_attention", rotary)["rope_theta"])
    writer.add_file_type(LlamaFileType.ALL_F32)
    if hasattr(sizes, "num_experts"):
        writer.add_expert_count(sizes.num_experts)
        writer.add_expert_used_count(sizes.num_experts_per_tok)
        writer.add_expert_feed_forward_length(sizes.moe_intermediate_size)
    rows = len(network.get_input_embeddings().weight)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(split)
    writer.add_token_list([*tokens, *(f"[PAD{i}]" for i in range(len(tokens), rows))])
    writer.add_token_types([3 if token in special else 1 for token in tokens] + [5] * (rows - len(tokens)))
    writer.add_token_merges(MERGES)
    for name, i in ids.items():
        getattr(writer, f"add_{name}_token_id")(i)
    for name, value in (more or {}).items():
        if isinstance(value, np.ndarray):
            writer.add_tensor(name, value.astype(np.float32))
        else:
            numbers = {int: writer.add_uint32, float: writer.add_float32}
            adders = {**numbers, bool: writer.add_bool, str: writer.add_string, list: writer.add_array}
            adders[type(value)](name, value)
    for name, values in tensors(architecture, network):
        wanted = kind if values.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(name, quantize(values, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(architecture: str, network: Any) -> Iterator[tuple[str, Any]]:
    """The network's tensors under llama.cpp's names, in its order of rows."""
    kind = next(kind for kind, name in MODEL_ARCH_NAMES.items() if name == architecture)
    names = get_tensor_name_map(kind, network.config.num_hidden_layers)
    heads = {"q_proj": network.config.num_attention_heads, "k_proj": network.config.num_key_value_heads}
    for name, tensor in network.state_dict().items():
        if name == "lm_head.weight" and network.config.tie_word_embeddings:
            continue
        values, parts = tensor.numpy(), {name: tensor.numpy()}
        if name.endswith("gate_up_proj"):
            parts = {
                name.replace("gate_up", part): half
                for part, half in zip(("gate", "up"), np.split(values, 2, axis=1), strict=True)
            }
        for part, its in parts.items():
            found = names.get_name(part, try_suffixes=(".weight", ".bias"))
            assert found is not None
            its = its[0] if name.endswith("shared_expert_gate.weight") else its
            its = its + 1 if architecture.startswith("gemma") and "norm" in name else its
            turned = [count for key, count in heads.items() if key in part and architecture in ("llama", "llada")]
            yield (
                found if "." in found.split("_")[-1] else f"{found}.weight",
                np.ascontiguousarray(its[interleaved(len(its), turned[0])] if turned else its),
            )


def interleaved(rows: int, heads: int) -> list[int]:
    """Rows in llama.cpp's order: row 2 i of a head is i, row 2 i + 1 is i + half."""
    size = rows // heads
    return [head * size + (place // 2) + (place % 2) * (size // 2) for head in range(heads) for place in range(size)]


def adapters(network: LlamaForCausalLM, rank: int = 2) -> dict[str, torch.Tensor]:
    """Random adapters on all linear layers of the blocks, and a mask vector, in bf16."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return (0.3 * torch.randn(*shape, generator=generator)).to(torch.bfloat16)

    made = {"mask_vector": random(network.config.hidden_size)}
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Linear) and ".layers." in name:
            made[f"{name}.down"] = random(rank, module.in_features)
            made[f"{name}.up"] = random(module.out_features, rank)
    return made


def as_base(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Let a tiny network be the narrator's base, from a file in this folder."""
    write(path := folder / "base.gguf", llama())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    base = Base("some-package", "1.0", path.name, digest, "Apache-2.0")
    patch.setattr(assembly, "smollm2", lambda: base)
    patch.setenv(BASE_VARIABLE, str(path))
    return path
