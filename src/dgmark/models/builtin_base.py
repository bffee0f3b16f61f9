"""The narrator's base as an autoregressive model of its own, from the GGUF file on the package index."""

import tempfile
from pathlib import Path
from typing import Any

import tokenizers
from safetensors.torch import save_file
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from transformers import LlamaConfig
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from dgmark.checkpoint.folder import NARRATOR, builtin_folder, read_object
from dgmark.checkpoint.gguf import CONTROL, read_header
from dgmark.errors import ModelError
from dgmark.models.assembly import BASE, CACHE_VARIABLE, Base, base_state, cache_folder, find_base
from dgmark.rows.outputs import atomic_folder

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


def tokenizer_of(fields: dict[str, Any]) -> tokenizers.Tokenizer:
    """Build the byte-level BPE of a GGUF file whose pre-tokenizer is "smollm": each digit is a token."""
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    backend = tokenizers.Tokenizer(models.BPE({token: number for number, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    backend.decoder = decoders.ByteLevel()
    control = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in control])
    return backend


def write_base(out: Path) -> None:
    """Write the base as a model folder, whole or not at all.

    Raises:
        ModelNotFound: the base cannot be fetched.
        CheckpointFormat: the file is another one, or damaged.
    """
    with tempfile.TemporaryDirectory() as temporary:
        path = find_base(smollm2(), Path(temporary))
        state, tokenizer = base_state(path), tokenizer_of(read_header(path).fields)
        sizes = load_gguf_checkpoint(str(path))["config"]  # type: ignore[no-untyped-call]
    with atomic_folder(out) as beside:
        save_file(state, beside / "model.safetensors")
        config = LlamaConfig(**sizes, architectures=["LlamaForCausalLM"])
        config.to_json_file(beside / "config.json", use_diff=False)
        tokenizer.save(str(beside / "tokenizer.json"))
