"""Models in GGUF files, quantized or not, which llama.cpp computes.

llama.cpp keeps no keys and values of these models: every forward is of whole canvases, and computes the logits of all
their positions; those that are asked for are copied. Canvases of a batch are sequences of one forward, without padding.
"""

import ctypes
import threading
import weakref
from collections import deque
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.arguments.checks import whole
from dgmark.checkpoint.families import FAMILIES
from dgmark.checkpoint.folder import Checkpoint
from dgmark.checkpoint.gguf import CONTROL, NORMAL, UNUSED, GgufHeader, option_named, read_header
from dgmark.checkpoint.tokenizer import PROBE, Tokenizer, load_tokenizer, read_tokenizer
from dgmark.errors import CheckpointFormat, MissingExtra, ModelError, SettingsError, install_hint
from dgmark.models.denoiser import CacheMode
from dgmark.models.loaded import LoadedModel, has_amx, stated_facts
from dgmark.models.sessions.rows import RowSession, predicting

POSITIONS = 512  # of one forward, where no other number is asked for; llama.cpp's default
_LEAST = {"n_gpu_layers": -1, "n_threads": 1, "n_batch": 1}  # of each option of `LlamaCpp`
_SEQUENCES = 64  # most canvases of one forward
# the last warnings and errors of llama.cpp, which has one log for a process
_log = deque[str](maxlen=8)


@dataclass(frozen=True, kw_only=True)
class GgufDenoiser(LoadedModel):
    """A model that llama.cpp computes."""

    runtime: "LlamaCpp" = field(repr=False)

    def session(self, cache: CacheMode, padding: Int[Tensor, " batch"] | None = None) -> "GgufSession":
        """Open a session, which runs the forwards of one decode; a cache other than "none" is a SettingsError."""
        if cache != "none":
            raise SettingsError(f"there is no cache {cache!r} in llama.cpp's whole forwards; use cache none")
        return GgufSession(self.runtime, self.family.shift, padding)


