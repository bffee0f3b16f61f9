"""Tiny random checkpoints of every family in its published layout, and the families once more from their description.

The forwards share nothing with the package or with transformers: plain sums over the published tensors.
"""

import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, models, pre_tokenizers
from torch import Tensor
from transformers import ModernBertConfig, ModernBertForMaskedLM, RobertaConfig, RobertaForMaskedLM

State = dict[str, Tensor]
Config = dict[str, Any]

WORDS = 60
SPECIAL = {
    "llada": (
        "<|mdm_mask|>", "<|endoftext|>", "<|eot_id|>", "<|startoftext|>", "<|start_header_id|>", "<|end_header_id|>",
    ),
    "dream": ("<|mask|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "block-llama": ("<|mask|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "sdar": ("<|MASK|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "sdar-moe": ("<|MASK|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "fast-dllm-v2": ("|<MASK>|", "<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "stable-diffcoder": (
        "<[MASK_TOKEN]>", "<[PAD]>", "<[end\u2581of\u2581sentence]>", "<[begin\u2581of\u2581sentence]>",
    ),
    "rnd1": ("<|mask|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "a2d-mdlm": ("<|mask|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "a2d-bd3lm": ("<|mask|>", "<|endoftext|>", "<|im_end|>", "<|im_start|>"),
    "nemotron": ("<SPECIAL_100>", "</s>", "<|im_end|>", "<|im_start|>"),
    "llada2": ("<|mask|>", "<|endoftext|>", "<|role_end|>", "<role>", "</role>"),
    "llada-moe": ("<|mask|>", "<|endoftext|>", "<|role_end|>", "<role>", "</role>"),
    "bert": ("[MASK]", "[SEP]", "[CLS]", "[PAD]"),
    "roberta": ("<mask>", "</s>", "<s>", "<pad>"),
    "modernbert": ("[MASK]", "[SEP]", "[CLS]", "[PAD]"),
}  # fmt: skip
VOCABULARY = 80

# What transformers' decoders state alike; each checkpoint has its own fields as well.
DECODER: Config = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
    "hidden_act": "silu",
    "vocab_size": VOCABULARY,
}
EXPERTS: Config = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
A2D: Config = DECODER | {
    "model_type": "a2d-qwen3",
    "architectures": ["A2DQwen3LMHeadModel"],
    "auto_map": {"AutoModelForMaskedLM": "modeling_qwen3.A2DQwen3LMHeadModel"},
    "head_dim": 16,
    "tie_word_embeddings": True,
}
SDAR: Config = DECODER | {"attention_bias": False, "head_dim": 16, "block_size": 4, "mask_token_id": 0}

CONFIGS: dict[str, Config] = {
    "llada": {
        "model_type": "llada",
        "architectures": ["LLaDAModelLM"],
        "auto_map": {"AutoModel": "modeling_llada.LLaDAModelLM"},
        "d_model": 32,
        "n_heads": 4,
        "n_kv_heads": 2,
        "n_layers": 3,
        "mlp_hidden_size": 48,
        "vocab_size": VOCABULARY - 2,
        "embedding_size": VOCABULARY,
        "weight_tying": False,
        "rope": True,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-5,
        "layer_norm_type": "rms",
        "block_type": "llama",
        "activation_type": "silu",
        "max_sequence_length": 512,
    },
    "dream": DECODER
    | {
        "model_type": "Dream",
        "architectures": ["DreamModel"],
        "auto_map": {"AutoModel": "modeling_dream.DreamModel"},
        "max_position_embeddings": 131072,
    },
    "block-llama": {name: value for name, value in DECODER.items() if not name.startswith("rope")}
    | {
        "model_type": "block_llama",
        "architectures": ["BlockLlamaModelLM"],
        "max_position_embeddings": 256,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000.0},
    },
    "sdar": SDAR | {"model_type": "sdar", "architectures": ["SDARForCausalLM"]},
    "sdar-moe": SDAR | EXPERTS | {"model_type": "sdar_moe", "architectures": ["SDARMoeForCausalLM"]},
    "fast-dllm-v2": DECODER
    | {
        "model_type": "Fast_dLLM_Qwen",
        "architectures": ["Fast_dLLM_QwenForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling.Fast_dLLM_QwenForCausalLM"},
        "bd_size": 16,
        "sliding_window": 32768,
        "tie_word_embeddings": True,
    },
    "stable-diffcoder": DECODER
    | {
        "model_type": "llama",
        "architectures": ["StableDiffcoderForCausalLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling_stable_diffcoder.StableDiffcoderForCausalLM"},
        "attention_bias": False,
        "mlp_bias": False,
        "eos_token_id": 2,
    },
    "rnd1": DECODER
    | EXPERTS
    | {
        "model_type": "rnd1",
        "architectures": ["RND1LM"],
        "auto_map": {"AutoModelForMaskedLM": "modeling_rnd.RND1LM"},
        "attention_bias": False,
        "head_dim": 16,
        "mask_token_id": 0,
        "moe_backend": "hf",
        "rope_scaling": False,
        "sliding_window": False,
    },
    "a2d-mdlm": A2D,
    "a2d-bd3lm": A2D,
    "nemotron": {name: value for name, value in DECODER.items() if not name.startswith("rope")}
    | {
        "model_type": "nemotron_labs_diffusion",
        "architectures": ["NemotronLabsDiffusionModel"],
        "auto_map": {"AutoModel": "modeling_nemotron_labs_diffusion.NemotronLabsDiffusionModel"},
        "attention_bias": False,
        "block_size": 32,
        "dlm_paradigm": "bidirectional",
        "head_dim": 16,
        "mask_token_id": 0,
        "max_position_embeddings": 256,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 16,
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.1,
        },
        "sliding_window": None,
    },
    "llada2": {
        "model_type": "llada2_moe",
        "architectures": ["LLaDA2MoeModelLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling_llada2_moe.LLaDA2MoeModelLM"},
        "hidden_size": 32,
        "intermediate_size": 48,
        "moe_intermediate_size": 16,
        "num_hidden_layers": 3,
        "first_k_dense_replace": 1,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "num_shared_experts": 1,
        "n_group": 4,
        "topk_group": 2,
        "routed_scaling_factor": 2.5,
        "norm_topk_prob": True,
        "score_function": "sigmoid",
        "hidden_act": "silu",
        "partial_rotary_factor": 0.5,
        "rope_theta": 600000,
        "rope_scaling": None,
        "rms_norm_eps": 1e-6,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
        "use_bias": False,
        "use_qkv_bias": False,
        "vocab_size": VOCABULARY,
    },
    "llada-moe": DECODER
    | {
        "model_type": "llada",
        "architectures": ["LLaDAMoEModelLM"],
        "auto_map": {"AutoModelForCausalLM": "modeling_lladamoe.LLaDAMoEModelLM"},
        "expert_intermediate_size": 16,
        "dense_intermediate_size": 48,
        "shared_expert_intermediate_size": None,
        "moe_layer_freq": [1, 1, 1],
        "num_experts": 6,
        "num_experts_per_tok": 2,
        "qk_layernorm": True,
        "clip_qkv": None,
        "norm_topk_prob": None,
    },
    "bert": {
        "model_type": "bert",
        "architectures": ["BertForMaskedLM"],
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 256,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "pad_token_id": 3,
        "vocab_size": VOCABULARY,
    },
}


