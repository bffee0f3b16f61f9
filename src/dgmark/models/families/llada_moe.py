"""LLaDA-MoE in transformers' Qwen3Moe class, with bidirectional attention, the same names and the same router.

Each layer is a mixture of experts, chosen by a softmax whose weights are not normalised again; queries and keys are
normalised in each head.
"""

from typing import Any

from transformers import Qwen3MoeConfig

from dgmark.checkpoint.families import LLADA_MOE
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat
from dgmark.models.architecture import SIZES, Architecture, decoder_config

_NAMES = {name: name for name in (*SIZES, "num_experts", "num_experts_per_tok")}
_NAMES["moe_intermediate_size"] = "expert_intermediate_size"
# The only values of these switches that the Qwen3Moe class supports; the first is the default.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
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
    """LLaDA-MoE's configuration for transformers' Qwen3Moe class; without experts in each layer it is refused."""
    if 0 in (checkpoint.config.get("moe_layer_freq") or ()):
        raise CheckpointFormat(f"{checkpoint.folder}: layers without experts cannot be loaded")
    config = decoder_config(Qwen3MoeConfig, checkpoint, _NAMES, _SUPPORTED, norm_topk_prob=False)
    config.head_dim = config.hidden_size // config.num_attention_heads
    return config


ARCHITECTURE = Architecture(LLADA_MOE, qwen3_moe_config)
