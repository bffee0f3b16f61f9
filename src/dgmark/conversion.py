"""A checkpoint rewritten to load fastest: one safetensors file, tensors named as transformers' class has them."""

import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel

from dgmark.checkpoint import Checkpoint
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.families import CONVERTED
from dgmark.models import find_with_weights
from dgmark.models.architecture import quantization_of
from dgmark.models.special_ids import check_vocabulary
from dgmark.models.weights import load_network, weight_files
from dgmark.tokenizer import Tokenizer, read_tokenizer


def convert(source: str | Path, target: str | Path, *, revision: str | None = None, family: str | None = None) -> None:
    """Write a checkpoint as one that loads without renaming, splitting or stacking.

    The number format stays, and so do the logits, bit for bit. The target appears whole or not at all.

    Args:
        source: a model name, a folder, or a hub id, as `load_model` takes it.
        target: a folder that is not there yet.
        revision: branch, tag or commit of a hub id.
        family: where config.json does not tell.

    Raises:
        SettingsError: the target is there already, or the source is quantized.
        ModelNotFound: no such model, or no safetensors weights.
        CheckpointFormat: the checkpoint is of no family that can be loaded, or damaged.
    """
    folder = Path(target).expanduser()
    if folder.exists():
        raise SettingsError(f"{folder} is there already; name a folder that is not")
    checkpoint, architecture = find_with_weights(str(source), revision, family)
    if quantization_of(checkpoint) is not None:
        raise SettingsError(f"{checkpoint.name} is quantized: it is loaded as it is, and cannot be converted")
    tokenizer = read_tokenizer(checkpoint.folder, checkpoint.name)
    check_vocabulary(checkpoint, tokenizer)
    network = load_network(checkpoint, architecture, device=torch.device("cpu"), dtype=stored_dtype(checkpoint.folder))
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write(partial, checkpoint, network, tokenizer, architecture.family.name)
        partial.chmod(0o755)
        partial.rename(folder)
    except BaseException:
        shutil.rmtree(partial)
        raise


def stored_dtype(folder: Path) -> torch.dtype:
    """Number format of a checkpoint's matrices.

    Raises:
        CheckpointFormat: it is none that a network computes in.
        ModelNotFound: no safetensors weights.
    """
    with safe_open(weight_files(folder)[0], framework="pt") as file:
        dtypes = {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 (no mapping)
    names = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}
    # the router's bias is in float32 in any case
    known = [names[dtype] for dtype in names if dtype in dtypes]
    if not known:
        raise CheckpointFormat(f"{folder} holds {', '.join(sorted(dtypes))}; only bf16, fp16 and fp32 are converted")
    return known[0]


def _write(folder: Path, checkpoint: Checkpoint, network: PreTrainedModel, tokenizer: Tokenizer, family: str) -> None:
    tied = set(network.all_tied_weights_keys)
    state = {name: tensor.contiguous() for name, tensor in network.state_dict().items() if name not in tied}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**checkpoint.config, CONVERTED: family}, indent=1) + "\n")
    tokenizer.backend.save(str(folder / "tokenizer.json"))
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (checkpoint.folder / name).is_file():
            shutil.copyfile(checkpoint.folder / name, folder / name)
