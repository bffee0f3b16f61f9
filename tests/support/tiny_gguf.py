"""Tiny Llamas as GGUF files, written by the gguf package with rows ordered as llama.cpp has them."""

from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, GGUFWriter, quantize
from tokenizers import pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
MERGES = ("Ġ a", "t h", "th e")
TOKENS = (*SPECIAL, *ALPHABET, "Ġa", "th", "the")
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def llama(seed: int = 0) -> LlamaForCausalLM:
    """A Llama of two blocks with tied embeddings."""
    torch.manual_seed(seed)
    network = LlamaForCausalLM(config())
    with torch.no_grad():
        for name, param in network.named_parameters():
            param.copy_(0.5 + torch.rand_like(param) if "norm" in name else 0.3 * torch.randn_like(param))
    network.train(False)
    return network


def config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=len(TOKENS),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
    )


def write(path: Path, network: LlamaForCausalLM, kind: GGMLQuantizationType = GGMLQuantizationType.F32) -> None:
    """Write the network as a GGUF file, with its matrices in this quantization."""
    writer: Any = GGUFWriter(path, "llama")
    sizes: Any = network.config
    writer.add_block_count(sizes.num_hidden_layers)
    writer.add_context_length(sizes.max_position_embeddings)
    writer.add_embedding_length(sizes.hidden_size)
    writer.add_feed_forward_length(sizes.intermediate_size)
    writer.add_head_count(sizes.num_attention_heads)
    writer.add_head_count_kv(sizes.num_key_value_heads)
    writer.add_layer_norm_rms_eps(sizes.rms_norm_eps)
    writer.add_rope_freq_base(5000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3] * len(SPECIAL) + [1] * (len(TOKENS) - len(SPECIAL)))
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, tensor in network.model.state_dict().items():
        values = tensor.numpy()
        for part, heads in (("q_proj", sizes.num_attention_heads), ("k_proj", sizes.num_key_value_heads)):
            if part in name:
                values = values[interleaved(len(values), heads)]
        wanted = kind if values.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(gguf_name(name), quantize(values, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleaved(rows: int, heads: int) -> list[int]:
    """Rows in llama.cpp's order: row 2 i of a head is i, row 2 i + 1 is i + half."""
    size = rows // heads
    return [head * size + (place // 2) + (place % 2) * (size // 2) for head in range(heads) for place in range(size)]


def gguf_name(name: str) -> str:
    if name in ("embed_tokens.weight", "norm.weight"):
        return {"embed_tokens.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}[name]
    _, number, rest = name.split(".", 2)
    return f"blk.{number}.{NAMES[rest.removesuffix('.weight')]}.weight"


def adapters(network: LlamaForCausalLM, rank: int = 2) -> dict[str, torch.Tensor]:
    """Random adapters on all linear layers of the blocks, and a mask vector, in bf16."""
    generator = torch.Generator().manual_seed(1)

    def random(*shape: int) -> torch.Tensor:
        return (0.3 * torch.randn(*shape, generator=generator)).to(torch.bfloat16)

    made = {"mask_vector": random(network.config.hidden_size)}
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Linear) and ".layers." in name:
            made[f"{name}.down"] = random(rank, module.in_features)
            made[f"{name}.up"] = random(module.out_features, rank)
    return made
