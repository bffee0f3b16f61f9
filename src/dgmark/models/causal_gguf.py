"""Autoregressive networks from GGUF files: torch computes them with unpacked weights, in transformers' classes.

transformers' tables say what a file's fields and tensors are called there. Whatever else a file holds is an error. Its
own reader (`load_gguf_checkpoint`) takes 22 seconds more for the tokens of a Qwen. Knows no tokenizer.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, modeling_gguf_pytorch_utils

from dgmark.checkpoint.folder import Checkpoint
from dgmark.checkpoint.gguf import GgufHeader, read_header
from dgmark.errors import CheckpointFormat
from dgmark.models.architecture import causal_class, causal_config
from dgmark.models.weights import Placement, filled_network, load_errors

INSTEAD = (
    "give the folder or hub id of the model that it was converted from, or the address of a server that computes it "
    "and echoes the log-probabilities of a prompt, such as vLLM; llama.cpp's own server does not"
)

_TABLES: Any = modeling_gguf_pytorch_utils
# transformers' names of the architectures of llama.cpp; Mistral's models are among "llama"
_MODEL_TYPES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma2": "gemma2", "gemma3": "gemma3_text", "phi3": "phi3",
    "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe",
}  # fmt: skip
# fields that transformers' tables lack, by their names in a configuration; None for those that are checked below, or
# change nothing
_FIELDS = {
    "attention.key_length": "head_dim",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_shared_feed_forward_length": "shared_expert_intermediate_size",
    "final_logit_softcapping": "final_logit_softcapping",
    "rope.freq_base": "rope_theta",
    **dict.fromkeys(("attention.causal", "attention.value_length", "rope.dimension_count", "rope.scaling.type")),
    **dict.fromkeys(("rope.scaling.factor", "rope.scale_linear", "rope.scaling.original_context_length")),
    **dict.fromkeys(("rope.scaling.finetuned", "vocab_size", "tensor_data_layout", "pooling_type")),
}
# what a field states that does not apply
_NEUTRAL: tuple[object, ...] = (0, "", "none", [])
# by which Llama 3 divides its rotary frequencies
_ROTARY_FACTORS = "rope_freqs.weight"


def load_causal_gguf(checkpoint: Checkpoint, placement: Placement) -> PreTrainedModel:
    """Load the network of a GGUF file, ready for inference.

    All weights are unpacked into the number format, whatever they take in the file: in bf16 a weight has 2 bytes.
    """
    header = read_header(checkpoint.folder)
    state, config = causal_state(header, placement.dtype), causal_config(_stated(header))
    source = {"pretrained_model_name_or_path": None, "state_dict": state}
    network = filled_network(checkpoint, causal_class(config), config, source, placement)
    if _ROTARY_FACTORS in header.shapes:
        _scale_rotations(network, header)
    return network


def causal_state(header: GgufHeader, dtype: torch.dtype) -> dict[str, Tensor]:
    """All tensors of a GGUF file under transformers' names, in this number format; others are a CheckpointFormat."""
    checkpoint, state = _stated(header), dict[str, Tensor]()
    with load_errors(checkpoint, torch.device("cpu")):
        config = causal_config(checkpoint)
        network_class: Any = causal_class(config)
        with torch.device("meta"):
            network = network_class(config)
        processors, kind = _TABLES.TENSOR_PROCESSORS, header.fields["general.architecture"]
        processor = processors.get(kind, _TABLES.TensorProcessor)(config.to_dict())
        names = _TABLES.get_gguf_hf_weights_map(network, processor)
        stated = header.shapes.keys() - {_ROTARY_FACTORS}
        if unread := sorted(name for name in stated if not {name, name.removesuffix(".weight")} & names.keys()):
            raise CheckpointFormat(
                f"{header.path} holds tensors that a {config.model_type} of transformers does not have, such as "
                f"{', '.join(unread[:3])}: {INSTEAD}"
            )
        for name in sorted(stated):
            options = {"tensor_key_mapping": names, "parsed_parameters": {"tensors": state}}
            read = processor.process(unpacked(header, name), name, **options)
            if read.name is not None:
                state[names[read.name]] = torch.from_numpy(np.ascontiguousarray(read.weights)).to(dtype)
            else:  # it has put the weights of experts into the state
                state |= {place: tensor.to(dtype) for place, tensor in state.items()}
    return state


