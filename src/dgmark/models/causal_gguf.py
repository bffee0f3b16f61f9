"""Autoregressive networks from GGUF files: torch computes them with unpacked weights, in transformers' classes.

A file states its architecture in few words, so only those are read of which all that llama.cpp computes is stated or
always the same. Whatever else a file holds is an error. Knows no tokenizer.
"""

import re
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from dgmark.checkpoint.folder import Checkpoint
from dgmark.checkpoint.gguf import GgufHeader, read_header
from dgmark.errors import CheckpointFormat, MissingExtra, install_hint
from dgmark.models.architecture import causal_class, causal_config
from dgmark.models.weights import Placement, filled_network, misfit, native_name

INSTEAD = (
    "give the folder or hub id of the model that it was converted from, or the address of a server that computes it "
    "and echoes the log-probabilities of a prompt, such as vLLM; llama.cpp's own server does not"
)

# transformers' names of the architectures of llama.cpp; Mistral's models are among "llama"
_MODEL_TYPES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen3moe": "qwen3_moe"}

# fields of a configuration: their names after that of the architecture, and their types
_SIZES = {
    "hidden_size": ("embedding_length", int),
    "num_hidden_layers": ("block_count", int),
    "intermediate_size": ("feed_forward_length", int),
    "num_attention_heads": ("attention.head_count", int),
    "max_position_embeddings": ("context_length", int),
    "rms_norm_eps": ("attention.layer_norm_rms_epsilon", float),
}
_EXPERTS = {
    "num_experts": ("expert_count", int),
    "num_experts_per_tok": ("expert_used_count", int),
    "moe_intermediate_size": ("expert_feed_forward_length", int),
}

# further fields that are read, and those that change nothing in what is computed
_READ = {
    *("attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.causal"),
    *("rope.freq_base", "rope.dimension_count", "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear"),
}
_WITHOUT_EFFECT = {
    *("vocab_size", "tensor_data_layout", "rope.scaling.original_context_length", "rope.scaling.finetuned"),
    *("use_parallel_residual", "pooling_type"),
}
# what a field states that does not apply
_NEUTRAL: tuple[object, ...] = (0, "", "none", [])

# names of tensors in such files, and in transformers' classes
_NAMES = {
    r"^token_embd\.": "model.embed_tokens.",
    r"^output_norm\.": "model.norm.",
    r"^output\.": "lm_head.",
    r"^blk\.": "model.layers.",
    r"\.attn_norm\.": ".input_layernorm.",
    r"\.ffn_norm\.": ".post_attention_layernorm.",
    r"\.attn_(q|k)_norm\.": r".self_attn.\1_norm.",
    r"\.attn_(q|k|v)\.": r".self_attn.\1_proj.",
    r"\.attn_output\.": ".self_attn.o_proj.",
    r"\.ffn_(gate|up|down)\.": r".mlp.\1_proj.",
    r"\.ffn_gate_inp\.": ".mlp.gate.",
    r"\.ffn_down_exps\.weight$": ".mlp.experts.down_proj",
    # transformers has the gates of experts and what they open in one tensor
    r"\.ffn_(gate|up)_exps\.weight$": ".mlp.experts.gate_up_proj",
}

# by which Llama 3 divides its rotary frequencies
_ROTARY_FACTORS = "rope_freqs.weight"