# the family to state where config.json does not tell it
STATED = {name: name for name in ("a2d-mdlm", "a2d-bd3lm")}


def encoders() -> dict[str, Any]:
    """Random encoders, as transformers makes them."""
    torch.manual_seed(0)
    sizes: Config = {name: DECODER[name] for name in ("vocab_size", "hidden_size", "intermediate_size")}
    sizes |= {"num_hidden_layers": 3, "num_attention_heads": 4, "pad_token_id": 3, "initializer_range": 0.4}
    roberta = RobertaConfig(**sizes, max_position_embeddings=260)
    modernbert = ModernBertConfig(
        **sizes, max_position_embeddings=256, local_attention=8, initializer_cutoff_factor=3.0
    )
    return {"roberta": RobertaForMaskedLM(roberta), "modernbert": ModernBertForMaskedLM(modernbert)}


def tokenizer(family: str) -> tokenizers.Tokenizer:
    """Words split at spaces; the mask is id 0, the end of text id 1."""
    special = SPECIAL[family]
    names = [*special, *(f"w{word}" for word in range(WORDS))]
    backend = tokenizers.Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token="w0"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return backend


def write(folder: Path, family: str, state: State | None = None, **changes: Any) -> State:
    """A checkpoint folder; fields of config.json set to ... are left out. Returns the tensors."""
    config = {name: value for name, value in (CONFIGS[family] | changes).items() if value is not ...}
    state = STATES[family](config) if state is None else state
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(state, folder / "model.safetensors")
    tokenizer(family).save(str(folder / "tokenizer.json"))
    return state


