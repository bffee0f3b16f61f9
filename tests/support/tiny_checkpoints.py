"""Tiny random checkpoints of every family in its published layout, and its decoders once more from their description.

The forwards share nothing with the package or with transformers: plain sums over the published tensors.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, models, pre_tokenizers
from torch import Tensor

from dgmark.models.load import NetworkDenoiser, load_model

State = dict[str, Tensor]
Config = dict[str, Any]

WORDS = 60

# Of each family: its special tokens, and what its config.json states; what a column sees, the positions of a block of
# it, and the state that predicts a position: its own, the one before it, or the one before it for the first position of
# a decode's block only; the options of `decoder_state`, and where its layout calls tensors otherwise than transformers'
# decoders, their name and the layout's.
_FAMILIES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
SPECIAL: dict[str, list[str]] = {family: one["special"] for family, one in _FAMILIES.items()}
CONFIGS: dict[str, Config] = {family: one["config"] for family, one in _FAMILIES.items()}
READINGS: dict[str, tuple[str, int, str]] = {
    family: (one["sees"], one["block"], one["predictor"]) for family, one in _FAMILIES.items()
}
# by architecture
NAMES: dict[str, dict[str, str]] = {
    one["config"]["architectures"][0]: one.get("names", {}) for one in _FAMILIES.values()
}
# the family to state where config.json does not tell it
STATED = {name: name for name in ("a2d-mdlm", "a2d-bd3lm")}


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


def load(folder: Path, dtype: str | torch.dtype = "fp32", **options: Any) -> NetworkDenoiser:
    """The model in a folder, on the CPU."""
    model = load_model(str(folder), dtype=dtype, device="cpu", **options)
    assert isinstance(model, NetworkDenoiser)
    return model


def random_ids(length: int, batch: int = 2, seed: int = 0) -> Tensor:
    return torch.randint(0, 64, (batch, length), generator=torch.Generator().manual_seed(seed))


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


# LLaDA's names of sizes
SIZES = {
    "hidden_size": "d_model",
    "intermediate_size": "mlp_hidden_size",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "num_key_value_heads": "n_kv_heads",
    "tie_word_embeddings": "weight_tying",
    "vocab_size": "embedding_size",
}


def as_decoder(config: Config) -> Config:
    """The configuration with the sizes under transformers' names, and the width of a head."""
    sizes = config | {name: config[own] for name, own in SIZES.items() if own in config}
    sizes["num_key_value_heads"] = sizes.get("num_key_value_heads") or sizes["num_attention_heads"]
    sizes["head_dim"] = config.get("head_dim") or sizes["hidden_size"] // sizes["num_attention_heads"]
    return sizes


def layout(config: Config) -> list[tuple[str, str]]:
    """Names of tensors, and what the published layout calls them."""
    (architecture,) = config.get("architectures") or ("",)
    return list(NAMES.get(architecture, {}).items())


def renamed(state: State, names: Iterable[tuple[str, str]]) -> State:
    for old, new in names:
        state = {name.replace(old, new): tensor for name, tensor in state.items()}
    return state


def decoder_state(config: Config, *, biases: bool = False, head_norms: bool = False) -> State:
    """The tensors of a decoder in its published layout: Llama's, with Qwen2's biases or Qwen3's norms of heads."""
    names, config = layout(config), as_decoder(config)
    r, width, rows, dim = Random(1), config["hidden_size"], config["vocab_size"], config["head_dim"]
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
        if "num_shared_experts" in config:  # LLaDA 2, which has one matrix for the three
            layer["self_attn.qkv.weight"] = torch.cat([layer.pop(f"self_attn.{p}_proj.weight") for p in "qkv"])
        if biases:
            layer |= {f"self_attn.{p}_proj.bias": r.bias(q_width if p == "q" else kv_width) for p in "qkv"}
        if head_norms:
            layer |= {f"self_attn.{p}_norm.weight": r.norm(dim) for p in "qk"}
        if "num_experts" in config and n >= config.get("first_k_dense_replace", 0):
            layer |= experts_state(r, config)
        else:
            layer |= r.mlp("mlp", config["intermediate_size"], width)
        state |= {f"model.layers.{n}.{name}": tensor for name, tensor in layer.items()}
    return renamed(state, names)


def experts_state(r: Random, config: Config) -> State:
    """The experts of a layer and what chooses them."""
    width, count = config["hidden_size"], config["num_experts"]
    hidden = config.get("moe_intermediate_size") or config["expert_intermediate_size"]
    state = {"mlp.gate.weight": r.matrix(count, width, 3)}
    if "num_shared_experts" in config:
        state["mlp.gate.expert_bias"] = r.bias(count)
        state |= r.mlp("mlp.shared_experts", hidden * config["num_shared_experts"], width)
    for expert in range(count):
        state |= r.mlp(f"mlp.experts.{expert}", hidden, width)
    return state


