"""LLaDA, LLaDA 1.5 and iLLaDA in transformers' Llama class: bidirectional attention, no remote code.

Only names differ between LLaDA and Llama: `model.transformer.blocks.N.ff_proj` is `model.layers.N.mlp.gate_proj`, and
so on. Logits are aligned with positions (no shift).
"""

from typing import Any

from transformers import LlamaConfig, LlamaForCausalLM

from dgmark.checkpoint.families import LLADA
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat
from dgmark.models.architecture import Architecture
from dgmark.models.sessions.bidirectional import NetworkSession

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

# The only values of these switches that the Llama class supports.
_ONLY: dict[str, Any] = {
    "layer_norm_type": "rms",
    "block_type": "llama",
    "activation_type": "silu",
    "rope": True,
    "clip_qkv": None,
    **dict.fromkeys(("alibi", "scale_logits", "input_emb_norm", "include_bias", "include_qkv_bias"), False),
}


def llama_config(checkpoint: Checkpoint) -> LlamaConfig:
    """LLaDA's configuration for transformers' Llama class, with bidirectional attention.

    Raises:
        CheckpointFormat: the Llama class does not support a switch, or a field is missing.
    """
    source = checkpoint.config
    for name, value in _ONLY.items():
        if source.get(name, value) not in (value, None):
            raise CheckpointFormat(f"{checkpoint.folder}: {name} is {source[name]!r}, only {value!r} can be loaded")
    width, hidden, layers, heads, context, eps, theta, tied = checkpoint.require(
        "d_model",
        "mlp_hidden_size",
        "n_layers",
        "n_heads",
        "max_sequence_length",
        "rms_norm_eps",
        "rope_theta",
        "weight_tying",
    )
    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=source.get("n_kv_heads") or heads,
        vocab_size=checkpoint.vocab_size,
        max_position_embeddings=context,
        rms_norm_eps=eps,
        rope_parameters={"rope_type": "default", "rope_theta": float(theta)},
        tie_word_embeddings=bool(tied),
        attention_bias=False,
        mlp_bias=False,
    )
    config.is_causal = False
    return config


ARCHITECTURE = Architecture(
    LLADA,
    llama_config,
    lambda _: LlamaForCausalLM,
    lambda network, cache, _, padding: NetworkSession(network, cache, padding=padding),
    RENAMINGS,
)