class GgufSession(RowSession):
    """The forwards of one decode; see `LoadedModel.session`."""

    def __init__(self, runtime: "LlamaCpp", shift: int, padding: Int[Tensor, " batch"] | None) -> None:
        super().__init__(padding)
        self._runtime, self._shift = runtime, shift

    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Logits of [start, stop)."""
        padding = np.zeros(len(ids), np.int64) if self._padding is None else self._padding[owner].numpy()
        predictors = predicting(start, stop, self._shift, torch.device("cpu")).numpy()
        return torch.from_numpy(self._runtime.logits(ids.numpy(), padding, predictors))


class LlamaCpp:
    """A model in llama.cpp, which maps the file into memory; one forward runs at a time.

    None stands for llama.cpp's default of layers on the GPU, torch's number of threads, and `POSITIONS` positions of
    one forward, which holds at least one canvas.
    """

    def __init__(
        self, path: Path, n_gpu_layers: int | None = None, n_threads: int | None = None, n_batch: int | None = None
    ) -> None:
        self._llama, self._path, self._lock = _library(), path, threading.Lock()
        self._threads, self._positions = n_threads or torch.get_num_threads(), n_batch or POSITIONS
        self._size = 0  # positions that there is room for
        self._free: Any = None
        options = self._llama.llama_model_default_params()
        if has_amx():  # with quantized weights it ends the process: ggml-org/llama.cpp issue 20824
            options.use_extra_bufts = False
        if n_gpu_layers is not None:
            options.n_gpu_layers = n_gpu_layers
        _log.clear()
        self._model = self._llama.llama_model_load_from_file(str(path).encode(), options)
        if not self._model:
            engine, reason = f"llama-cpp-python {version('llama-cpp-python')}", "; ".join(_log) or "no reason given"
            if "unknown model architecture" in reason:
                raise MissingExtra(f"{engine} does not know the architecture of {path} ({reason}): install a newer one")
            raise CheckpointFormat(f"{engine} cannot load {path} ({reason}): fetch the file again")
        weakref.finalize(self, self._llama.llama_model_free, self._model)
        self._vocab = self._llama.llama_model_get_vocab(self._model)
        self.vocab_size = int(self._llama.llama_vocab_n_tokens(self._vocab))

    def logits(
        self,
        ids: Int[np.ndarray, "canvases length"],
        padding: Int[np.ndarray, " canvases"],
        asked: Int[np.ndarray, " asked"],
    ) -> Float[np.ndarray, "canvases asked vocab"]:
        """Logits of the asked columns; those inside the padding at the left stand for the first column after it."""
        canvases, length = ids.shape
        made = np.empty((canvases, len(asked), self.vocab_size), np.float32)
        with self._lock:
            together = min(max(self._positions // length, 1), _SEQUENCES)
            self._reserve(together * length)
            for first in range(0, canvases, together):
                rows = range(first, min(first + together, canvases))
                every, begin = self._forward([ids[row, padding[row] :] for row in rows]), 0
                for row in rows:
                    made[row] = every[begin + np.maximum(asked - padding[row], 0)]
                    begin += length - padding[row]
        return made

    def _forward(self, sequences: list[Any]) -> Any:
        """The logits of all positions of these sequences, in memory that the next forward overwrites."""
        sizes = [len(sequence) for sequence in sequences]
        self._batch.n_tokens = total = sum(sizes)
        np.ctypeslib.as_array(self._batch.token, (total,))[:] = np.concatenate(sequences)
        np.ctypeslib.as_array(self._batch.pos, (total,))[:] = np.concatenate([np.arange(size) for size in sizes])
        for place, sequence in enumerate(np.repeat(np.arange(len(sizes)), sizes).tolist()):
            self._batch.seq_id[place][0] = sequence
        _log.clear()
        if self._llama.llama_decode(self._context, self._batch) != 0:
            reason = "; ".join(_log) or "no reason given"
            raise ModelError(f"llama.cpp could not compute {total} positions of {self._path} ({reason})")
        return np.ctypeslib.as_array(self._llama.llama_get_logits(self._context), (total, self.vocab_size))

    def _reserve(self, positions: int) -> None:
        if positions <= self._size:
            return
        if self._size:
            self._free()
            self._size = 0
        positions += -positions % _SEQUENCES  # llama.cpp aborts the process at any other number
        options = self._llama.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = positions
        options.n_seq_max, options.kv_unified = _SEQUENCES, True
        options.flash_attn_type = 0  # off: in half precision a row's logits depend on those beside it
        options.n_threads = options.n_threads_batch = self._threads
        _log.clear()
        self._context = self._llama.llama_init_from_model(self._model, options)
        if not self._context:
            reason = "; ".join(_log) or "no reason given"
            raise ModelError(
                f"llama.cpp has no room for forwards of {positions} positions of {self._path} ({reason}): decode fewer "
                "rows at once, or take a smaller --n-batch"
            )
        self._batch, self._size = self._llama.llama_batch_init(positions, 0, 1), positions
        for filled in (self._batch.n_seq_id, self._batch.logits):
            np.ctypeslib.as_array(filled, (positions,))[:] = 1
        self._free = weakref.finalize(self, _free, self._llama, self._context, self._batch)

    def tokens(self, text: str) -> list[int]:
        """The ids that llama.cpp gives a text, with special tokens in it and none added."""
        raw = text.encode()
        room = (self._llama.llama_token * (len(raw) + 8))()
        return list(room[: self._llama.llama_tokenize(self._vocab, raw, len(raw), room, len(room), False, True)])

    def text(self, ids: list[int]) -> str:
        """The text that llama.cpp makes of ids, without special tokens."""
        given, room = (self._llama.llama_token * len(ids))(*ids), ctypes.create_string_buffer(512 * (len(ids) + 1))
        size = self._llama.llama_detokenize(self._vocab, given, len(ids), room, len(room), True, False)
        return room.raw[:size].decode(errors="replace")


def load_gguf(checkpoint: Checkpoint, tokenizer: str | None = None, **options: int) -> GgufDenoiser:
    """Load a GGUF file with the options of `LlamaCpp`; `dgmark.load_model` says what they and the tokenizer are."""
    for name, value in options.items():
        if whole(option_named(name), value) < _LEAST[name]:
            raise SettingsError(f"{option_named(name)} is {value}, less than {_LEAST[name]}")
    header = read_header(checkpoint.folder)
    family = FAMILIES[header.architecture]
    words = gguf_tokenizer(checkpoint, tokenizer)
    facts = stated_facts(checkpoint, words, family)
    runtime = LlamaCpp(checkpoint.folder, **options)
    if tokenizer is None:
        _check_agreement(runtime, words)
    (stated,) = checkpoint.require("max_position_embeddings")
    return GgufDenoiser(
        **facts,
        context_length=min(stated, family.context_length or stated),
        dtype=_file_type(header),
        pads=True,  # padding is not computed at all
        runtime=runtime,
    )


def gguf_tokenizer(checkpoint: Checkpoint, tokenizer: str | None) -> Tokenizer:
    """The tokenizer inside a GGUF file; or the one that is named, which must have the file's tokens."""
    if tokenizer is None:
        return read_tokenizer(checkpoint.folder, checkpoint.name)
    words = load_tokenizer(tokenizer)
    _check_tokens(read_header(checkpoint.folder), words)
    return words