def write_shards(folder: Path, state: State, shards: int = 2) -> None:
    """The same tensors in several files with an index."""
    (folder / "model.safetensors").unlink()
    names = sorted(state)
    files = {f"model-{i + 1:05}-of-{shards:05}.safetensors": names[i::shards] for i in range(shards)}
    for file, part in files.items():
        save_file({name: state[name] for name in part}, folder / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in files.items() for name in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


class Random:
    """Random tensors; norms differ from 1 and from each other, so that no two can be swapped."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def matrix(self, rows: int, columns: int, scale: float = 1.0) -> Tensor:
        return scale * torch.randn(rows, columns, generator=self.generator) / math.sqrt(columns)

    def norm(self, width: int) -> Tensor:
        return 0.5 + torch.rand(width, generator=self.generator)

    def mlp(self, prefix: str, hidden: int, width: int) -> State:
        sizes = {"gate": (hidden, width), "up": (hidden, width), "down": (width, hidden)}
        return {f"{prefix}.{name}_proj.weight": self.matrix(*size) for name, size in sizes.items()}

    def bias(self, width: int, scale: float = 0.3) -> Tensor:
        return scale * torch.randn(width, generator=self.generator)


def llada_state(config: Config) -> State:
    r, width, hidden, rows = Random(), config["d_model"], config["mlp_hidden_size"], config["embedding_size"]
    kv_width = width // config["n_heads"] * (config.get("n_kv_heads") or config["n_heads"])
    state = {"wte": r.matrix(rows, width, math.sqrt(width)), "ln_f": r.norm(width)}
    if not config["weight_tying"]:
        state["ff_out"] = r.matrix(rows, width, 3)
    for n in range(config["n_layers"]):
        block = {
            "attn_norm": r.norm(width),
            "ff_norm": r.norm(width),
            "q_proj": r.matrix(width, width, 2),
            "k_proj": r.matrix(kv_width, width, 2),
            "v_proj": r.matrix(kv_width, width),
            "attn_out": r.matrix(width, width),
            "ff_proj": r.matrix(hidden, width),
            "up_proj": r.matrix(hidden, width),
            "ff_out": r.matrix(width, hidden),
        }
        state |= {f"blocks.{n}.{name}": tensor for name, tensor in block.items()}
    return {f"model.transformer.{name}.weight": tensor for name, tensor in state.items()}


def decoder_state(config: Config, *, biases: bool = False, head_norms: bool = False) -> State:
    """The tensors of transformers' decoders: Llama's, with the biases of Qwen2 or the norms of heads of Qwen3."""
    r, width, rows = Random(1), config["hidden_size"], config["vocab_size"]
    dim = config.get("head_dim") or width // config["num_attention_heads"]
    q_width, kv_width = (dim * config[f"num_{name}_heads"] for name in ("attention", "key_value"))
    state = {"model.embed_tokens.weight": r.matrix(rows, width, math.sqrt(width)), "model.norm.weight": r.norm(width)}
    if not config["tie_word_embeddings"]:
        state["lm_head.weight"] = r.matrix(rows, width, 3)

    for n in range(config["num_hidden_layers"]):
        layer = {
            "input_layernorm.weight": r.norm(width),
            "post_attention_layernorm.weight": r.norm(width),
            "self_attn.q_proj.weight": r.matrix(q_width, width, 2),
            "self_attn.k_proj.weight": r.matrix(kv_width, width, 2),
            "self_attn.v_proj.weight": r.matrix(kv_width, width),
            "self_attn.o_proj.weight": r.matrix(width, q_width),
        }
        if biases:
            layer |= {f"self_attn.{p}_proj.bias": r.bias(q_width if p == "q" else kv_width) for p in "qkv"}
        if head_norms:
            layer |= {f"self_attn.{p}_norm.weight": r.norm(dim) for p in "qk"}
        if "num_experts" in config:
            layer["mlp.gate.weight"] = r.matrix(config["num_experts"], width, 3)
            hidden = config.get("moe_intermediate_size") or config["expert_intermediate_size"]
            for expert in range(config["num_experts"]):
                layer |= r.mlp(f"mlp.experts.{expert}", hidden, width)
        else:
            layer |= r.mlp("mlp", config["intermediate_size"], width)
        state |= {f"model.layers.{n}.{name}": tensor for name, tensor in layer.items()}
    return state


def llada2_state(config: Config) -> State:
    r, width, rows, dim = Random(2), config["hidden_size"], config["vocab_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    state = {
        "model.word_embeddings.weight": r.matrix(rows, width, math.sqrt(width)),
        "model.norm.weight": r.norm(width),
        "lm_head.weight": r.matrix(rows, width, 3),
    }

    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}."
        state |= {
            at + "input_layernorm.weight": r.norm(width),
            at + "post_attention_layernorm.weight": r.norm(width),
            at + "attention.query_key_value.weight": r.matrix((heads + 2 * kv_heads) * dim, width),
            at + "attention.dense.weight": r.matrix(width, heads * dim),
            at + "attention.query_layernorm.weight": r.norm(dim),
            at + "attention.key_layernorm.weight": r.norm(dim),
        }
        if n < config["first_k_dense_replace"]:
            state |= r.mlp(at + "mlp", config["intermediate_size"], width)
            continue
        state[at + "mlp.gate.weight"] = r.matrix(config["num_experts"], width, 3)
        state[at + "mlp.gate.expert_bias"] = r.bias(config["num_experts"])
        state |= r.mlp(at + "mlp.shared_experts", config["moe_intermediate_size"] * config["num_shared_experts"], width)
        for expert in range(config["num_experts"]):
            state |= r.mlp(f"{at}mlp.experts.{expert}", config["moe_intermediate_size"], width)
    return state


def bert_state(config: Config) -> State:
    r, width, hidden, rows = Random(3), config["hidden_size"], config["intermediate_size"], config["vocab_size"]

    def norm(prefix: str) -> State:
        return {f"{prefix}.weight": r.norm(width), f"{prefix}.bias": r.bias(width)}

    def linear(prefix: str, outputs: int, inputs: int) -> State:
        return {f"{prefix}.weight": r.matrix(outputs, inputs, 2), f"{prefix}.bias": r.bias(outputs)}

    embeddings = {
        "word_embeddings.weight": r.matrix(rows, width, math.sqrt(width)),
        "position_embeddings.weight": r.matrix(config["max_position_embeddings"], width, math.sqrt(width)),
        "token_type_embeddings.weight": r.matrix(config["type_vocab_size"], width),
        **norm("LayerNorm"),
    }
    state = {f"bert.embeddings.{name}": tensor for name, tensor in embeddings.items()}
    for n in range(config["num_hidden_layers"]):
        layer = {
            **linear("attention.self.query", width, width),
            **linear("attention.self.key", width, width),
            **linear("attention.self.value", width, width),
            **linear("attention.output.dense", width, width),
            **norm("attention.output.LayerNorm"),
            **linear("intermediate.dense", hidden, width),
            **linear("output.dense", width, hidden),
            **norm("output.LayerNorm"),
        }
        state |= {f"bert.encoder.layer.{n}.{name}": tensor for name, tensor in layer.items()}
    state |= linear("cls.predictions.transform.dense", width, width) | norm("cls.predictions.transform.LayerNorm")
    return state | {"cls.predictions.bias": r.bias(rows)}


def nemotron_state(config: Config) -> State:
    names = {"model.": "encoder.", "lm_head.": "diffusion_head."}
    state = decoder_state(config)
    return {new + name.removeprefix(old): t for name, t in state.items() for old, new in names.items() if old in name}


qwen2_state, qwen3_state = partial(decoder_state, biases=True), partial(decoder_state, head_norms=True)

STATES: dict[str, Callable[[Config], State]] = {
    "llada": llada_state,
    "dream": qwen2_state,
    "block-llama": decoder_state,
    "sdar": qwen3_state,
    "sdar-moe": qwen3_state,
    "fast-dllm-v2": qwen2_state,
    "stable-diffcoder": decoder_state,
    "rnd1": qwen3_state,
    "a2d-mdlm": qwen3_state,
    "a2d-bd3lm": qwen3_state,
    "nemotron": nemotron_state,
    "llada2": llada2_state,
    "llada-moe": qwen3_state,
    "bert": bert_state,
}


# ---- the families once more ----


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps) * weight + bias


def rotated(x: Tensor, theta: float) -> Tensor:
    """Rotary embedding: pairs (i, i + half) turned by position / theta**(i / half)."""
    half = x.shape[-1] // 2
    return turned(x, theta ** -(torch.arange(half) / half))


def rotary(fields: Config, half: int, length: int) -> tuple[Tensor, Tensor]:
    """Frequencies of the pairs, and the factor of the queries at each position.

    YaRN divides by `factor` the frequencies that turn less than `beta_slow` times within the original positions, leaves
    those that turn more than `beta_fast` times, and goes linearly by the number of the pair between them. Queries grow
    with the logarithm of the number of times that the original positions fit before them.
    """
    frequencies, place = fields["rope_theta"] ** -(torch.arange(half) / half), torch.arange(length)
    if fields.get("rope_type", "default") == "default":
        return frequencies, torch.ones(length)
    original = fields["original_max_position_embeddings"]
    low, high = (
        half * math.log(original / (turns * 2 * math.pi)) / math.log(fields["rope_theta"])
        for turns in (fields["beta_fast"], fields["beta_slow"])
    )
    low, high = max(math.floor(low), 0), min(math.ceil(high), 2 * half - 1)
    share = ((torch.arange(half) - low) / (high - low)).clamp(0, 1)
    lengths = 1 + fields["llama_4_scaling_beta"] * torch.log(1 + place // original)
    return frequencies * (1 - share) + frequencies / fields["factor"] * share, lengths


def turned(x: Tensor, frequencies: Tensor) -> Tensor:
    """Pairs (i, i + half) turned by position * frequency."""
    half = x.shape[-1] // 2
    angles = torch.arange(x.shape[-2])[:, None] * frequencies
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Softmax attention of (batch, heads, length, dim), heads side by side again; `allowed` is (query, key)."""
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -torch.inf)
    return (torch.softmax(scores, -1) @ v).transpose(1, 2).flatten(2)


