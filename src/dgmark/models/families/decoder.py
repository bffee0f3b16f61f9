"""Families that load into a decoder class of transformers under its own names for tensors and fields.

What differs between them stands in the table (`dgmark.checkpoint.families`).
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig

from dgmark.checkpoint.families import Family
from dgmark.checkpoint.folder import Checkpoint
from dgmark.models.architecture import SIZES, Architecture, auto_class, decoder_config

_FIELDS = (*SIZES, "intermediate_size")
_EXPERT_FIELDS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
# passed on where config.json states them
_OPTIONAL = ("head_dim", "hidden_act")
# The only values of these switches that can be loaded; the first is the default.
_ONLY: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),  # Qwen2's own biases have no switch
    "decoder_sparse_step": (1,),
    "mlp_bias": (False, None),
    "mlp_only_layers": ([], None),
    "rope_scaling": (None, {}, False),
    "use_sliding_window": (False, None),
}


def decoder(
    family: Family, renamings: Mapping[str, str] | None = None, only: Mapping[str, tuple[Any, ...]] | None = None
) -> Architecture:
    """The architecture of a family that states its `network`.

    Args:
        family: the family.
        renamings: see `Architecture`.
        only: further switches of config.json with the values that can be loaded.
    """
    config = partial(_config, str(family.network), {**_ONLY, **(only or {})})
    return Architecture(family, config, partial(auto_class, MODEL_FOR_CAUSAL_LM_MAPPING), renamings or {})


def _config(network: str, only: Mapping[str, tuple[Any, ...]], checkpoint: Checkpoint) -> PretrainedConfig:
    """The checkpoint's configuration for transformers' class, with attention left to the session's masks.

    Raises:
        CheckpointFormat: a switch has a value that cannot be loaded, or a field is missing.
    """
    experts = "num_experts" in checkpoint.config
    names = _FIELDS + (_EXPERT_FIELDS if experts else ())
    fields = dict(zip(names, checkpoint.require(*names), strict=True))
    fields |= {name: checkpoint.config[name] for name in _OPTIONAL if checkpoint.config.get(name) is not None}
    return decoder_config(CONFIG_MAPPING[network + ("_moe" if experts else "")], checkpoint, only, **fields)
