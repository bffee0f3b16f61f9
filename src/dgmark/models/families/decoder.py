"""Families that load into a decoder class of transformers under its own names for fields; Nemotron with one check more.

What differs between them stands in the table (`dgmark.checkpoint.families`).
"""

from functools import partial
from typing import Any

from transformers import CONFIG_MAPPING, PretrainedConfig

from dgmark.checkpoint.families import FAMILIES, NEMOTRON, Family
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat
from dgmark.models.architecture import SIZES, Architecture, decoder_config

_FIELDS = (*SIZES, "intermediate_size")
_EXPERT_FIELDS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
# passed on where config.json states them
_OPTIONAL = ("head_dim", "hidden_act")
# The only values of these switches that can be loaded; the first is the default.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "attention_bias": (False, None),  # Qwen2's own biases have no switch
    "decoder_sparse_step": (1,),
    "mlp_bias": (False, None),
    "mlp_only_layers": ([], None),
    "rope_scaling": (None, {}, False),
    "use_sliding_window": (False, None),
}
# Nemotron's, in its masked mode. Its other two modes, one token after another and drafts that this mode writes and the
# first one checks, leave no order to choose.
_NEMOTRON_SUPPORTED: dict[str, tuple[Any, ...]] = {"dlm_paradigm": ("bidirectional",), "sliding_window": (None,)}
# of Nemotron's rope_parameters, beside those that transformers asks for: queries of later positions are longer
_NEMOTRON_ROTARY = ("llama_4_scaling_beta", "original_max_position_embeddings")
# names of tensors that are not those of the class, by family
_RENAMINGS = {NEMOTRON.name: {r"^encoder\.": "model.", r"^diffusion_head\.": "lm_head."}}


def _config(family: Family, checkpoint: Checkpoint) -> PretrainedConfig:
    """The checkpoint's configuration for transformers' class; see `decoder_config` for what is refused."""
    supported = _SUPPORTED
    if family is NEMOTRON:
        supported = supported | _NEMOTRON_SUPPORTED
        (rotary,) = checkpoint.require("rope_parameters")
        missing = [name for name in _NEMOTRON_ROTARY if name not in rotary]
        if missing:
            raise CheckpointFormat(f"{checkpoint.folder}: rope_parameters lacks {', '.join(missing)}")
    experts = "num_experts" in checkpoint.config
    names = _FIELDS + (_EXPERT_FIELDS if experts else ())
    optional = {name: checkpoint.config[name] for name in _OPTIONAL if checkpoint.config.get(name) is not None}
    kind = CONFIG_MAPPING[f"{family.network}_moe" if experts else str(family.network)]
    return decoder_config(kind, checkpoint, dict(zip(names, names, strict=True)), supported, **optional)


ARCHITECTURES = tuple(
    Architecture(family, partial(_config, family), renamings=_RENAMINGS.get(family.name, {}))
    for family in FAMILIES.values()
    if family.network is not None
)
