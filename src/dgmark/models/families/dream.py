"""Dream and Dream-Coder in transformers' Qwen2 class, with bidirectional attention and the same tensor names.

Dream was made from an autoregressive model and kept its alignment: the hidden state at i - 1 predicts position i.
Dream's own code shifts the logits after the network, and so does the session.
"""

from transformers import Qwen2Config, Qwen2ForCausalLM

from dgmark.checkpoint.families import DREAM
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat
from dgmark.models.architecture import Architecture
from dgmark.models.sessions.bidirectional import NetworkSession


def qwen2_config(checkpoint: Checkpoint) -> Qwen2Config:
    """Dream's configuration for transformers' Qwen2 class, with bidirectional attention.

    Raises:
        CheckpointFormat: a switch has a value that cannot be loaded, or a field is missing.
    """
    source = checkpoint.config
    if source.get("use_sliding_window") or source.get("rope_scaling"):
        raise CheckpointFormat(f"{checkpoint.folder}: sliding windows and scaled rotary embeddings cannot be loaded")
    width, hidden, layers, heads, kv_heads, context, eps, theta = checkpoint.require(
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "max_position_embeddings",
        "rms_norm_eps",
        "rope_theta",
    )
    config = Qwen2Config(
        hidden_size=width,
        intermediate_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=checkpoint.vocab_size,
        max_position_embeddings=context,
        rms_norm_eps=eps,
        rope_parameters={"rope_type": "default", "rope_theta": float(theta)},
        tie_word_embeddings=bool(source.get("tie_word_embeddings", False)),
        hidden_act=source.get("hidden_act", "silu"),
    )
    config.is_causal = False
    return config


ARCHITECTURE = Architecture(
    DREAM,
    qwen2_config,
    lambda _: Qwen2ForCausalLM,
    lambda network, cache, _, padding: NetworkSession(network, cache, shift=DREAM.shift, padding=padding),
)