def load_causal_gguf(checkpoint: Checkpoint, placement: Placement) -> PreTrainedModel:
    """Load the network of a GGUF file, ready for inference.

    All weights are unpacked into the number format, whatever they take in the file: in bf16 a weight has 2 bytes.

    Args:
        checkpoint: the file, as its own folder.
        placement: where to load it.

    Raises:
        CheckpointFormat: the file has another architecture, is one of several parts, holds tensors that the network
            does not have, lacks some, or is damaged.
        MissingExtra: gguf is not installed.
        ModelError: the network does not fit the memory of the device.
        SettingsError: there is no such device map.
    """
    header = read_header(checkpoint.folder)
    stated = Checkpoint(checkpoint.name, checkpoint.folder, _config(header))
    try:
        config = causal_config(stated)
        network_class: Any = causal_class(config)
        with torch.device("meta"):
            names = set(network_class(config).state_dict())
    except Exception as error:  # transformers' classes raise all kinds at invalid values
        raise misfit(stated, error) from error
    stated_names = header.shapes.keys() - {_ROTARY_FACTORS}
    unread = sorted(name for name in stated_names if native_name(name, _NAMES) not in names)
    if unread:
        raise CheckpointFormat(
            f"{header.path} holds tensors that a {config.model_type} of transformers does not have, such as "
            f"{', '.join(unread[:3])}: {INSTEAD}"
        )
    source = {"pretrained_model_name_or_path": None, "state_dict": causal_state(header, placement.dtype)}
    network = filled_network(stated, network_class, config, source, placement)
    if _ROTARY_FACTORS in header.shapes:
        _scale_rotations(network, header)
    return network


# --- what the file states ---


def _config(header: GgufHeader) -> dict[str, Any]:
    """The configuration of the network, in the words of config.json."""
    name = header.get("general.architecture", str)
    if name not in _MODEL_TYPES:
        raise CheckpointFormat(
            f"{header.path} holds a model of the architecture {name!r}; of GGUF files these language models are read: "
            f"{', '.join(_MODEL_TYPES)}. For others {INSTEAD}"
        )
    prefix = f"{name}."
    fields = {key.removeprefix(prefix): value for key, value in header.fields.items() if key.startswith(prefix)}
    if (parts := header.fields.get("split.count", 1)) > 1:
        raise CheckpointFormat(
            f"{header.path} is one of {parts} parts: join them with `llama-gguf-split --merge`, and give the whole file"
        )
    sizes = {**_SIZES, **(_EXPERTS if name == "qwen3moe" else {})}
    config = {field: _one(header, f"{name}.{stated}", kind) for field, (stated, kind) in sizes.items()}
    if config["num_hidden_layers"] > len(header.shapes):  # before they are built
        raise CheckpointFormat(f"{header.path} states more blocks than it has tensors: fetch it again")
    known = {stated for stated, _ in sizes.values()} | _READ | _WITHOUT_EFFECT
    others = [key for key in sorted(fields.keys() - known) if fields[key] not in _NEUTRAL]
    if fields.get("attention.causal", True) is not True:
        others.append("attention.causal")
    heads = config["num_attention_heads"]
    widths = f"{name}.attention.key_length"
    width = _one(header, widths, int) if widths in header.fields else config["hidden_size"] // max(heads, 1)
    others += [
        field
        for field in ("rope.dimension_count", "attention.value_length")
        if fields.get(field, width) not in (width, [width] * config["num_hidden_layers"])
    ]
    if others:
        raise CheckpointFormat(
            f"{header.path} states {', '.join(f'{name}.{key} = {fields[key]!r}' for key in others[:3])}, which this "
            f"reader does not compute: {INSTEAD}"
        )
    kv_heads = f"{name}.attention.head_count_kv"
    return config | {
        "model_type": _MODEL_TYPES[name],
        "vocab_size": header.vocab_size,
        "num_key_value_heads": _one(header, kv_heads, int) if kv_heads in header.fields else heads,
        "head_dim": width,
        "rope_parameters": {"rope_theta": fields.get("rope.freq_base", 10000.0)} | _scaling(header, fields),
        "tie_word_embeddings": "output.weight" not in header.shapes,
        "norm_topk_prob": True,  # as llama.cpp computes experts
    }


def _one(header: GgufHeader, key: str, kind: type) -> Any:
    """A field that holds for all blocks, which some files state for each of them.

    Raises:
        CheckpointFormat: it is missing, of another type, or not the same for all blocks.
    """
    value = header.fields.get(key)
    if not isinstance(value, list):
        return header.get(key, kind)
    if len(set(value)) != 1 or type(value[0]) is not kind:
        raise CheckpointFormat(
            f"{header.path} states {key} for each block ({', '.join(map(str, value[:4]))}, ...), and only networks "
            f"whose blocks are alike are read: {INSTEAD}"
        )
    return value[0]


