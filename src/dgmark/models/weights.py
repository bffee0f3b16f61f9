"""From safetensors files to a network of transformers: strict about names and sizes, never a pickle, never code.

transformers reads the shards one by one into the parameters and renames, splits and stacks tensors on the way. Tensors
that it would fill in or leave out with a warning are errors here.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import BitsAndBytesConfig, PretrainedConfig, PreTrainedModel
from transformers.utils import logging

from dgmark.checkpoint.families import CONVERTED
from dgmark.checkpoint.folder import Checkpoint, read_object
from dgmark.errors import CheckpointFormat, MissingExtra, ModelError, ModelNotFound, SettingsError, install_hint
from dgmark.models.architecture import CONFIG_ERRORS, Architecture, quantization_of

QUANTIZATIONS = ("int8", "int4")
DEVICE_MAPS = ("auto", "balanced", "balanced_low_0", "sequential")
NUMBER_FORMATS = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32}


def load_network(
    checkpoint: Checkpoint,
    architecture: Architecture,
    *,
    device: torch.device,
    dtype: torch.dtype,
    quantization: str | None = None,
    device_map: str | None = None,
) -> PreTrainedModel:
    """Load the network of a checkpoint, ready for inference.

    Args:
        checkpoint: the checkpoint.
        architecture: the architecture of its family.
        device: the device for the weights, unless `device_map` places them.
        dtype: number format of the weights; rotary frequencies and the router's bias stay in float32.
        quantization: "int8" or "int4" quantizes the linear layers while loading (bitsandbytes).
        device_map: "auto" spreads the layers over all devices (accelerate).

    Raises:
        CheckpointFormat: files are damaged, or tensors are missing, unexpected, or of other sizes than config.json
            says.
        ModelNotFound: there are no safetensors weights, or a shard is missing.
        ModelError: the network does not fit the memory of the device.
        MissingExtra: accelerate or bitsandbytes is needed and not installed.
        SettingsError: there is no such quantization or device map.
    """
    renamings: Mapping[str, str] = {} if checkpoint.config.get(CONVERTED) else architecture.renamings
    config = architecture.native_config(checkpoint)
    if (checkpoint.folder / "adapter_config.json").exists():
        # transformers would let peft add the adapter's weights
        raise CheckpointFormat(f"{checkpoint.folder} holds adapter_config.json: merge the adapter into the weights")
    _check_headers(checkpoint, architecture, config, renamings)
    placement = _placement(checkpoint, device, dtype, quantization, device_map)
    network_class: Any = architecture.network(config)
    try:
        with _quiet():
            loaded, report = network_class.from_pretrained(
                checkpoint.folder,
                config=config,
                key_mapping=dict(renamings),
                dtype=dtype,
                attn_implementation=_attention(network_class, config),
                use_safetensors=True,
                local_files_only=True,
                ignore_mismatched_sizes=True,  # so that the error below can name them
                output_loading_info=True,
                **placement,
            )
        _check_report(report, architecture.unused, checkpoint.folder)
        network: PreTrainedModel = loaded.train(False).requires_grad_(False)
        if not placement:
            torch.nn.Module.to(network, device)
    except ImportError as error:
        raise MissingExtra(f"{checkpoint.name} needs a package to load: {_first_line(error)}") from error
    except torch.OutOfMemoryError as error:
        raise ModelError(
            f"{checkpoint.name} does not fit the memory of {device}: choose dtype bf16, a quantization, or "
            "device_map auto"
        ) from error
    except CheckpointFormat:
        raise
    except (RuntimeError, SafetensorError, *CONFIG_ERRORS) as error:
        raise CheckpointFormat(
            f"{checkpoint.folder} cannot be loaded ({_first_line(error)}): config.json may not fit the weights"
        ) from error
    return network


@dataclass(frozen=True)
class Header:
    """The entry of one tensor in a file's header."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def read_headers(folder: Path) -> list[Header]:
    """Read the headers of all tensors of a checkpoint.

    Raises:
        CheckpointFormat: a file is damaged or truncated.
        ModelNotFound: there are no safetensors weights, or a shard is missing.
    """
    headers: list[Header] = []
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (no mapping)
                    tensor = file.get_slice(name)
                    headers.append(Header(name, tensor.get_dtype(), tuple(tensor.get_shape())))
        except (SafetensorError, OSError) as error:
            raise CheckpointFormat(f"{path} cannot be read ({error}); fetch the checkpoint again") from error
    return headers


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint.

    Raises:
        CheckpointFormat: the index of the shards is damaged.
        ModelNotFound: there are no safetensors files, or a shard is missing.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file() or not index.is_file():
        files = [folder / "model.safetensors"]
    else:
        content = read_object(index)
        shards = content.get("weight_map")
        if (
            not isinstance(shards, dict)
            or not shards
            or not all(isinstance(shard, str) for shard in shards.values())
            or not isinstance(content.get("metadata"), dict)  # transformers needs it
        ):
            raise CheckpointFormat(f"{index} is no index of weight files; fetch it again")
        for shard in shards.values():
            if Path(shard).name != shard or not shard.endswith(".safetensors"):
                raise CheckpointFormat(f"{index} names {shard!r}, which is no safetensors file in the same folder")
        files = [folder / shard for shard in sorted(set(shards.values()))]
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        others = sorted(path.name for path in folder.iterdir() if path.suffix in (".bin", ".pt", ".pth", ".gguf"))
        instead = f" (not {', '.join(others[:3])})" if others else ""
        raise ModelNotFound(f"{folder} lacks {', '.join(missing)}; only safetensors weights are loaded{instead}")
    return files