STATES: dict[str, Callable[[Config], State]] = {
    family: partial(decoder_state, **one["options"]) for family, one in _FAMILIES.items()
}


# ---- the decoders once more ----


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


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


def turned(x: Tensor, frequencies: Tensor, first_position: int = 0) -> Tensor:
    """Pairs (i, i + half) turned by position * frequency; what has no frequency stays."""
    half = len(frequencies)
    angles = torch.arange(first_position, first_position + x.shape[-2])[:, None] * frequencies
    first, second, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


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


def decoder_logits(state: State, config: Config, ids: Tensor, allowed: Tensor | None = None) -> Tensor:
    """Pre-norm blocks: rotary attention, then SwiGLU; biases, norms of heads and experts where they have tensors."""
    names, config = layout(config), as_decoder(config)
    state = renamed(state, [(own, name) for name, own in names])
    counts = [config["num_attention_heads"], config["num_key_value_heads"], config["num_key_value_heads"]]
    eps, dim = config["rms_norm_eps"], config["head_dim"]
    half = int(dim * config.get("partial_rotary_factor", 1)) // 2
    frequencies, lengths = rotary(config.get("rope_parameters") or config, half, ids.shape[1])
    x = state["model.embed_tokens.weight"].float()[ids]
    for n in range(config["num_hidden_layers"]):
        at = f"model.layers.{n}."
        w = {name.removeprefix(at): t.float() for name, t in state.items() if name.startswith(at)}
        h = rms_norm(x, w["input_layernorm.weight"], eps)
        if "self_attn.qkv.weight" in w:
            projected = torch.split(h @ w["self_attn.qkv.weight"].T, [dim * count for count in counts], -1)
        else:
            projected = tuple(
                h @ w[f"self_attn.{p}_proj.weight"].T + w.get(f"self_attn.{p}_proj.bias", 0) for p in "qkv"
            )
        q, k, v = (heads_of(t, count) for t, count in zip(projected, counts, strict=True))
        if "self_attn.q_norm.weight" in w:
            q, k = (rms_norm(t, w[f"self_attn.{p}_norm.weight"], eps) for p, t in (("q", q), ("k", k)))
        q, k = turned(q, frequencies) * lengths[:, None], turned(k, frequencies)
        x = x + attend(q, k, v, allowed) @ w["self_attn.o_proj.weight"].T
        h = rms_norm(x, w["post_attention_layernorm.weight"], eps)
        x = x + (experts(h, w, config) if "mlp.gate.weight" in w else swiglu(h, w, "mlp"))
    head = state.get("lm_head.weight", state["model.embed_tokens.weight"])
    return rms_norm(x, state["model.norm.weight"].float(), eps) @ head.float().T


def swiglu(h: Tensor, w: Mapping[str, Tensor], prefix: str) -> Tensor:
    gate, up, down = (w[f"{prefix}.{name}_proj.weight"] for name in ("gate", "up", "down"))
    return (silu(h @ gate.T) * (h @ up.T)) @ down.T


def experts(h: Tensor, w: State, config: Config) -> Tensor:
    """The experts with the highest weights of a softmax over all; their weights sum to 1 if they are normalised.

    LLaDA 2: sigmoids take the place of the softmax, and a bias is added that only chooses. Groups of experts are chosen
    first, by the sum of their best two. Further experts serve every token. LLaDA 2.2: in place of the groups, each
    block bars the experts that are not among the best, by their best score in the block.
    """
    scores = h @ w["mlp.gate.weight"].T
    grouped = "n_group" in config
    weights = torch.sigmoid(scores) if grouped else torch.softmax(scores, -1)
    ranked = weights
    if "expert_capacity" in config:
        blocks = (weights + w["mlp.gate.expert_bias"]).view(len(h), -1, config["block_size"], weights.shape[-1])
        most = blocks.amax(2, keepdim=True)
        barred = most < most.topk(config["expert_capacity"], -1).values[..., -1:]
        ranked = blocks.masked_fill(barred, -torch.inf).flatten(1, 2)
    elif grouped:
        groups = (weights + w["mlp.gate.expert_bias"]).view(*h.shape[:-1], config["n_group"], -1)
        of_group = groups.topk(2, -1).values.sum(-1)
        barred = of_group < of_group.topk(config["topk_group"], -1).values[..., -1:]
        ranked = groups.masked_fill(barred[..., None], -torch.inf).flatten(-2)
    least = ranked.topk(config["num_experts_per_tok"], -1).values[..., -1:]
    weights = torch.where(ranked >= least, weights, 0.0)
    if config["norm_topk_prob"]:
        weights = weights / weights.sum(-1, keepdim=True)
    weights = weights * config.get("routed_scaling_factor", 1)
    each = [weights[..., n, None] * swiglu(h, w, f"mlp.experts.{n}") for n in range(config["num_experts"])]
    shared = swiglu(h, w, "mlp.shared_experts") if grouped else 0
    return torch.stack(each).sum(0) + shared
