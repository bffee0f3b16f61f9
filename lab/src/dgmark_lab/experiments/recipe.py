"""The recipe of a text, and the hash that a stored text is found by; the versions that its row records.

Cells with the same recipe, prompt and seed share one text, even across experiments.
"""

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dgmark.errors import SettingsError
from dgmark.version import __version__
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.experiments.spec import KeyOptions

# increased whenever the same recipe would give another text or another row
ROW_VERSION = 1
_REPORTED = ("torch", "transformers", "tokenizers", "numpy")
_BLOB = re.compile("[0-9a-f]{64}")


def digest(content: Any) -> str:
    """Hash a JSON value to 24 hex digits, independent of the order of its keys."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


@dataclass(frozen=True)
class Recipe:
    """Everything that determines a text, except its prompt and seed.

    Attributes:
        model: the model's name, for the reader; not part of the hash.
        model_hash: hash of weights and config.
        tokenizer_hash: fingerprint of the vocabulary.
        dtype: number format of the forward.
        chat: whether prompts are put into the chat template.
        scheme: name of the watermarking scheme; None for no mark.
        options: all options of the scheme.
        key_fingerprint: the key's fingerprint; None without a mark.
        settings: all fields of `DecodeConfig`.
        defaults: what texts had before a setting was added, else the defaults of `DecodeConfig`. Settings with these
            values are not part of the hash, so that a setting added later leaves it unchanged.
    """

    model: str
    model_hash: str
    tokenizer_hash: str
    dtype: str | None
    chat: bool
    scheme: str | None
    options: Mapping[str, Any]
    key_fingerprint: str | None
    settings: Mapping[str, Any]
    defaults: Mapping[str, Any] = field(repr=False)

    @cached_property
    def hash(self) -> str:
        """24 hex digits; the name of the file that holds its texts."""
        fields = asdict(self)
        del fields["model"], fields["defaults"]
        fields["settings"] = {
            name: value for name, value in self.settings.items() if value != self.defaults.get(name, _ABSENT)
        }
        return digest({**fields, "row_version": ROW_VERSION})

    def row_id(self, prompt: str | list[int], seed: int) -> str:
        """Return the id of one text."""
        return digest([self.hash, prompt, seed])

    def to_row(self) -> dict[str, Any]:
        """Return the fields that every row of the recipe has in common."""
        return {
            "recipe": self.hash,
            "model": self.model,
            "model_hash": self.model_hash,
            "tokenizer_hash": self.tokenizer_hash,
            "dtype": self.dtype,
            "chat": self.chat,
            "scheme": self.scheme,
            "scheme_options": dict(self.options),
            "key_fingerprint": self.key_fingerprint,
            "settings": dict(self.settings),
            "schema": ROW_VERSION,
        }


_ABSENT = object()


def cell_key(base: WatermarkKey, options: KeyOptions) -> WatermarkKey:
    """Return the run's key with a cell's spec: the same secret, unless the cell uses the keyless grouping.

    Raises:
        SettingsError: the spec is invalid, the cell is keyed but the run's key is keyless, or the run's key has
            sub-keys.
    """
    if base.spec.subkeys > 1:
        raise SettingsError(
            "an experiment marks all texts of a cell alike: give a key without sub-keys (`dgmark keygen --subkeys 1`)"
        )
    changes = {name: value for name, value in options.model_dump().items() if value is not None}
    spec = WatermarkSpec.from_fields({**base.spec.to_fields(), **changes})
    if spec == base.spec:
        return base
    if spec.grouping == "keyed" and base.secret is None:
        raise SettingsError("the run's key has no secret: give a keyed one (see `dgmark keygen`)")
    return replace(base, spec=spec, secret=base.secret if spec.grouping == "keyed" else None)


def versions() -> dict[str, str]:
    """Return the versions of dgmark and of the packages that decode, for the rows."""
    known = {"dgmark": __version__}
    for name in _REPORTED:
        try:
            known[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # a report needs no torch
            continue
    return known


def checkpoint_hash(folder: Path) -> str:
    """Hash a model folder's config and weights.

    A file in huggingface_hub's cache is a link to a blob named by its SHA-256, so this is not computed again.
    """
    files = sorted([folder / "config.json", *folder.glob("*.safetensors")])
    return digest({file.name: _content_hash(file) for file in files})


def _content_hash(file: Path) -> str:
    blob = file.resolve().name
    if file.is_symlink() and _BLOB.fullmatch(blob):
        return blob
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
