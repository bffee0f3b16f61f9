"""Dream and Dream-Coder in transformers' Qwen2 class, with bidirectional attention and the same tensor names.

Dream was made from an autoregressive model and kept its alignment: the hidden state at i - 1 predicts position i.
Dream's own code shifts the logits after the network, and so does the session.
"""

from typing import Any

from transformers import Qwen2Config, Qwen2ForCausalLM

from dgmark.checkpoint.families import DREAM
from dgmark.checkpoint.folder import Checkpoint
from dgmark.models.architecture import SIZES, Architecture, decoder_config
from dgmark.models.sessions.bidirectional import BidirectionalSession

_FIELDS = (*SIZES, "intermediate_size")
# The only values of these switches that can be loaded.
_ONLY: dict[str, tuple[Any, ...]] = {"use_sliding_window": (False, None), "rope_scaling": (None, {}, False)}


def qwen2_config(checkpoint: Checkpoint) -> Qwen2Config:
    """Dream's configuration for transformers' Qwen2 class, with bidirectional attention.

    Raises:
        CheckpointFormat: a switch has a value that cannot be loaded, or a field is missing.
    """
    fields = dict(zip(_FIELDS, checkpoint.require(*_FIELDS), strict=True))
    activation = checkpoint.config.get("hidden_act", "silu")
    return decoder_config(Qwen2Config, checkpoint, _ONLY, **fields, hidden_act=activation)


ARCHITECTURE = Architecture(
    DREAM,
    qwen2_config,
    lambda _: Qwen2ForCausalLM,
    lambda network, cache, _, padding: BidirectionalSession(network, cache, shift=DREAM.shift, padding=padding),
)
