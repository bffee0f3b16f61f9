"""Rewrite a checkpoint so that it loads fastest: one safetensors file, tensors named as in transformers' class."""

import json
import os
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import PreTrainedModel

from dgmark.checkpoint.families import CONVERTED
from dgmark.checkpoint.folder import Checkpoint
from dgmark.checkpoint.tokenizer import Tokenizer, read_tokenizer
from dgmark.errors import SettingsError
from dgmark.models.load import find_with_weights
from dgmark.models.special_ids import check_vocabulary
from dgmark.models.weights import load_network
from dgmark.rows.outputs import atomic_folder


def convert_checkpoint(
    source: str | Path, target: str | Path, *, revision: str | None = None, family: str | None = None
) -> None:
    """Write a copy of a checkpoint that loads without renaming, splitting or stacking of tensors.

    The number format stays (the widest if there are several), and the logits stay the same bit for bit. The target is
    written completely or not at all.

    Args:
        source: a model name, a folder, or a hub id; see `load_model`.
        target: a folder that does not exist yet.
        revision: branch, tag or commit of a hub id.
        family: the model's family, if config.json does not tell it.

    Raises:
        SettingsError: the target exists already or cannot be written.
        ModelNotFound: there is no such model, or it has no safetensors weights.
        CheckpointFormat: the checkpoint belongs to no family that can be loaded, is quantized or damaged.
    """
    folder = Path(os.path.expanduser(target))
    if os.path.lexists(folder):
        raise SettingsError(f"{folder} is there already; name a new folder")
    checkpoint, architecture = find_with_weights(str(source), revision, family)
    tokenizer = read_tokenizer(checkpoint.folder, checkpoint.name)
    check_vocabulary(checkpoint, tokenizer)
    network = load_network(checkpoint, architecture, device=torch.device("cpu"), dtype=None)
    try:
        with atomic_folder(folder) as partial:
            _write(partial, checkpoint, network, tokenizer, architecture.family.name)
    except (OSError, SafetensorError) as error:
        raise SettingsError(f"{folder} cannot be written: {error}") from error


def _write(folder: Path, checkpoint: Checkpoint, network: PreTrainedModel, tokenizer: Tokenizer, family: str) -> None:
    tied = set(network.all_tied_weights_keys)
    state = {name: tensor.contiguous() for name, tensor in network.state_dict().items() if name not in tied}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**checkpoint.config, CONVERTED: family}, indent=1) + "\n")
    (folder / "tokenizer.json").write_text(tokenizer.backend.to_str(pretty=True), encoding="utf-8")
    if (checkpoint.folder / "tokenizer_config.json").is_file():
        shutil.copyfile(checkpoint.folder / "tokenizer_config.json", folder / "tokenizer_config.json")
    mode = folder.stat().st_mode & 0o666
    for path in folder.iterdir():
        path.chmod(mode)
