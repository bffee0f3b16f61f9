"""Nemotron-Labs-Diffusion in transformers' Ministral3 class, in its masked mode.

Finished text is read left to right, and a block from both sides by the same weights. A masked position is predicted in
place, the first one of a block by the text before it, as the published decoding does. Its other two modes, one token
after another and drafts that this mode writes and the first one checks, leave no order to choose.
"""

from typing import Any

from transformers import PretrainedConfig

from dgmark.checkpoint.families import NEMOTRON
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat
from dgmark.models.architecture import Architecture
from dgmark.models.families.decoder import decoder

_RENAMINGS = {r"^encoder\.": "model.", r"^diffusion_head\.": "lm_head."}
# The only values of these switches that can be loaded; the first is the default.
_ONLY: dict[str, tuple[Any, ...]] = {"dlm_paradigm": ("bidirectional",), "sliding_window": (None,)}
# of rope_parameters, beside those that transformers asks for: queries of later positions are longer
_SCALING = ("llama_4_scaling_beta", "original_max_position_embeddings")

_DECODER = decoder(NEMOTRON, _RENAMINGS, _ONLY)


def _config(checkpoint: Checkpoint) -> PretrainedConfig:
    (rotary,) = checkpoint.require("rope_parameters")
    missing = [name for name in _SCALING if name not in rotary]
    if missing:
        raise CheckpointFormat(f"{checkpoint.folder}: rope_parameters lacks {', '.join(missing)}")
    return _DECODER.config(checkpoint)


ARCHITECTURE = Architecture(NEMOTRON, _config, _DECODER.network, _RENAMINGS)
