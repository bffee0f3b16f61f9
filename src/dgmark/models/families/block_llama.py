"""A Llama that adapters turned into a block diffusion model, in transformers' Llama class.

It reads finished text from left to right, like the autoregressive model that it was, and fills a block from both sides.
"""

from transformers import LlamaConfig, LlamaForCausalLM

from dgmark.checkpoint.families import BLOCK_LLAMA
from dgmark.checkpoint.folder import Checkpoint
from dgmark.models.architecture import Architecture, own_config
from dgmark.models.sessions.causal import CausalPrefixSession


def llama_config(checkpoint: Checkpoint) -> LlamaConfig:
    """The configuration for transformers' Llama class.

    Raises:
        CheckpointFormat: a field is missing.
    """
    checkpoint.require(
        "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "rope_parameters"
    )
    fields = {
        name: value for name, value in own_config(checkpoint).items() if name not in ("model_type", "architectures")
    }
    config = LlamaConfig(**fields)
    config.is_causal = False  # the sessions set the attention mask
    return config


ARCHITECTURE = Architecture(
    BLOCK_LLAMA,
    llama_config,
    lambda _: LlamaForCausalLM,
    lambda network, cache, _, padding: CausalPrefixSession(network, cache, padding=padding),
)
