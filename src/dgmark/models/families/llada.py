"""LLaDA, LLaDA 1.5 and iLLaDA in transformers' Llama class: bidirectional attention, no remote code.

Only names differ between LLaDA and Llama: `model.transformer.blocks.N.ff_proj` is `model.layers.N.mlp.gate_proj`, and
so on. Logits are aligned with positions (no shift).
"""

from typing import Any

from transformers import LlamaConfig

from dgmark.checkpoint.families import LLADA
from dgmark.checkpoint.folder import Checkpoint
from dgmark.models.architecture import Architecture, decoder_config

_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
_TOP_NAMES = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}

RENAMINGS = {
    rf"^model\.transformer\.blocks\.(\d+)\.{theirs}\.": rf"model.layers.\1.{ours}."
    for theirs, ours in _BLOCK_NAMES.items()
} | {rf"^model\.transformer\.{theirs}\.": f"{ours}." for theirs, ours in _TOP_NAMES.items()}

# Names of fields in the Llama class, and in config.json.
_NAMES = {
    "hidden_size": "d_model",
    "intermediate_size": "mlp_hidden_size",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "max_position_embeddings": "max_sequence_length",
    "rms_norm_eps": "rms_norm_eps",
    "tie_word_embeddings": "weight_tying",
}
# The only values of these switches that the Llama class supports.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "layer_norm_type": ("rms", None),
    "block_type": ("llama", None),
    "activation_type": ("silu", None),
    "rope": (True, None),
    "clip_qkv": (None,),
    **dict.fromkeys(("alibi", "scale_logits", "input_emb_norm", "include_bias", "include_qkv_bias"), (False, None)),
}


def llama_config(checkpoint: Checkpoint) -> LlamaConfig:
    """LLaDA's configuration for transformers' Llama class; `decoder_config` says what is refused."""
    heads = checkpoint.config.get("n_kv_heads") or checkpoint.require("n_heads")[0]
    return decoder_config(
        LlamaConfig, checkpoint, _NAMES, _SUPPORTED, num_key_value_heads=heads, attention_bias=False, mlp_bias=False
    )


ARCHITECTURE = Architecture(LLADA, llama_config, renamings=RENAMINGS)
