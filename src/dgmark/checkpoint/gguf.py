"""The header of a GGUF file: what it states of the model, and its tokens. No weights, no torch.

The package gguf reads a vocabulary of 150,000 tokens in half a minute, so the format's few types are read here.
Format: version 2 and 3 of https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, little-endian.
"""

import math
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from dgmark.arguments.checks import as_path
from dgmark.errors import CheckpointFormat, SettingsError

# diffusion models that llama.cpp computes, as its files call them; the families of dgmark have the same names
ARCHITECTURES = ("dream", "llada", "llada-moe", "rnd1")

# options of `load_model` that only these files take
LLAMA_OPTIONS = ("n_gpu_layers", "n_threads", "n_batch")

# types of tokens
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
# more than any model has: bytes of a header, entries of a list in it, sizes of a tensor (as in ggml)
_MAX_HEADER, _MAX_ENTRIES, _MAX_SIZES = 2**25, 2**20, 4
# to how many bytes tensors are aligned in a file that does not say so
_ALIGNMENT = 32
# bits of a number by type, of F32, F16 and BF16; the other types take more than one
_BITS = {0: 32, 1: 16, 30: 16}


def is_gguf(path: object) -> bool:
    """Whether this is the path of a GGUF file, by its name or its first bytes; false for a file that cannot be read."""
    try:
        path = os.path.expanduser(as_path(path, "a model"))
    except SettingsError:
        return False
    if not os.path.isfile(path):
        return False
    if path.endswith(".gguf"):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(4) == b"GGUF"
    except OSError:  # who reads the file says what is wrong with it
        return False


def option_named(name: str) -> str:
    """An option of `load_model` as Python and the command line call it."""
    return f"{name} (--{name.replace('_', '-')})"


def check_options(name_or_path: object, options: Mapping[str, object]) -> None:
    """Refuse options of `load_model` that are not None, and not for GGUF files, or only for them and this is none."""
    gguf = is_gguf(name_or_path)
    of_what = "of a GGUF file" if gguf else "of a model that is not a GGUF file"
    for name, value in options.items():
        if value is not None and (name in (*LLAMA_OPTIONS, "tokenizer")) != gguf:
            raise SettingsError(f"{option_named(name)} is not an option {of_what}: leave it out")


@dataclass(frozen=True)
class GgufHeader:
    """What a GGUF file states before its weights.

    Attributes:
        path: the file.
        fields: its metadata by key.
        shapes: the sizes of each tensor, rows last.
        places: the number of each tensor's type in ggml, and the byte of the file at which its values begin.
    """

    path: Path
    fields: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]
    places: dict[str, tuple[int, int]]

    def get(self, key: str, kind: type) -> Any:
        """A field; a CheckpointFormat error if it is missing, or of another type."""
        value = self.fields.get(key)
        if type(value) is not kind:
            raise CheckpointFormat(f"{self.path} has no {key}: it was not converted for llama.cpp; convert it again")
        return value

    @property
    def architecture(self) -> str:
        """The architecture, one of `ARCHITECTURES`; any other is a CheckpointFormat error."""
        name: str = self.get("general.architecture", str)
        if name not in ARCHITECTURES:
            raise CheckpointFormat(
                f"{self.path} holds a model of the architecture {name!r}; of GGUF files dgmark runs the diffusion "
                f"models {', '.join(ARCHITECTURES)}. A model that writes from left to right has no order to choose, so "
                "it cannot be marked"
            )
        return name

    @property
    def config(self) -> dict[str, Any]:
        """What config.json of a checkpoint states, in its words."""
        name = self.architecture
        context = self.get(f"{name}.context_length", int)
        if context < 1:
            raise CheckpointFormat(f"{self.path}: its context length is {context}; convert it again")
        ends = [self._token_id(end) for end in ("eos", "eot")]
        return {
            "model_type": name.replace("-", "_"),
            "vocab_size": self.vocab_size,
            "max_position_embeddings": context,
            "mask_token_id": self._token_id("mask"),
            "eos_token_id": [end for end in ends if end is not None],
        }

    def _token_id(self, name: str) -> int | None:
        """The id of a special token; None if the file states none."""
        stated = self.fields.get(f"tokenizer.ggml.{name}_token_id")
        if stated is not None and (type(stated) is not int or not 0 <= stated < self.vocab_size):
            raise CheckpointFormat(
                f"{self.path}: its {name} token is {stated!r}, which is none of its {self.vocab_size} ids; convert it "
                "again"
            )
        return stated

    @property
    def vocab_size(self) -> int:
        """Rows of the output matrix, with padding."""
        shape = self.shapes.get("output.weight") or self.shapes.get("token_embd.weight")
        if not shape:
            raise CheckpointFormat(f"{self.path} has no output matrix: it holds no whole model; fetch it again")
        if shape[-1] > _MAX_ENTRIES:
            raise CheckpointFormat(f"{self.path}: its output matrix has {shape[-1]} rows, more than any vocabulary has")
        return shape[-1]


