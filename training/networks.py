"""The networks that can be trained, as transformers' own classes: built new, or begun from a folder's weights.

A family tells apart the trunk (ids to hidden states) and the head (hidden states to logits), so that logits are
computed only where the objective needs them.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from dgmark.checkpoint.folder import find_checkpoint
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.load import load_model
from training.config import LlamaNetwork, TrainingConfig
from training.tokens import SpecialIds


@dataclass
class Network:
    """A module with its trunk and head.

    `config` is the transformers configuration, enough to build the module again.
    """

    family: str
    module: Any = field(repr=False)
    forward: Callable[..., Any] | None = field(default=None, repr=False)

    @property
    def trunk(self) -> nn.Module:
        """Ids to hidden states."""
        trunk: nn.Module = self.module.model
        return trunk

    @property
    def config(self) -> dict[str, Any]:
        """The transformers configuration."""
        config: dict[str, Any] = self.module.config.to_dict()
        return config

    def compile(self) -> None:
        """Let torch.compile fuse the trunk; the head sees another number of positions each step and stays as it is."""
        self.forward = torch.compile(self.trunk, dynamic=False)

    def hidden(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length width"]:
        """Hidden states of every position."""
        forward = self.trunk if self.forward is None else self.forward  # a compiled module has no truth value
        states: Tensor = forward(input_ids=ids, use_cache=False).last_hidden_state
        return states

    def logits(self, hidden: Float[Tensor, "... width"]) -> Float[Tensor, "... vocab"]:
        """Logits of some positions' hidden states."""
        logits: Tensor = self.module.lm_head(hidden)
        return logits

    def logits_at(
        self, ids: Int[Tensor, "batch length"], positions: Int[Tensor, " targets"]
    ) -> Float[Tensor, "targets vocab"]:
        """Logits of the positions, counted through the batch row by row."""
        return self.logits(self.hidden(ids).flatten(0, 1)[positions])

    def of(self, module: nn.Module) -> "Network":
        """The same family around another module (an average of weights)."""
        return Network(self.family, module)


def new_network(config: TrainingConfig, vocab_size: int, special: SpecialIds, init: Path | None) -> Network:
    """The network that a run starts with: random, or from the weights in `init`.

    Raises:
        SettingsError: `init` does not fit the settings.
        ModelNotFound: `init` is no model folder.
        CheckpointFormat: the weights cannot be read.
    """
    wanted = config.network
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = build_network(wanted.type, llama_settings(wanted, vocab_size, special))
        _scale_residuals(network.module, wanted.blocks)
    if init is not None:
        start = load_network(init)
        fitting = {name: tensor.float() for name, tensor in start.module.state_dict().items()}
        try:
            network.module.load_state_dict(fitting)
        except RuntimeError as error:
            raise SettingsError(f"{init} is no checkpoint of the sizes in [network]: {error}") from error
    return network


def build_network(family: str, config: dict[str, Any]) -> Network:
    """A network from its transformers configuration, with random weights from torch's generator."""
    config = {name: value for name, value in config.items() if name != "model_type"}
    llama = LlamaConfig(**config)
    llama.is_causal = family == "llama"
    return Network(family, LlamaForCausalLM(llama))


def llama_settings(wanted: LlamaNetwork, vocab_size: int, special: SpecialIds) -> dict[str, Any]:
    """The sizes in the words of transformers' Llama."""
    return {
        "hidden_size": wanted.width,
        "intermediate_size": wanted.hidden,
        "num_hidden_layers": wanted.blocks,
        "num_attention_heads": wanted.heads,
        "num_key_value_heads": wanted.heads,
        "vocab_size": vocab_size,
        "max_position_embeddings": wanted.context,
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": wanted.rope_theta},
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": special.end,
        "pad_token_id": None,
        "use_cache": False,
    }


def load_network(name_or_path: str | Path) -> Network:
    """A trained network, in float32 on the CPU, by a model's name or folder (LLaDA's layout, or transformers').

    Raises:
        ModelNotFound: no model folder.
        CheckpointFormat: another family, or damaged.
    """
    checkpoint = find_checkpoint(str(name_or_path))
    family, folder = checkpoint.config.get("model_type"), checkpoint.folder
    if family == "llada":
        return Network("llada", load_model(str(folder), device="cpu", dtype="fp32").network.requires_grad_(True))
    if family != "llama":
        raise CheckpointFormat(f"{folder} is of model_type {family!r}; training knows llada and llama")
    try:
        module = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointFormat(f"{folder} cannot be loaded: {error}") from error
    return Network("llama", module)


def quiet_transformers() -> None:
    """No progress bars and loading reports; errors still show."""
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]


def weights_fingerprint(module: nn.Module) -> str:
    """SHA-256 over the tensors in order of name, as float32: the same however a folder stores them."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.detach().to("cpu", torch.float32).contiguous().numpy().tobytes())
    return digest.hexdigest()


def _scale_residuals(module: nn.Module, blocks: int) -> None:
    """Smaller writes into the residual stream, the more blocks write (as in GPT-2)."""
    with torch.no_grad():
        for name, param in module.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                param.mul_((2 * blocks) ** -0.5)