def heads_of(x: Tensor, count: int) -> Tensor:
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def llada_logits(state: State, config: Config, ids: Tensor) -> Tensor:
    """Pre-norm blocks: bidirectional rotary attention, then SwiGLU; no biases, no mask, no shift."""
    heads, kv_heads = config["n_heads"], config.get("n_kv_heads") or config["n_heads"]
    eps, theta = config["rms_norm_eps"], config["rope_theta"]

    def weight(name: str) -> Tensor:
        return state[f"model.transformer.{name}.weight"].float()

    x = weight("wte")[ids]
    for n in range(config["n_layers"]):
        h = rms_norm(x, weight(f"blocks.{n}.attn_norm"), eps)
        q, k, v = (h @ weight(f"blocks.{n}.{p}_proj").T for p in "qkv")
        q, k = rotated(heads_of(q, heads), theta), rotated(heads_of(k, kv_heads), theta)
        x = x + attend(q, k, heads_of(v, kv_heads)) @ weight(f"blocks.{n}.attn_out").T
        h = rms_norm(x, weight(f"blocks.{n}.ff_norm"), eps)
        h = silu(h @ weight(f"blocks.{n}.ff_proj").T) * (h @ weight(f"blocks.{n}.up_proj").T)
        x = x + h @ weight(f"blocks.{n}.ff_out").T
    return rms_norm(x, weight("ln_f"), eps) @ weight("wte" if config["weight_tying"] else "ff_out").T


