"""The narrator's folders: its base, from a GGUF file on the package index, and what ships of a run."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken
from transformers import LlamaForCausalLM

from dgmark.checkpoint.families import BLOCK_LLAMA
from dgmark.checkpoint.folder import read_object
from dgmark.errors import SettingsError
from dgmark.files.outputs import atomic_folder
from dgmark.models.assembly import ADAPTERS, MASK, smollm2
from dgmark.models.assembly import BASE as PARTS
from dgmark_lab.training.corpus import write_json
from dgmark_lab.training.narrator.adapter import AdaptedLlama
from dgmark_lab.training.run import STATE, load_state

SMOLLM2 = smollm2()  # that of the adapters that ship
BASE = "base"  # name of its folder in a run
END = "<|im_end|>"  # the token that ends its turn
CONTEXT = 2048  # tokens of prompt and response; the base was trained on more
MASK_TOKEN = BLOCK_LLAMA.mask_tokens[0]


# ---- what ships ----


def export(run: Path, base: Path, out: Path) -> int:
    """Write what ships of a run's folder and its base's, whole or not at all; return the bytes of the adapters.

    Raises:
        SettingsError: `out` exists.
        ResumeMismatch: `run` is not a run, or its state is unreadable.
        CheckpointFormat: the run is of another base.
    """
    if out.exists():
        raise SettingsError(f"{out} exists: choose another --out, or move it away")
    model = trained_model(load_state(run / STATE), base)
    adapters = {MASK: model.mask_vector.detach()}
    for name, layer in model.adapters():
        adapters |= {f"{name}.down": layer.down.detach(), f"{name}.up": layer.up.detach()}
    rounded = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in adapters.items()}
    backend = tokenizers.Tokenizer.from_file(str(base / "tokenizer.json"))
    backend.add_special_tokens([AddedToken(MASK_TOKEN, normalized=False)])
    with atomic_folder(out) as beside:
        save_file(rounded, beside / ADAPTERS)
        write_json(beside / PARTS, asdict(SMOLLM2))
        write_json(beside / "config.json", config_of(read_object(base / "config.json")))
        backend.save(str(beside / "tokenizer.json"), pretty=False)
        write_json(beside / "tokenizer_config.json", {"mask_token": MASK_TOKEN, "eos_token": END})
        return (beside / ADAPTERS).stat().st_size


def trained_model(state: dict[str, Any], base: Path) -> AdaptedLlama:
    """Build the base with a run's adapters."""
    model = AdaptedLlama(LlamaForCausalLM.from_pretrained(base, dtype=torch.float32), state["config"]["rank"])
    model.load_state_dict(state["tensors"]["trained"])
    return model


def config_of(base: dict[str, Any]) -> dict[str, Any]:
    """Build config.json of the whole model: the base's sizes, one more token, dgmark's family."""
    same = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "hidden_act",
        "rms_norm_eps",
        "rope_parameters",
        "tie_word_embeddings",
        "bos_token_id",
        "eos_token_id",
    )
    return {
        "model_type": BLOCK_LLAMA.model_types[0],
        "architectures": list(BLOCK_LLAMA.architectures),
        **{name: base[name] for name in same},
        "vocab_size": base["vocab_size"] + 1,
        "max_position_embeddings": CONTEXT,
        "mask_token_id": base["vocab_size"],
    }