def _check_headers(
    checkpoint: Checkpoint, architecture: Architecture, config: PretrainedConfig, renamings: Mapping[str, str]
) -> None:
    """Refuse errors that transformers would ignore, or would not name."""
    folder, headers = checkpoint.folder, read_headers(checkpoint.folder)
    native = [native_name(header.name, renamings) for header in headers]
    twice = sorted(name for name, count in Counter(native).items() if count > 1)
    if twice:  # transformers would keep one of them
        raise CheckpointFormat(
            f"{folder} holds {twice[0]!r} twice, once under another name; fetch the checkpoint again"
        )
    if not architecture.may_untie and config.tie_word_embeddings and "lm_head.weight" in native:
        own = headers[native.index("lm_head.weight")].name
        raise CheckpointFormat(f"{folder}: config.json says that {own} is the embedding, but the weights hold one more")
    _check_experts(native, checkpoint)
    if quantization_of(checkpoint) is not None:
        return  # packed tensors: number formats and sizes differ from the network's
    for header in headers:
        # old BERT checkpoints hold a counter of positions
        if header.dtype not in NUMBER_FORMATS and not header.name.endswith("position_ids"):
            raise CheckpointFormat(
                f"{folder}: {header.name} holds {header.dtype}; only {', '.join(NUMBER_FORMATS)} are loaded"
            )


def _check_experts(names: list[str], checkpoint: Checkpoint) -> None:
    """Refuse layers whose experts are not 0 to n - 1 with the same parts: stacking would hide a missing one."""
    matches = [match for name in names if (match := re.fullmatch(r"(.*\.experts\.)(\d+)\.(.+)", name))]
    count = checkpoint.config.get("num_experts")
    if not matches or not isinstance(count, int):
        return
    layers, parts = {match[1] for match in matches}, {match[3] for match in matches}
    expected = {f"{layer}{number}.{part}" for layer in layers for number in range(count) for part in parts}
    actual = {match[0] for match in matches}
    missing, extra = sorted(expected - actual), sorted(actual - expected)
    if missing or extra:
        raise CheckpointFormat(
            f"{checkpoint.folder}: tensors missing {missing[:3] or 'none'}, not expected {extra[:3] or 'none'}; "
            f"each layer has {count} experts"
        )


def native_name(name: str, renamings: Mapping[str, str]) -> str:
    """A tensor's name in transformers' class, from its name in the published layout."""
    for pattern, replacement in renamings.items():
        name = re.sub(pattern, replacement, name, count=1)
    return name


def _placement(
    checkpoint: Checkpoint,
    device: torch.device,
    dtype: torch.dtype,
    quantization: str | None,
    device_map: str | None,
) -> dict[str, Any]:
    """The arguments of `from_pretrained` that need accelerate; {} loads to the CPU."""
    if quantization is not None and quantization not in QUANTIZATIONS:
        raise SettingsError(f"quantization {quantization!r} is not one of: {', '.join(QUANTIZATIONS)}")
    if device_map not in (None, *DEVICE_MAPS):
        raise SettingsError(f"device_map {device_map!r} is not one of: {', '.join(DEVICE_MAPS)}")
    quantized = quantization_of(checkpoint) is not None
    if quantization is not None and quantized:
        raise SettingsError(f"{checkpoint.name} is quantized already: leave quantization out")
    needed = ["bitsandbytes"] if quantization else []
    if device_map is not None or quantization or quantized:
        needed.append("accelerate")
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        raise MissingExtra(f"this needs {' and '.join(missing)}: {install_hint('large')}")
    if not needed and (device.type == "cpu" or find_spec("accelerate") is None):
        return {}
    placement: dict[str, Any] = {"device_map": device_map or {"": device}}
    if quantization == "int8":
        placement["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)  # type: ignore[no-untyped-call]
    if quantization == "int4":
        placement["quantization_config"] = BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype
        )
    return placement


def _attention(network_class: Any, config: PretrainedConfig) -> str:
    """The implementation of attention to use; torch's own would ignore a soft cap (Gemma 2)."""
    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None
    return "sdpa" if network_class._supports_sdpa and not capped else "eager"


def _check_report(report: dict[str, Any], unused: str | None, folder: Path) -> None:
    missing, extra = sorted(report["missing_keys"]), sorted(report["unexpected_keys"])
    extra = [name for name in extra if unused is None or re.search(unused, name) is None]
    if missing or extra:
        raise CheckpointFormat(
            f"{folder}: tensors missing {missing[:3] or 'none'}, not expected {extra[:3] or 'none'}; "
            "config.json and weights are not of one checkpoint"
        )
    for name, actual, expected in sorted(report["mismatched_keys"])[:1]:
        raise CheckpointFormat(
            f"{folder}: {name} has the sizes {list(actual)} instead of {list(expected)}; "
            "config.json does not fit the weights"
        )


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


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else json.dumps(type(error).__name__)
