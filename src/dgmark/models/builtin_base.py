"""The narrator's base as an autoregressive model of its own, from the GGUF file on the package index."""

import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from dgmark.checkpoint.byte_bpe import gguf_byte_bpe
from dgmark.checkpoint.folder import NARRATOR, builtin_folder, read_object
from dgmark.checkpoint.gguf import read_header
from dgmark.errors import ModelError
from dgmark.files.outputs import atomic_folder
from dgmark.files.user_folders import CACHE_VARIABLE, cache_folder
from dgmark.models.assembly import BASE, Base, find_base
from dgmark.models.causal_gguf import causal_state

NARRATOR_BASE = "narrator-base"


def smollm2() -> Base:
    """Where the base of the adapters that ship is fetched from."""
    return Base(**read_object(builtin_folder(NARRATOR) / BASE))


def base_folder() -> Path:
    """The folder of the base in dgmark's cache; it is made there unless it exists.

    Raises:
        ModelNotFound: the base is not on this machine and cannot be fetched.
        CheckpointFormat: the file is another one, or damaged.
        ModelError: the cache cannot be written.
    """
    folder = cache_folder() / f"{NARRATOR_BASE}-{smollm2().sha256[:16]}"
    if not (folder / "config.json").is_file():
        try:
            write_base(folder)
        except OSError as error:
            raise ModelError(f"{folder} cannot be written ({error}); set {CACHE_VARIABLE} to another folder") from error
    return folder


def write_base(out: Path) -> None:
    """Write the base as a model folder, whole or not at all.

    Raises:
        ModelNotFound: the base cannot be fetched.
        CheckpointFormat: the file is another one, or damaged.
    """
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
