"""LLaDA checkpoints in transformers' own Llama class: bidirectional attention, no remote code.

Only names differ between the two: `model.transformer.blocks.N.ff_proj` is `model.layers.N.mlp.gate_proj`, and so
on. Logits are aligned with positions (no shift).
"""

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from dgmark.checkpoint import Checkpoint
from dgmark.errors import CheckpointFormat, ModelNotFound
from dgmark.models.denoiser import CacheMode, Session
from dgmark.models.session import NetworkSession
from dgmark.tokenizer import Tokenizer, load_tokenizer

_BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
_TOP_NAMES = {
    "model.transformer.wte.weight": "model.embed_tokens.weight",
    "model.transformer.ln_f.weight": "model.norm.weight",
    "model.transformer.ff_out.weight": "lm_head.weight",
}


@dataclass(frozen=True)
class LladaDenoiser:
    """A LLaDA model as a `Denoiser`, `WindowDenoiser` and `SessionDenoiser`."""

    name: str
    tokenizer: Tokenizer
    mask_id: int
    end_ids: tuple[int, ...]
    vocab_size: int
    context_length: int
    network: LlamaForCausalLM = field(repr=False)

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self.network.device

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the weights and of the forward."""
        return self.network.dtype

    @torch.inference_mode()
    def __call__(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Logits of every position."""
        return self.window(ids, 0, ids.shape[1])

    @torch.inference_mode()
    def window(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Logits of the positions [start, stop): the output matrix is applied to these alone."""
        return self.session("none").begin(ids, start, stop)

    def session(self, cache: CacheMode) -> Session:
        """The forwards of one decode; the caches are approximations, as attention is bidirectional."""
        return NetworkSession(self.network, cache)


def load_llada(checkpoint: Checkpoint, *, device: torch.device, dtype: torch.dtype) -> LladaDenoiser:
    """Load a checkpoint in LLaDA's layout.

    Raises:
        CheckpointFormat: a setting this loader does not know, or tensors that are missing or too many.
        ModelNotFound: no safetensors weights in the folder.
    """
    config = llama_config(checkpoint)
    with torch.device("meta"):  # no memory yet: the checkpoint's own tensors become the parameters
        network = LlamaForCausalLM(config)
    state = _state(checkpoint, device, dtype, tied=config.tie_word_embeddings)
    _check_names(set(state), set(network.state_dict()), checkpoint.folder)
    try:
        network.load_state_dict(state, strict=True, assign=True)
    except RuntimeError as error:
        raise CheckpointFormat(f"{checkpoint.folder}: {error}; the config does not fit the weights") from error
    network.tie_weights()
    # computed, not loaded; its frequencies stay in float32 whatever the weights are
    network.model.rotary_emb = LlamaRotaryEmbedding(config).to(device)
    tokenizer = load_tokenizer(checkpoint.name)
    return LladaDenoiser(
        name=checkpoint.name,
        tokenizer=tokenizer,
        mask_id=_mask_id(checkpoint, tokenizer),
        end_ids=tokenizer.end_ids,
        vocab_size=checkpoint.vocab_size,
        context_length=int(checkpoint.config["max_sequence_length"]),
        network=network.train(False).requires_grad_(False),
    )


def llama_config(checkpoint: Checkpoint) -> LlamaConfig:
    """LLaDA's configuration in the words of transformers' Llama, with bidirectional attention.

    Raises:
        CheckpointFormat: an architecture switch that the Llama class does not have.
    """
    source = checkpoint.config
    wanted = {"layer_norm_type": "rms", "block_type": "llama", "activation_type": "silu", "rope": True}
    wanted |= dict.fromkeys(("alibi", "scale_logits", "input_emb_norm"), False)
    for name, value in wanted.items():
        if source.get(name, value) != value:
            raise CheckpointFormat(f"{checkpoint.folder}: {name} is {source[name]!r}, only {value!r} can be loaded")
    try:
        config = LlamaConfig(
            hidden_size=source["d_model"],
            intermediate_size=source["mlp_hidden_size"],
            num_hidden_layers=source["n_layers"],
            num_attention_heads=source["n_heads"],
            num_key_value_heads=source.get("n_kv_heads") or source["n_heads"],
            vocab_size=checkpoint.vocab_size,
            max_position_embeddings=source["max_sequence_length"],
            rms_norm_eps=source["rms_norm_eps"],
            rope_parameters={"rope_type": "default", "rope_theta": float(source["rope_theta"])},
            tie_word_embeddings=bool(source["weight_tying"]),
            attention_bias=False,
            mlp_bias=False,
        )
    except KeyError as error:
        raise CheckpointFormat(f"{checkpoint.folder / 'config.json'} lacks {error}") from error
    except (ValueError, TypeError, StrictDataclassError) as error:
        raise CheckpointFormat(f"{checkpoint.folder / 'config.json'} cannot be meant: {error}") from error
    config.is_causal = False
    return config


def native_name(name: str) -> str:
    """A tensor's name in the Llama class, from its name in LLaDA's layout.

    Raises:
        KeyError: not a tensor of LLaDA's layout.
    """
    if name in _TOP_NAMES:
        return _TOP_NAMES[name]
    match = re.fullmatch(r"model\.transformer\.blocks\.(\d+)\.(\w+)\.weight", name)
    if match is None or match[2] not in _BLOCK_NAMES:
        raise KeyError(name)
    return f"model.layers.{match[1]}.{_BLOCK_NAMES[match[2]]}.weight"


def _state(checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, *, tied: bool) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for path in _weight_files(checkpoint.folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (no mapping: it has no iterator)
                    state[native_name(name)] = file.get_tensor(name).to(device, dtype)
        except SafetensorError as error:
            raise CheckpointFormat(f"{path} cannot be read ({error}); fetch the checkpoint again") from error
        except KeyError as error:
            raise CheckpointFormat(f"{path} holds {error}, which is no tensor of LLaDA's layout") from error
    if tied and "model.embed_tokens.weight" in state:
        state["lm_head.weight"] = state["model.embed_tokens.weight"]
    return state


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointFormat(f"{index} is no index of weight files ({error}); fetch it again") from error
        files = [folder / shard for shard in shards]
    else:
        files = [folder / "model.safetensors"]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise ModelNotFound(f"{folder} lacks {', '.join(missing)}; only safetensors weights are loaded")
    return files


def _check_names(found: set[str], expected: set[str], folder: Path) -> None:
    missing, extra = sorted(expected - found), sorted(found - expected)
    if missing or extra:
        raise CheckpointFormat(
            f"{folder}: tensors missing {missing[:3] or 'none'}, not expected {extra[:3] or 'none'}; "
            "config.json and weights are not of one checkpoint"
        )


def _mask_id(checkpoint: Checkpoint, tokenizer: Tokenizer) -> int:
    stated: Any = checkpoint.config.get("mask_token_id")
    known = tokenizer.backend.token_to_id("<|mdm_mask|>")
    if stated is None and known is None:
        raise CheckpointFormat(f"{checkpoint.folder} names no mask token; this is no masked diffusion model")
    if stated is not None and known is not None and stated != known:
        raise CheckpointFormat(f"{checkpoint.folder}: config.json says mask id {stated}, the tokenizer {known}")
    return int(stated) if known is None else known
