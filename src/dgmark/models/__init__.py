"""Masked diffusion models by name, as `Denoiser`s."""

from collections.abc import Callable

import torch

from dgmark.checkpoint import BUILTIN, Checkpoint, find_checkpoint
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.denoiser import Denoiser, Session, SessionDenoiser, WindowDenoiser, open_session, window_of
from dgmark.models.llada import LladaDenoiser, load_llada

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

# config.json's model_type -> loader; a new family is one module and one line here.
FAMILIES: dict[str, Callable[..., LladaDenoiser]] = {"llada": load_llada}


def load_model(name_or_path: str = BUILTIN, *, device: str | None = None, dtype: str | None = None) -> LladaDenoiser:
    """Load a model by the built-in name or from a local folder; no code from the folder is run.

    Args:
        name_or_path: "storyteller", or a folder with config.json, tokenizer.json and safetensors weights.
        device: a torch device; by default the GPU where there is one.
        dtype: "bf16" or "fp32"; by default bf16 where the device multiplies it natively, else fp32.

    Raises:
        ModelNotFound: no such model.
        CheckpointFormat: the checkpoint is of no family that can be loaded, or damaged.
        SettingsError: unknown device or dtype.
    """
    checkpoint = find_checkpoint(name_or_path)
    target = _device(device)
    if dtype is not None and dtype not in DTYPES:
        raise SettingsError(f"dtype {dtype!r} is not one of: {', '.join(DTYPES)}")
    return _family(checkpoint)(
        checkpoint, device=target, dtype=DTYPES[dtype] if dtype is not None else faster_dtype(target)
    )


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


def _device(name: str | None) -> torch.device:
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise SettingsError(f"device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return device


def _family(checkpoint: Checkpoint) -> Callable[..., LladaDenoiser]:
    model_type = checkpoint.config.get("model_type")
    if model_type not in FAMILIES:
        raise CheckpointFormat(
            f"{checkpoint.folder} is of model_type {model_type!r}; families that can be loaded: {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type]


__all__ = [
    "Denoiser",
    "LladaDenoiser",
    "Session",
    "SessionDenoiser",
    "WindowDenoiser",
    "faster_dtype",
    "load_model",
    "open_session",
    "window_of",
]
