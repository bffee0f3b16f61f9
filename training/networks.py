"""The networks that can be trained, as transformers' own classes: built new, or begun from a folder's weights.

A family tells apart the trunk (ids to hidden states) and the head (hidden states to logits), so that logits are
computed only where the objective needs them.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AutoConfig, BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, PretrainedConfig
from transformers.utils import logging

from dgmark.checkpoint.folder import find_checkpoint
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.load import load_model
from training.config import BertNetwork, LlamaNetwork, TrainingConfig
from training.shards import Shards
from training.tokens import SpecialIds
from training.transplant import log_shares, transplanted, wordpiece_of


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
        trunk: nn.Module = self.module.bert if self.family == "bert" else self.module.model
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
        caching = {} if self.family == "bert" else {"use_cache": False}
        forward = self.trunk if self.forward is None else self.forward  # a compiled module has no truth value
        states: Tensor = forward(input_ids=ids, **caching).last_hidden_state
        return states

    def logits(self, hidden: Float[Tensor, "... width"]) -> Float[Tensor, "... vocab"]:
        """Logits of some positions' hidden states."""
        head = self.module.cls if self.family == "bert" else self.module.lm_head
        logits: Tensor = head(hidden)
        return logits

    def logits_at(
        self, ids: Int[Tensor, "batch length"], positions: Int[Tensor, " targets"]
    ) -> Float[Tensor, "targets vocab"]:
        """Logits of the positions, counted through the batch row by row."""
        return self.logits(self.hidden(ids).flatten(0, 1)[positions])

    def of(self, module: nn.Module) -> "Network":
        """The same family around another module (an average of weights)."""
        return Network(self.family, module)


def new_network(config: TrainingConfig, shards: Shards, special: SpecialIds, init: Path | None) -> Network:
    """The network that a run starts with: random, or from the weights in `init`.

    Raises:
        SettingsError: `init` is missing or does not fit the settings.
        CheckpointFormat: the weights cannot be read.
    """
    wanted = config.network
    if isinstance(wanted, BertNetwork):
        if init is None:
            raise SettingsError("network.type bert starts from a pretrained encoder: give its folder with --init")
        return _encoder(init, config, shards)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        network = build_network(wanted.type, llama_settings(wanted, shards.tokenizer.vocab_size, special))
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
    if family == "bert":
        module: Any = BertForMaskedLM(BertConfig(**config))
    else:
        llama = LlamaConfig(**config)
        llama.is_causal = family == "llama"
        module = LlamaForCausalLM(llama)
    return Network(family, module)


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
    classes: dict[Any, Any] = {"llama": LlamaForCausalLM, "bert": BertForMaskedLM}
    if family not in classes:
        raise CheckpointFormat(f"{folder} is of model_type {family!r}; known here: llada, llama, bert")
    try:
        module = classes[family].from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointFormat(f"{folder} cannot be loaded: {error}") from error
    return Network(str(family), module)


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


def _encoder(folder: Path, config: TrainingConfig, shards: Shards) -> Network:
    """A masked language model whose blocks and embeddings are a pretrained encoder's.

    Sentence encoders carry no prediction head: where the folder has none, its dense layer starts as the identity
    and its output matrix is the embedding matrix, so that a hidden state near a token's embedding predicts that token.
    With tokens of another tokenizer than the encoder's, embeddings are transplanted and the output bias starts at the
    tokens' frequencies.
    """
    source = _encoder_config(folder)
    wanted, tokenizer = config.network, shards.tokenizer
    if wanted.context > source.max_position_embeddings:
        raise SettingsError(f"network.context {wanted.context} exceeds {folder}'s {source.max_position_embeddings}")
    own = config.tokenizer.source == "init"
    if own and tokenizer.vocab_size > source.vocab_size:
        raise SettingsError(f"the tokenizer has {tokenizer.vocab_size} tokens, {folder} embeds {source.vocab_size}")
    loaded: Any = BertForMaskedLM.from_pretrained(
        folder,
        dtype=torch.float32,
        local_files_only=True,
        output_loading_info=True,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        tie_word_embeddings=True,
    )
    module, found = loaded
    missing = set(found["missing_keys"])
    if any(name.startswith("bert.") for name in missing):
        raise CheckpointFormat(f"{folder} lacks {sorted(missing)[:3]}; it is no BERT encoder")
    head = module.cls.predictions
    with torch.no_grad():
        if "cls.predictions.transform.dense.weight" in missing:
            head.transform.dense.weight.copy_(torch.eye(source.hidden_size))
            head.transform.dense.bias.zero_()
            head.bias.zero_()
        if not own:
            rng = np.random.default_rng(config.seed)
            embeddings = module.bert.embeddings.word_embeddings.weight.clone()
            module.resize_token_embeddings(tokenizer.vocab_size)
            rows = transplanted(embeddings, wordpiece_of(folder), tokenizer, rng)
            module.bert.embeddings.word_embeddings.weight.copy_(rows)
            head.bias.copy_(torch.from_numpy(log_shares(shards.tokens, tokenizer.vocab_size)))
            module.config.pad_token_id = None
            module.bert.embeddings.word_embeddings.padding_idx = None  # id 0 is a token of ours, and learns
    return Network("bert", module)


def _encoder_config(folder: Path) -> PretrainedConfig:
    try:
        source: PretrainedConfig = AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError) as error:
        raise SettingsError(f"--init {folder} is no encoder's folder: {error}") from error
    if source.model_type != "bert":
        raise SettingsError(f"--init {folder} is of model_type {source.model_type!r}; only bert can be started from")
    return source


def _scale_residuals(module: nn.Module, blocks: int) -> None:
    """Smaller writes into the residual stream, the more blocks write (as in GPT-2)."""
    with torch.no_grad():
        for name, param in module.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                param.mul_((2 * blocks) ** -0.5)