def _check_tokens(header: GgufHeader, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer whose ids stand for other tokens than the file's."""
    tokens, kinds = header.get("tokenizer.ggml.tokens", list), header.get("tokenizer.ggml.token_type", list)
    for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True)):
        other = tokenizer.backend.id_to_token(i)
        if other != (None if kind == UNUSED else token) and kind in (NORMAL, CONTROL, UNUSED):
            raise CheckpointFormat(
                f"tokenizer {tokenizer.name!r} is not that of {header.path}: id {i} is {other!r} there and {token!r} "
                "here; give the tokenizer of the model that the file was converted from"
            )


def _check_agreement(runtime: LlamaCpp, tokenizer: Tokenizer) -> None:
    """Refuse a tokenizer made from the file that reads or writes a text otherwise than llama.cpp."""
    normalizer: Any = tokenizer.backend.normalizer  # llama.cpp has none
    for line in (PROBE, *PROBE.splitlines()):
        text = line if normalizer is None else normalizer.normalize_str(line)
        ids = tokenizer.encode(text)
        if runtime.tokens(text) != ids or runtime.text(ids) != tokenizer.decode(ids):
            raise CheckpointFormat(
                f"{tokenizer.name}: llama.cpp reads {text[:40]!r} otherwise than the tokenizer made from this file: "
                "give the folder or tokenizer.json of the model that it was converted from (--tokenizer)"
            )


def _file_type(header: GgufHeader) -> str:
    """The number format of most weights, like "q4_k_m"."""
    import gguf

    try:
        name = gguf.LlamaFileType(header.fields.get("general.file_type", -1)).name
    except ValueError:
        return "gguf"
    return name.removeprefix("MOSTLY_").removeprefix("ALL_").lower()


@cache
def _library() -> Any:
    """The package llama_cpp, with its log kept here instead of printed; a MissingExtra if it cannot be loaded."""
    try:
        import llama_cpp
    except (ImportError, OSError, RuntimeError) as error:
        raise MissingExtra(f"GGUF files are computed by llama-cpp-python: {install_hint('gguf')} ({error})") from None
    llama_cpp.llama_log_set(_note(llama_cpp), None)
    llama_cpp.llama_backend_init()
    return llama_cpp


@cache
def _note(llama: Any) -> Any:
    """The function that llama.cpp calls, kept for the life of the process."""

    def note(level: int, text: bytes, _: Any) -> None:
        if level in (3, 4):  # warnings and errors
            _log.append(text.decode(errors="replace").strip())

    return llama.llama_log_callback(note)


def _free(llama: Any, context: Any, batch: Any) -> None:
    llama.llama_batch_free(batch)
    llama.llama_free(context)