# Of the families of transformers' decoders: what a column sees, positions of a block of it, and the state that predicts
# a position: its own, the one before it, or the one before it for the first position of a decode's block only.
READINGS = {
    "dream": ("all", 0, "before"),
    "block-llama": ("text", 0, "before"),
    "sdar": ("blocks", 4, "own"),
    "sdar-moe": ("blocks", 4, "own"),
    "fast-dllm-v2": ("blocks", 16, "before"),
    "stable-diffcoder": ("blocks", 4, "own"),
    "rnd1": ("all", 0, "before"),
    "a2d-mdlm": ("all", 0, "own"),
    "a2d-bd3lm": ("response", 32, "own"),
    "nemotron": ("text", 0, "first before"),
    "llada-moe": ("all", 0, "own"),
}


def window_logits(family: str, state: State, config: Config, ids: Tensor, start: int, stop: int) -> Tensor:
    """Logits of the positions [start, stop) that are decoded together.

    "all": each column sees all others. "blocks": each sees its own block and earlier ones, counted from column 0, or
    from `start` ("response"); masks (id 0) fill the last block. "text": columns before `start` see those before them,
    the others see all up to `stop`.
    """
    sees, block, predictor = READINGS[family]
    first = start if sees == "response" else 0
    if sees == "text":
        ids = ids[:, :stop]
    elif sees != "all":
        ids = torch.cat([ids, ids.new_zeros(len(ids), (first - ids.shape[1]) % block)], 1)
    place = torch.arange(ids.shape[1])
    number = (place - first) // block if block else torch.zeros_like(place)
    allowed = number[None] <= number[:, None]
    if sees == "text":
        allowed = (place[None] <= place[:, None]) | (place >= start)[:, None]
    states = torch.arange(start, stop) - int(predictor == "before")
    if predictor == "first before":
        states[0] -= 1
    return decoder_logits(state, config, ids, allowed)[:, states.clamp(min=0)]


