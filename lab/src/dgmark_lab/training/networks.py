"""The trainable networks, as transformers' own classes: with random weights, or from and to model folders.

Hidden states and logits are computed apart, so that there are logits only where the objective needs them.
"""

import copy
import re
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import save_torch_state_dict
from jaxtyping import Float, Int
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from dgmark.checkpoint.folder import BUILTIN, builtin_folder, find_checkpoint, read_object
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.files.outputs import atomic_folder
from dgmark.models.families.llada import RENAMINGS
from dgmark.models.load import NetworkDenoiser, load_model
from dgmark_lab.training.config import LlamaNetwork, TrainingConfig
from dgmark_lab.training.corpus import END, MASK, write_json

# LLaDA's names of the tensors of a block, and of the others
_BLOCK = ("attn_norm", "ff_norm", "q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj", "ff_out")
_TOP = ("wte", "ln_f", "ff_out")


Network = Any  # a LlamaForCausalLM, whose `to` mypy misreads


def mask_id_of(network: Network) -> int | None:
    """The id of the mask token of a masked diffusion model, in LLaDA's layout; None for an autoregressive Llama."""
    return getattr(network.config, "mask_token_id", None)


def logits_at(
    network: Network, ids: Int[Tensor, "batch length"], positions: Int[Tensor, " targets"]
) -> Float[Tensor, "targets vocab"]:
    """Compute logits at the positions, which are counted through the batch row by row."""
    hidden = network.model(input_ids=ids, use_cache=False).last_hidden_state
    logits: Tensor = network.lm_head(hidden.flatten(0, 1)[positions])
    return logits


def new_network(config: TrainingConfig, tokenizer: Tokenizer, init: Path | None) -> Network:
    """Build the network that a run starts with: random weights, or those in `init`.

    Raises:
        SettingsError: `init` does not fit the settings.
        ModelNotFound: `init` is not a model folder.
        CheckpointFormat: the weights are unreadable.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        mask_id = MASK if config.kind == "storyteller" else None
        network = build_network(config.network, tokenizer.vocab_size, mask_id)
    with torch.no_grad():
        for name, param in network.named_parameters():
            # what writes into the residual stream is scaled down by the number of blocks, as in GPT-2
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                param.mul_((2 * config.network.blocks) ** -0.5)
    if init is not None:
        try:
            network.load_state_dict(load_network(init).state_dict())
        except RuntimeError as error:
            raise SettingsError(f"{init} does not have the sizes in [network]: {error}") from error
    return network


def build_network(sizes: LlamaNetwork, vocab_size: int, mask_id: int | None) -> Network:
    """Build a network with random weights from torch's generator: bidirectional if there is a mask token."""
    llama = LlamaConfig(
        hidden_size=sizes.width,
        intermediate_size=sizes.hidden,
        num_hidden_layers=sizes.blocks,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.heads,
        vocab_size=vocab_size,
        max_position_embeddings=sizes.context,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=END,
        pad_token_id=None,
        use_cache=False,
    )
    llama.is_causal = mask_id is None
    if mask_id is not None:
        llama.mask_token_id = mask_id
    return LlamaForCausalLM(llama)


def load_network(name_or_path: str | Path) -> Network:
    """Load a trained network, in float32 on the CPU, by a model's name or folder (LLaDA's layout, or transformers').

    Raises:
        ModelNotFound: no model has this name or folder.
        CheckpointFormat: the checkpoint is of another family, or damaged.
    """
    checkpoint = find_checkpoint(str(name_or_path))
    family, folder = checkpoint.config.get("model_type"), checkpoint.folder
    if family == "llada":
        model = load_model(str(folder), device="cpu", dtype="fp32")
        assert isinstance(model, NetworkDenoiser)
        model.network.config.mask_token_id = model.mask_id
        return model.network.requires_grad_(True)
    if family != "llama":
        raise CheckpointFormat(f"{folder} is of model_type {family!r}; training supports llada and llama")
    try:
        return LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise CheckpointFormat(f"{folder} cannot be loaded: {error}") from error


# ---- model folders ----


def save_model(network: Network, tokenizer: Tokenizer, folder: Path, *, context: int) -> None:
    """Write a model folder in bf16 with its tokenizer, whole or not at all; an existing one is replaced.

    `context` is the largest number of positions that the model was trained on.
    """
    with atomic_folder(folder) as beside:
        if mask_id_of(network) is not None:
            write_json(beside / "config.json", llada_config(network, context))
            save_torch_state_dict(llada_state(network), beside)
        else:
            module = copy.deepcopy(network).to("cpu", torch.bfloat16)
            module.config.pad_token_id = module.config.eos_token_id
            module.save_pretrained(beside)
            (beside / "generation_config.json").unlink(missing_ok=True)
        tokenizer.backend.save(str(beside / "tokenizer.json"))
        settings = read_object(builtin_folder(BUILTIN) / "tokenizer_config.json")
        write_json(beside / "tokenizer_config.json", {**settings, "model_max_length": context})
        for file in beside.iterdir():  # safetensors makes files that only their owner can read
            file.chmod(0o644)


def llada_state(module: LlamaForCausalLM) -> dict[str, Tensor]:
    """Return the weights in bf16 under LLaDA's names; a tied output matrix is left out."""
    blocks = range(module.config.num_hidden_layers)
    names = [f"model.transformer.{name}.weight" for name in _TOP]
    names += [f"model.transformer.blocks.{block}.{name}.weight" for block in blocks for name in _BLOCK]
    theirs = {}  # by the Llama class's names, which the loader's renamings make
    for name in names:
        renamed = (re.sub(old, ours, name) for old, ours in RENAMINGS.items())
        theirs[next(one for one in renamed if one != name)] = name
    state = module.state_dict()
    if module.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return {theirs[name]: one.detach().to("cpu", torch.bfloat16).contiguous() for name, one in state.items()}


def llada_config(network: Network, context: int) -> dict[str, Any]:
    """Return the configuration with LLaDA's field names: that of the built-in storyteller, with other sizes."""
    config = network.config
    return {
        **read_object(builtin_folder(BUILTIN) / "config.json"),
        "d_model": config.hidden_size,
        "n_heads": config.num_attention_heads,
        "n_kv_heads": config.num_key_value_heads,
        "n_layers": config.num_hidden_layers,
        "mlp_hidden_size": config.intermediate_size,
        "vocab_size": config.vocab_size,
        "embedding_size": config.vocab_size,
        "max_sequence_length": context,
    }