def read_header(path: Path) -> GgufHeader:
    """The header of a GGUF file, read once as long as the file stays the same; a CheckpointFormat if damaged."""
    state = os.stat(path)
    return _read_header(path, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=2)
def _read_header(path: Path, size: int, changed: int) -> GgufHeader:  # noqa: ARG001 (a changed file is read again)
    try:
        with open(path, "rb") as file:
            return _Reader(file, size).header(path)
    except (struct.error, EOFError, KeyError, RecursionError, ValueError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise CheckpointFormat(f"{path} is not a whole GGUF file ({reason}): fetch it again") from error


class _Reader:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size

    def header(self, path: Path) -> GgufHeader:
        """All that the file states before its weights."""
        if self._bytes(4) != b"GGUF":
            raise ValueError("it does not begin with GGUF")
        if (version := self._one("I")) not in (2, 3):
            raise ValueError(f"version {version} is not 2 or 3, little-endian")
        tensors, fields = self._count("tensors"), self._count("fields")
        stated = {self._string(): self._value(self._one("I")) for _ in range(fields)}
        shapes, places, last = {}, {}, 0
        for _ in range(tensors):
            name, dimensions = self._string(), self._one("I")
            if not 1 <= dimensions <= _MAX_SIZES:
                raise ValueError(f"a tensor of {dimensions} sizes")
            shapes[name] = struct.unpack(f"<{dimensions}Q", self._bytes(8 * dimensions))
            if not all(0 < size <= 8 * self._size for size in shapes[name]):
                raise ValueError(f"a tensor of the sizes {shapes[name]}")
            places[name] = kind, offset = self._one("I"), self._one("Q")
            last = max(last, offset + math.prod(shapes[name]) * _BITS.get(kind, 1) // 8)
        if self._file.tell() + last > self._size:
            raise EOFError(f"its tensors end after its {self._size} bytes")
        size = stated.get("general.alignment", _ALIGNMENT)
        if type(size) is not int or not 0 < size <= _MAX_HEADER:
            raise ValueError(f"its tensors are aligned to {size} bytes")
        begin = -(-self._file.tell() // size) * size
        return GgufHeader(path, stated, shapes, {name: (kind, begin + at) for name, (kind, at) in places.items()})

    def _bytes(self, count: int) -> bytes:
        if count > self._size - self._file.tell():
            raise EOFError(f"it ends at byte {self._size}, inside its header")
        if count > _MAX_HEADER - self._file.tell():
            raise ValueError(f"its header is longer than {_MAX_HEADER} bytes")
        return self._file.read(count)

    def _one(self, kind: str) -> Any:
        return struct.unpack(f"<{kind}", self._bytes(struct.calcsize(f"<{kind}")))[0]

    def _count(self, what: str) -> int:
        count: int = self._one("Q")
        if count > min(self._size, _MAX_ENTRIES):  # each takes at least one byte
            raise ValueError(f"it states {count} {what} inside its header")
        return count

    def _string(self) -> str:
        return self._bytes(self._one("Q")).decode()

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._one(_SCALARS[kind])
        each, count = self._one("I"), self._count("entries of a list")
        if each in (_STRING, _ARRAY):
            return [self._value(each) for _ in range(count)]
        scalar = _SCALARS[each]
        return list(struct.unpack(f"<{count}{scalar}", self._bytes(count * struct.calcsize(f"<{scalar}"))))
