"""LLaDA-MoE in transformers' Qwen3Moe class, with bidirectional attention, the same names and the same router.

Each layer is a mixture of experts, chosen by a softmax whose weights are not normalised again; queries and keys are
normalised in each head.
"""

from typing import Any

from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

from dgmark.checkpoint.families import LLADA_MOE
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat
from dgmark.models.architecture import Architecture, check_counts, expert_sizes
from dgmark.models.sessions.bidirectional import NetworkSession

# The only values of these switches that the Qwen3Moe class supports; the first is the default.
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
    """LLaDA-MoE's configuration for transformers' Qwen3Moe class, with bidirectional attention.

    Raises:
        CheckpointFormat: a switch has a value that cannot be loaded, or a field is missing.
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
    fields = dict(zip(same, checkpoint.require(*same), strict=True))
    check_counts(checkpoint, {"num_experts": (fields["num_experts"], 1, 10**6)})
    check_counts(checkpoint, {"num_experts_per_tok": (fields["num_experts_per_tok"], 1, fields["num_experts"])})
    config = Qwen3MoeConfig(
        **fields,
        vocab_size=checkpoint.vocab_size,
        moe_intermediate_size=hidden,
        norm_topk_prob=False,
        tie_word_embeddings=bool(source.get("tie_word_embeddings", False)),
        rope_parameters={"rope_type": "default", "rope_theta": float(theta)},
    )
    config.head_dim = fields["hidden_size"] // fields["num_attention_heads"]
    config.is_causal = False
    return config


ARCHITECTURE = Architecture(
    LLADA_MOE,
    qwen3_moe_config,
    lambda _: Qwen3MoeForCausalLM,
    lambda network, cache, _, padding: NetworkSession(network, cache, padding=padding),
    sizes=expert_sizes,
)
