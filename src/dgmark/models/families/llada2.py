"""LLaDA 2.0 and 2.1 in transformers' Glm4Moe class: a mixture of experts with a block-causal mask.

The router is the same function, and attention has the same norms of queries and keys and the same partial rotary
embedding. Only names differ, and some tensors are split or stacked (queries, keys and values; the experts).
"""

from collections.abc import Mapping
from typing import Any

from transformers import Glm4MoeConfig, Glm4MoeForCausalLM
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import Concatenate, MergeModulelist, Split, WeightConverter

from dgmark.checkpoint.families import LLADA2
from dgmark.checkpoint.folder import Checkpoint
from dgmark.models.architecture import SIZES, Architecture, decoder_config

RENAMINGS = {
    r"^model\.word_embeddings\.": "model.embed_tokens.",
    r"\.attention\.dense\.": ".self_attn.o_proj.",
    r"\.attention\.query_layernorm\.": ".self_attn.q_norm.",
    r"\.attention\.key_layernorm\.": ".self_attn.k_norm.",
    r"\.attention\.query_key_value\.": ".self_attn.query_key_value.",
    r"\.mlp\.gate\.expert_bias$": ".mlp.gate.e_score_correction_bias",
}


class Llada2Network(Glm4MoeForCausalLM):  # type: ignore[no-untyped-call]
    """Glm4Moe under a name of its own, by which transformers finds the conversions below."""

    # what chooses the experts stays as it is stored, as transformers keeps it from 5.24 on
    _keep_in_fp32_modules_strict = ["e_score_correction_bias", "mlp.gate.weight"]  # noqa: RUF012

    def __init__(self, config: Glm4MoeConfig) -> None:
        super().__init__(config)
        # Glm4Moe ignores tensors of the extra layers in its own checkpoints; here an extra tensor is an error
        self._keys_to_ignore_on_load_unexpected = set()  # type: ignore[assignment]


register_checkpoint_conversion_mapping(
    Llada2Network.__name__,
    [
        WeightConverter(
            "self_attn.query_key_value.weight",
            ["self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"],
            operations=[Split(dim=0)],
        ),
        WeightConverter(
            ["mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"],
            "mlp.experts.gate_up_proj",
            operations=[MergeModulelist(dim=0), Concatenate(dim=1)],
        ),
        WeightConverter("mlp.experts.*.down_proj.weight", "mlp.experts.down_proj", operations=[MergeModulelist(dim=0)]),
    ],
    overwrite=True,
)

NAMES = {
    **{name: name for name in (*SIZES, "intermediate_size", "moe_intermediate_size", "num_experts_per_tok")},
    **{name: name for name in ("first_k_dense_replace", "routed_scaling_factor")},
    "n_routed_experts": "num_experts",
    "n_shared_experts": "num_shared_experts",
}
# the groups of experts, of which a token chooses some
_GROUPS = {name: name for name in ("n_group", "topk_group")}
# The only values of these switches that the Glm4Moe class supports.
SUPPORTED: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu",),
    "moe_router_enable_expert_bias": (True,),
    "norm_head": (False,),
    "norm_topk_prob": (True,),
    "rope_scaling": (None,),
    "score_function": ("sigmoid",),
    "use_bias": (False,),
    "use_qk_norm": (True,),
    "use_qkv_bias": (False,),
    "use_rmsnorm": (True,),
    "use_sliding_window": (False,),
    "using_split_qkv_in_self_attention": (False,),
}


def glm4_moe_config(
    checkpoint: Checkpoint,
    names: Mapping[str, str] = _GROUPS | NAMES,
    supported: Mapping[str, tuple[Any, ...]] = SUPPORTED | {"expert_capacity": (None, 0)},
    **fields: Any,
) -> Glm4MoeConfig:
    """LLaDA 2's configuration for transformers' Glm4Moe class; see `decoder_config`."""
    hidden, heads = checkpoint.require("hidden_size", "num_attention_heads")
    nested = checkpoint.config.get("rope_parameters") or {}  # where transformers 5 writes it
    rotary = nested.get("partial_rotary_factor", checkpoint.config.get("partial_rotary_factor", 0.5))
    return decoder_config(
        Glm4MoeConfig,
        checkpoint,
        names,
        supported,
        use_qk_norm=True,
        norm_topk_prob=True,
        num_mtp_layers=0,
        attention_bias=False,
        head_dim=checkpoint.config.get("head_dim") or hidden // heads,
        rope_parameters={"partial_rotary_factor": float(rotary)},
        **fields,
    )


ARCHITECTURE = Architecture(LLADA2, glm4_moe_config, lambda _: Llada2Network, RENAMINGS)