def _scaling(header: GgufHeader, fields: dict[str, Any]) -> dict[str, Any]:
    """How rotary frequencies are scaled, in the words of config.json: by a factor, or not at all.

    As in llama.cpp, a factor without a type is a linear one, and files of 2023 state it under another name.

    Raises:
        CheckpointFormat: they are scaled in another way.
    """
    kind = fields.get("rope.scaling.type", "linear")
    factor = fields.get("rope.scaling.factor", fields.get("rope.scale_linear", 0.0)) or 1.0
    if kind == "none" or (kind == "linear" and factor == 1.0):
        return {"rope_type": "default"}
    if kind != "linear":
        raise CheckpointFormat(
            f"{header.path} scales its rotary frequencies by {kind!r}; only a linear scale is read: {INSTEAD}"
        )
    return {"rope_type": "linear", "factor": float(factor)}


# --- its tensors ---


def causal_state(header: GgufHeader, dtype: torch.dtype) -> dict[str, Tensor]:
    """All tensors of a GGUF file under transformers' names, in this number format.

    Raises:
        CheckpointFormat: the file is damaged or has another architecture.
        MissingExtra: gguf is not installed.
    """
    state, config = dict[str, Tensor](), _config(header)
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"]}
    # in this order the gates of experts come before what they are joined with
    for name in sorted(header.shapes.keys() - {_ROTARY_FACTORS}):
        values = unpacked(header, name)
        turned = re.search(r"\.attn_(q|k)\.", name)
        if turned and config["model_type"] == "llama":
            values = _untwisted(values, heads[turned[1]], header)
        place, tensor = native_name(name, _NAMES), torch.from_numpy(values).to(dtype)
        if place in state and not name.endswith("_exps.weight"):
            raise CheckpointFormat(f"{header.path} holds {place} a second time: fetch it again")
        state[place] = torch.cat([state[place], tensor], 1) if place in state else tensor
    return state


def unpacked(header: GgufHeader, name: str) -> np.ndarray:
    """The values of a tensor of a GGUF file in float32, rows first.

    Raises:
        CheckpointFormat: the file ends within it, or the package gguf cannot unpack its type.
        MissingExtra: gguf is not installed.
    """
    try:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
    except ImportError as error:
        raise MissingExtra(f"GGUF files are read with gguf: {install_hint('generate')} ({error})") from None
    (kind, begin), (columns, *rest) = header.places[name], header.shapes[name]
    try:
        type_ = GGMLQuantizationType(kind)
        together, size = GGML_QUANT_SIZES[type_]
        shape = (*reversed(rest), columns // together * size)
        packed = np.fromfile(header.path, np.uint8, int(np.prod(shape)), offset=begin).reshape(shape)
        values: np.ndarray = dequantize(packed, type_).astype(np.float32, copy=False)
        return values.reshape(*reversed(rest), columns)
    except (ValueError, KeyError, NotImplementedError, OSError) as error:
        raise CheckpointFormat(
            f"{header.path}: its tensor {name} of type {kind} cannot be unpacked ({error}): fetch the file again, or "
            f"{INSTEAD}"
        ) from error


def _untwisted(values: np.ndarray, heads: int, header: GgufHeader) -> np.ndarray:
    """Rows in transformers' order. In these files row 2 i of a head is its row i, and row 2 i + 1 is row i + half."""
    if heads < 1 or len(values) % (2 * heads):
        raise CheckpointFormat(f"{header.path}: {len(values)} rows are not those of {heads} heads; fetch it again")
    pairs = values.reshape(heads, len(values) // heads // 2, 2, -1)
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _scale_rotations(network: PreTrainedModel, header: GgufHeader) -> None:
    """Divide the rotary frequencies by the factors in the file, as llama.cpp does."""
    factors = torch.from_numpy(unpacked(header, _ROTARY_FACTORS))
    for name, frequencies in network.named_buffers():
        if name.endswith("inv_freq"):
            if frequencies.shape != factors.shape:
                raise CheckpointFormat(
                    f"{header.path}: {len(factors)} factors of {len(frequencies)} rotary frequencies; fetch it again"
                )
            frequencies /= factors.to(frequencies.device)
