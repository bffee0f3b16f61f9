"""Model folders from networks: LLaDA's layout for masked diffusion models, transformers' own for the others."""

import copy
import re
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from torch import Tensor
from transformers import LlamaForCausalLM

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.models.families.llada import RENAMINGS
from dgmark.rows.outputs import atomic_folder
from dgmark_lab.training.corpus import END, MASK, PAD, START, SpecialIds, write_json
from dgmark_lab.training.networks import Network

_BLOCK = ("attn_norm", "ff_norm", "q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj", "ff_out")
_TOP = ("wte", "ln_f", "ff_out")


def save_model(
    network: Network,
    tokenizer: Tokenizer,
    special: SpecialIds,
    folder: Path,
    *,
    context: int,
) -> None:
    """Write a model folder in bf16, whole or not at all; an existing one is replaced.

    Args:
        network: the network to save.
        tokenizer: its tokenizer, which goes into the folder.
        special: the tokenizer's mask and end ids.
        folder: the folder to write.
        context: most positions that the model was trained on.
    """
    with atomic_folder(folder) as beside:
        if network.family == "llada":
            write_json(beside / "config.json", llada_config(network.module, special, context))
            save_torch_state_dict(llada_state(network.module), beside)
        else:
            module = copy.deepcopy(network.module).to("cpu", torch.bfloat16)
            module.config.pad_token_id = module.config.eos_token_id
            module.save_pretrained(beside)
            (beside / "generation_config.json").unlink(missing_ok=True)
        tokenizer.backend.save(str(beside / "tokenizer.json"))
        write_json(beside / "tokenizer_config.json", _tokenizer_config(context))
        for file in beside.iterdir():  # safetensors makes files that only their owner can read
            file.chmod(0o644)


def llada_state(module: LlamaForCausalLM) -> dict[str, Tensor]:
    """Return the weights in bf16 under LLaDA's names; a tied output matrix is left out."""
    state = {
        name: tensor.detach().to("cpu", torch.bfloat16).contiguous() for name, tensor in module.state_dict().items()
    }
    if module.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    names = _llada_names(module.config.num_hidden_layers)
    return {names[name]: tensor for name, tensor in state.items()}


def llada_config(module: LlamaForCausalLM, special: SpecialIds, context: int) -> dict[str, Any]:
    """Return the configuration with LLaDA's field names."""
    config: Any = module.config
    return {
        "model_type": "llada",
        "architectures": ["LLaDAModelLM"],
        "d_model": config.hidden_size,
        "n_heads": config.num_attention_heads,
        "n_kv_heads": config.num_key_value_heads,
        "n_layers": config.num_hidden_layers,
        "mlp_hidden_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "embedding_size": config.vocab_size,
        "weight_tying": bool(config.tie_word_embeddings),
        "rope": True,
        "rope_theta": config.rope_parameters["rope_theta"],
        "rms_norm_eps": config.rms_norm_eps,
        "layer_norm_type": "rms",
        "block_type": "llama",
        "activation_type": "silu",
        "include_bias": False,
        "include_qkv_bias": False,
        "max_sequence_length": context,
        "mask_token_id": special.mask,
        "eos_token_id": special.end,
        "pad_token_id": special.end,
        "torch_dtype": "bfloat16",
    }


def _llada_names(blocks: int) -> dict[str, str]:
    """Return LLaDA's name of each tensor of the Llama class, by the inverse of the loader's renamings."""
    names = [f"model.transformer.{name}.weight" for name in _TOP]
    names += [f"model.transformer.blocks.{block}.{name}.weight" for block in range(blocks) for name in _BLOCK]
    return {_native_name(name): name for name in names}


def _native_name(name: str) -> str:
    return next(new for old, ours in RENAMINGS.items() if (new := re.sub(old, ours, name)) != name)


def _tokenizer_config(context: int) -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": START,
        "eos_token": END,
        "pad_token": PAD,
        "mask_token": MASK,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