def decoder_logits(state: State, config: Config, ids: Tensor, allowed: Tensor) -> Tensor:
    """Pre-norm blocks: rotary attention, then SwiGLU; biases, norms of heads and experts where they have tensors."""
    state = {n.replace("encoder.", "model.").replace("diffusion_head.", "lm_head."): t for n, t in state.items()}
    heads = {"q": config["num_attention_heads"], "k": config["num_key_value_heads"], "v": config["num_key_value_heads"]}
    eps = config["rms_norm_eps"]
    dim = config.get("head_dim") or config["hidden_size"] // heads["q"]
    frequencies, lengths = rotary(config.get("rope_parameters") or config, dim // 2, ids.shape[1])
    x = state["model.embed_tokens.weight"][ids]
    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}."
        w = {name.removeprefix(at): t for name, t in state.items() if name.startswith(at)}
        h = rms_norm(x, w["input_layernorm.weight"], eps)
        projected = {p: h @ w[f"self_attn.{p}_proj.weight"].T + w.get(f"self_attn.{p}_proj.bias", 0) for p in "qkv"}
        q, k, v = (heads_of(t, heads[p]) for p, t in projected.items())
        if "self_attn.q_norm.weight" in w:
            q, k = (rms_norm(t, w[f"self_attn.{p}_norm.weight"], eps) for p, t in (("q", q), ("k", k)))
        q, k = turned(q, frequencies) * lengths[:, None], turned(k, frequencies)
        x = x + attend(q, k, v, allowed) @ w["self_attn.o_proj.weight"].T
        h = rms_norm(x, w["post_attention_layernorm.weight"], eps)
        x = x + (experts(h, w, config) if "mlp.gate.weight" in w else swiglu(h, w, "mlp"))
    head = state.get("lm_head.weight", state["model.embed_tokens.weight"])
    return rms_norm(x, state["model.norm.weight"], eps) @ head.T


def swiglu(h: Tensor, w: State, prefix: str) -> Tensor:
    gate, up, down = (w[f"{prefix}.{name}_proj.weight"] for name in ("gate", "up", "down"))
    return (silu(h @ gate.T) * (h @ up.T)) @ down.T


def experts(h: Tensor, w: State, config: Config) -> Tensor:
    """The experts with the highest weights of a softmax over all; their weights sum to 1 if they are normalised."""
    weights = torch.softmax(h @ w["mlp.gate.weight"].T, -1)
    least = weights.topk(config["num_experts_per_tok"], -1).values[..., -1:]
    weights = torch.where(weights >= least, weights, 0.0)
    if config["norm_topk_prob"]:
        weights = weights / weights.sum(-1, keepdim=True)
    each = [weights[..., n, None] * swiglu(h, w, f"mlp.experts.{n}") for n in range(config["num_experts"])]
    return torch.stack(each).sum(0)


