"""From safetensors files to a network of transformers: strict about names and sizes, never a pickle, never code.

transformers reads the shards one by one into the parameters and renames, splits and stacks tensors on the way. Tensors
that it would fill in or leave out with a warning are errors here.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from transformers import PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from dgmark.arguments.checks import shown
from dgmark.checkpoint.folder import Checkpoint, check_fetched, first_line, read_object
from dgmark.errors import (
    CheckpointFormat,
    DgmarkError,
    MissingExtra,
    ModelError,
    ModelNotFound,
    SettingsError,
    install_hint,
)
from dgmark.models.architecture import Architecture

_NUMBER_FORMATS = ("BF16", "F16", "F32")


class Placement(NamedTuple):
    """Where weights are loaded to.

    Attributes:
        device: the device for the weights, unless `device_map` places them.
        dtype: number format of the weights. Rotary frequencies and the router's bias stay in float32.
        device_map: "auto" spreads the layers over all devices (accelerate).
    """

    device: torch.device
    dtype: torch.dtype
    device_map: str | None = None


def load_network(checkpoint: Checkpoint, architecture: Architecture, placement: Placement) -> PreTrainedModel:
    """Load the network of a checkpoint, ready for inference."""
    config = architecture.native_config(checkpoint)
    if (checkpoint.folder / "adapter_config.json").exists():
        # transformers would let peft add the adapter's weights
        raise CheckpointFormat(f"{checkpoint.folder} holds adapter_config.json: merge the adapter into the weights")
    files = check_files(checkpoint.folder)
    with load_errors(checkpoint, placement.device):
        _check_tensors(files, architecture.renamings)
    source = {
        "pretrained_model_name_or_path": checkpoint.folder,
        "key_mapping": dict(architecture.renamings),
        "use_safetensors": True,
        "local_files_only": True,
    }
    return filled_network(checkpoint, architecture.network(config), config, source, placement)


def filled_network(
    checkpoint: Checkpoint,
    network_class: Any,
    config: PretrainedConfig,
    source: Mapping[str, Any],
    placement: Placement,
) -> PreTrainedModel:
    """A network of transformers' class with the weights of a checkpoint: all of them, and no others.

    `source` has the arguments of `from_pretrained` that name or hold the weights.
    """
    with load_errors(checkpoint, placement.device):
        by_accelerate = _by_accelerate(placement.device, placement.device_map)
        with _quiet():
            loaded, report = network_class.from_pretrained(
                **source,
                config=config,
                dtype=placement.dtype,
                attn_implementation=_attention(network_class, config),
                ignore_mismatched_sizes=True,  # so that the error below can name them
                output_loading_info=True,
                **by_accelerate,
            )
        _check_report(report, checkpoint)
        network: PreTrainedModel = loaded.train(False).requires_grad_(False)
        if not by_accelerate:
            torch.nn.Module.to(network, placement.device)
    return network


@contextmanager
def load_errors(checkpoint: Checkpoint, device: torch.device) -> Iterator[None]:
    """Make what libraries raise while they load a checkpoint errors that say so."""
    try:
        yield
    except ImportError as error:
        raise MissingExtra(f"{checkpoint.name} needs a package to load: {first_line(error)}") from error
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"{checkpoint.name} does not fit the memory of {device}: choose dtype bf16, or device_map auto"
        ) from error
    except DgmarkError:
        raise
    except SafetensorError as error:
        raise CheckpointFormat(f"{checkpoint.folder} cannot be read ({error}); fetch the checkpoint again") from error
    except Exception as error:  # transformers' classes raise all kinds at invalid values
        raise misfit(checkpoint, error) from error


def misfit(checkpoint: Checkpoint, error: Exception) -> CheckpointFormat:
    """The error for a network that cannot be built or filled, from what its library raised."""
    return CheckpointFormat(
        f"{checkpoint.folder} cannot be loaded ({first_line(error)}): {_stated_in(checkpoint)} may not fit the weights"
    )


def check_files(folder: Path) -> list[Path]:
    """Find the safetensors files of a checkpoint, and refuse an index that names other files, or a missing shard."""
    index, names = folder / "model.safetensors.index.json", ["model.safetensors"]
    if not (folder / names[0]).is_file() and index.is_file():
        shards = read_object(index).get("weight_map")
        names = sorted({str(shard) for shard in shards.values()}) if isinstance(shards, dict) else []
        if not names or any(Path(name).name != name or not name.endswith(".safetensors") for name in names):
            raise CheckpointFormat(f"{index} is not an index of safetensors files in its folder; fetch it again")
    files = [folder / name for name in names]
    if missing := [file.name for file in files if not file.is_file()]:
        shards = sorted(file.name for file in folder.glob("model-*-of-*.safetensors"))
        if shards and not index.is_file():
            missing = [index.name]
            hint = f", which says what {shards[0]} and the others hold: fetch it from where they come from"
        else:
            hint = "; only safetensors weights are loaded"
        raise ModelNotFound(f"{folder} lacks {', '.join(missing)}{hint}")
    for file in files:
        check_fetched(file)
    return files


def native_name(name: str, renamings: Mapping[str, str]) -> str:
    """A tensor's name in transformers' class, from its name in the published layout."""
    for pattern, replacement in renamings.items():
        name = re.sub(pattern, replacement, name, count=1)
    return name


def _check_tensors(files: list[Path], renamings: Mapping[str, str]) -> None:
    """Refuse what transformers would load without a word: numbers of another format, one of two tensors."""
    names: set[str] = set()
    for path in files:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 (no mapping)
                native, stored = native_name(name, renamings), file.get_slice(name).get_dtype()
                if native in names:
                    raise CheckpointFormat(f"{path} holds {name} a second time; fetch the checkpoint again")
                names.add(native)
                if stored not in _NUMBER_FORMATS:
                    raise CheckpointFormat(f"{path}: {name} holds {stored}; only BF16, F16 and F32 are loaded")


def _by_accelerate(device: torch.device, device_map: str | None) -> dict[str, Any]:
    """The arguments of `from_pretrained` that need accelerate; {} loads to the CPU."""
    if device_map not in (None, "auto"):
        raise SettingsError(f"device_map {shown(device_map)} is not auto; leave it out for one device")
    installed = find_spec("accelerate") is not None
    if device_map and not installed:
        raise MissingExtra(f"this needs accelerate: {install_hint('large')}")
    if device_map is None and (device.type == "cpu" or not installed):
        return {}
    return {"device_map": device_map or {"": device}}


def _attention(network_class: Any, config: PretrainedConfig) -> str:
    """The implementation of attention to use; torch's own would ignore a soft cap (Gemma 2)."""
    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None
    return "sdpa" if network_class._supports_sdpa and not capped else "eager"


def _check_report(report: dict[str, Any], checkpoint: Checkpoint) -> None:
    missing, extra = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
    if missing or extra:
        raise CheckpointFormat(
            f"{checkpoint.folder}: tensors missing {missing[:3] or 'none'}, not expected {extra[:3] or 'none'}; "
            f"{_stated_in(checkpoint)} and weights are not of one checkpoint"
        )
    for name, actual, expected in sorted(report["mismatched_keys"])[:1]:
        raise CheckpointFormat(
            f"{checkpoint.folder}: {name} has the sizes {list(actual)} instead of {list(expected)}; "
            f"{_stated_in(checkpoint)} does not fit the weights"
        )


def _stated_in(checkpoint: Checkpoint) -> str:
    return "its header" if checkpoint.folder.is_file() else "config.json"


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' progress bar and report: what matters in the report is an error here."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
