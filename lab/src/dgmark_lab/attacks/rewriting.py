"""Language models for rewriting attacks, loaded once, by folder or hub id. Code in their checkpoints is never run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np

from dgmark.checkpoint.hub import is_hub_id, offline_if_unreachable
from dgmark.errors import MissingExtra, ModelNotFound, SettingsError, install_hint

KINDS = {"causal": "AutoModelForCausalLM", "t5": "T5ForConditionalGeneration"}


@lru_cache(maxsize=2)
def load_rewriter(kind: str, name: str, tokenizer: str, device: str | None, dtype: str | None) -> tuple[Any, Any]:
    """Load a transformers model, in evaluation mode, and its tokenizer.

    Args:
        kind: one of `KINDS`.
        name: folder or hub id.
        tokenizer: folder or hub id.
        device: a torch device, "auto" for all available ones (needs accelerate), or None for the GPU if there is one.
        dtype: name of a torch dtype; None for the checkpoint's own.

    Raises:
        MissingExtra: a package is not installed.
        ModelNotFound: the model or tokenizer is unavailable.
        SettingsError: the device or dtype does not exist here.
    """
    if is_hub_id(name) and not os.path.exists(name):
        offline_if_unreachable()
    try:
        import torch
        import transformers
    except ImportError as error:
        raise MissingExtra(f"rewriting needs torch and transformers: {install_hint('generate')} ({error})") from None
    number_format = getattr(torch, dtype, None) if dtype else "auto"
    if dtype and not isinstance(number_format, torch.dtype):
        raise SettingsError(f"dtype {dtype!r} is not one of torch's; try bfloat16 or float32")
    placement = {"device_map": "auto"} if device == "auto" else {}
    try:
        encode = transformers.AutoTokenizer.from_pretrained(tokenizer)
        network = getattr(transformers, KINDS[kind]).from_pretrained(name, dtype=number_format, **placement)
    except ImportError as error:
        raise MissingExtra(f"{name} needs a package that is not installed: {error}") from error
    except (OSError, ValueError, KeyError) as error:
        raise ModelNotFound(f"{name} cannot be loaded: give its folder or hub id ({_first_line(error)})") from error
    if device != "auto":
        try:
            network = network.to(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        except (RuntimeError, AssertionError) as error:
            raise SettingsError(f"device {device!r} cannot be used here: {_first_line(error)}") from error
    return network.eval(), encode


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def torch_seed(rng: np.random.Generator) -> Iterator[None]:
    """Seed torch's generators from `rng` within this context, and restore their states afterwards."""
    import torch

    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices), torch.inference_mode():
        torch.manual_seed(int(rng.integers(2**63 - 1)))
        yield


def temperature_settings(temperature: float) -> dict[str, Any]:
    """Return the settings of `generate` for a temperature; 0 is greedy."""
    return {"do_sample": True, "temperature": temperature, "top_k": 0} if temperature else {"do_sample": False}
