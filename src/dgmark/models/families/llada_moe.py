"""LLaDA-MoE in transformers' Qwen3Moe class, with bidirectional attention: names and router are the same.

Each layer is a mixture of experts, chosen by a softmax whose weights are not normalised again; queries and keys are
normed a head.
"""

from typing import Any

from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from dgmark.checkpoint.families import LLADA_MOE
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat
from dgmark.models.architecture import Architecture, check_counts, expert_sizes
from dgmark.models.sessions.bidirectional import NetworkSession

# What the Qwen3Moe class is not, or does not have.
_ONLY: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False,),
    "clip_qkv": (None,),
    "hidden_act": ("silu",),
    "moe_router_enable_expert_bias": (False,),
    "moe_router_score_function": ("softmax",),
    "norm_topk_prob": (False, None),
    "partial_rotary_factor": (1, None),
    "qk_layernorm": (True,),
    "rope_scaling": (None,),
    "routed_scaling_factor": (1, None),
    "router_num_group": (None,),
    "shared_expert_intermediate_size": (None,),
}


def qwen3_moe_config(checkpoint: Checkpoint) -> Qwen3MoeConfig:
    """LLaDA-MoE's configuration in the words of transformers' Qwen3Moe, with bidirectional attention.

    Raises:
        CheckpointFormat: a switch that this loader does not know, or a field that is lacking.
    """
    source = checkpoint.config
    for name, values in _ONLY.items():
        if source.get(name, values[0]) not in values:
            raise CheckpointFormat(f"{checkpoint.folder}: {name} is {source[name]!r}, only {values[0]!r} can be loaded")
    if 0 in (source.get("moe_layer_freq") or ()):
        raise CheckpointFormat(f"{checkpoint.folder}: layers without experts cannot be loaded")
    same = (
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
        "rms_norm_eps",
        "num_experts",
        "num_experts_per_tok",
    )
    hidden, theta = checkpoint.require("expert_intermediate_size", "rope_theta")
    taken = dict(zip(same, checkpoint.require(*same), strict=True))
    check_counts(checkpoint, {"num_experts": (taken["num_experts"], 1, 10**6)})
    check_counts(checkpoint, {"num_experts_per_tok": (taken["num_experts_per_tok"], 1, taken["num_experts"])})
    config = Qwen3MoeConfig(
        **taken,
        vocab_size=checkpoint.vocab_size,
        moe_intermediate_size=hidden,
        norm_topk_prob=False,
        tie_word_embeddings=bool(source.get("tie_word_embeddings", False)),
        rope_parameters={"rope_type": "default", "rope_theta": float(theta)},
    )
    config.head_dim = taken["hidden_size"] // taken["num_attention_heads"]
    config.is_causal = False
    return config


ARCHITECTURE = Architecture(
    LLADA_MOE,
    qwen3_moe_config,
    lambda _: Qwen3MoeForCausalLM,
    lambda network, cache, _, padding: NetworkSession(network, cache, padding=padding),
    sizes=expert_sizes,
)