def llada2_logits(state: State, config: Config, ids: Tensor, mask_id: int = 0, block: int = 32) -> Tensor:
    """Blocks see themselves and earlier blocks; the last is filled up with masks. Norms on queries and keys, half a
    rotary embedding, experts chosen by groups from sigmoid scores with a bias that only chooses."""
    heads, kv_heads, dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    eps, turned = config["rms_norm_eps"], int(dim * config["partial_rotary_factor"])
    length = ids.shape[1]
    ids = torch.cat([ids, torch.full((len(ids), -length % block), mask_id)], 1)
    place = torch.arange(ids.shape[1]) // block
    allowed = place[None, :] <= place[:, None]

    def turn(x: Tensor) -> Tensor:
        return torch.cat([rotated(x[..., :turned], config["rope_theta"]), x[..., turned:]], -1)

    def routed(h: Tensor, prefix: str) -> Tensor:
        out = swiglu(h, state, f"{prefix}.shared_experts")
        for row, token in ((row, t) for row in range(h.shape[0]) for t in range(h.shape[1])):
            scores = torch.sigmoid(state[f"{prefix}.gate.weight"] @ h[row, token])
            choice = (scores + state[f"{prefix}.gate.expert_bias"]).view(config["n_group"], -1)
            groups = choice.topk(2, -1).values.sum(-1).topk(config["topk_group"]).indices
            barred = torch.full_like(choice, -torch.inf)
            barred[groups] = choice[groups]
            chosen = barred.flatten().topk(config["num_experts_per_tok"]).indices
            weights = scores[chosen] / scores[chosen].sum() * config["routed_scaling_factor"]
            for expert, weight in zip(chosen.tolist(), weights, strict=True):
                out[row, token] += weight * swiglu(h[row, token], state, f"{prefix}.experts.{expert}")
        return out

    x = state["model.word_embeddings.weight"][ids]
    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}."
        h = rms_norm(x, state[at + "input_layernorm.weight"], eps)
        fused = h @ state[at + "attention.query_key_value.weight"].T
        q, k, v = torch.split(fused, [heads * dim, kv_heads * dim, kv_heads * dim], -1)
        q = turn(rms_norm(heads_of(q, heads), state[at + "attention.query_layernorm.weight"], eps))
        k = turn(rms_norm(heads_of(k, kv_heads), state[at + "attention.key_layernorm.weight"], eps))
        x = x + attend(q, k, heads_of(v, kv_heads), allowed) @ state[at + "attention.dense.weight"].T
        h = rms_norm(x, state[at + "post_attention_layernorm.weight"], eps)
        x = x + (swiglu(h, state, at + "mlp") if n < config["first_k_dense_replace"] else routed(h, at + "mlp"))
    return (rms_norm(x, state["model.norm.weight"], eps) @ state["lm_head.weight"].T)[:, :length]


def bert_logits(state: State, config: Config, ids: Tensor) -> Tensor:
    """Post-norm encoder with learned positions; the output matrix is the embedding."""
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    gelu = torch.nn.functional.gelu

    def linear(x: Tensor, name: str) -> Tensor:
        return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        return layer_norm(x, state[f"{name}.weight"], state[f"{name}.bias"], eps)

    at = "bert.embeddings."
    x = state[at + "word_embeddings.weight"][ids] + state[at + "position_embeddings.weight"][: ids.shape[1]]
    x = norm(x + state[at + "token_type_embeddings.weight"][0], at + "LayerNorm")
    for n in range(config["num_hidden_layers"]):
        at = f"bert.encoder.layer.{n}."
        q, k, v = (heads_of(linear(x, f"{at}attention.self.{p}"), heads) for p in ("query", "key", "value"))
        x = norm(x + linear(attend(q, k, v), at + "attention.output.dense"), at + "attention.output.LayerNorm")
        x = norm(x + linear(gelu(linear(x, at + "intermediate.dense")), at + "output.dense"), at + "output.LayerNorm")
    x = norm(gelu(linear(x, "cls.predictions.transform.dense")), "cls.predictions.transform.LayerNorm")
    return x @ state["bert.embeddings.word_embeddings.weight"].T + state["cls.predictions.bias"]