def _stated(header: GgufHeader) -> Checkpoint:
    """The file as a checkpoint, with what it states in the words of config.json; what is not read is refused.

    As in llama.cpp, a factor of the rotary frequencies without a type is a linear one, and files of 2023 state it under
    another name.
    """
    name, tables = header.get("general.architecture", str), _TABLES.GGUF_TO_TRANSFORMERS_MAPPING["config"]
    if name not in _MODEL_TYPES:
        raise CheckpointFormat(
            f"{header.path} holds a model of the architecture {name!r}; of GGUF files these language models are read: "
            f"{', '.join(_MODEL_TYPES)}. For others {INSTEAD}"
        )
    if (parts := header.fields.get("split.count", 1)) > 1:
        raise CheckpointFormat(
            f"{header.path} is one of {parts} parts: join them with `llama-gguf-split --merge`, and give the whole file"
        )
    model_type = _MODEL_TYPES[name]
    fields, names = _fields(header, f"{name}."), (tables.get(model_type) or tables[name]) | _FIELDS
    config = {"rope_theta": 10000.0, "pad_token_id": None} | _TABLES.GGUF_CONFIG_DEFAULTS_MAPPING.get(model_type, {})
    config |= {names[key]: value for key, value in fields.items() if names.get(key)}
    _check_computed(header, fields, names, config)
    factor = fields.get("rope.scaling.factor", fields.get("rope.scale_linear", 0.0)) or 1.0
    if factor != 1.0 and fields.get("rope.scaling.type") != "none":
        config["rope_scaling"] = {"rope_type": "linear", "factor": float(factor)}
    config |= {"model_type": model_type, "vocab_size": header.vocab_size}
    config["tie_word_embeddings"] = "output.weight" not in header.shapes
    return Checkpoint(str(header.path), header.path, config)


def _fields(header: GgufHeader, prefix: str) -> dict[str, Any]:
    """The fields of the architecture; of one that is stated for each block, and the same for all, that value."""
    stated = {key.removeprefix(prefix): value for key, value in header.fields.items() if key.startswith(prefix)}
    return {
        key: value[0] if isinstance(value, list) and value and value == value[:1] * len(value) else value
        for key, value in stated.items()
    }


def _check_computed(header: GgufHeader, fields: dict[str, Any], names: dict[str, Any], config: dict[str, Any]) -> None:
    """Refuse fields that are not known, have a value that is not computed, or differ between blocks."""
    heads = config.get("num_attention_heads") or 1
    width = config.get("head_dim") or config.get("hidden_size", 0) // (heads if isinstance(heads, int) else 1)
    computed = {"attention.causal": (True,), "rope.scaling.type": ("linear", "none")}
    computed |= dict.fromkeys(("attention.value_length", "rope.dimension_count"), (width,))
    others = [
        f"{header.fields['general.architecture']}.{key} = {value!r}"
        for key, value in sorted(fields.items())
        if value not in (computed.get(key, [value]) if key in names else _NEUTRAL)
        or (isinstance(value, list) and value)
    ]
    if others:
        raise CheckpointFormat(
            f"{header.path} states {', '.join(others[:3])}, which this reader does not compute: {INSTEAD}"
        )
    if config.get("num_hidden_layers", 0) > len(header.shapes):  # before they are built
        raise CheckpointFormat(f"{header.path} states more blocks than it has tensors: fetch it again")


def unpacked(header: GgufHeader, name: str) -> np.ndarray:
    """The values of a tensor of a GGUF file in float32, rows first."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

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
