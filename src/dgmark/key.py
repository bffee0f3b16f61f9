"""The secret key and its file: 32 secret bytes bound to a watermark spec.

The secret never leaves this object except into the key file and the group tables: not into `repr`, logs, results
or messages. Everything else names a key by its fingerprint.
"""

import base64
import hashlib
import json
import os
import secrets
import stat
import warnings
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from dgmark.checkpoint import BUILTIN, find_checkpoint
from dgmark.errors import (
    KeyFileExists,
    KeyFileFormat,
    KeyFileNotFound,
    KeyFileOpen,
    SettingsError,
    TokenizerMismatch,
    VocabularyMismatch,
)
from dgmark.tokenizer import Tokenizer, load_tokenizer
from dgmark.watermark import PRF, SECRET_BYTES, GroupTables, SchemeName, WatermarkSpec

# version 2 is version 1 with a position code; a key without one is still written as version 1
KEY_FILE_VERSIONS = (1, 2)


class KeyFilePermissionWarning(UserWarning):
    """Users beside the owner can read the key file."""


@runtime_checkable
class ModelLike(Protocol):
    """What a key needs to know of a model: its tokenizer and its padded vocabulary."""

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        ...

    @property
    def vocab_size(self) -> int:
        """Its padded vocabulary."""
        ...


@dataclass(frozen=True)
class WatermarkKey:
    """A secret and the spec it is used with.

    `secret` is None only for the keyless scheme "token-id". `key_id` is random and public: a name to file it under.
    """

    spec: WatermarkSpec
    key_id: str
    secret: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if (self.secret is None) != (self.spec.scheme == "token-id"):
            raise SettingsError("a keyed scheme needs a secret, and token-id takes none")
        if self.secret is not None and len(self.secret) != SECRET_BYTES:
            raise SettingsError(f"the secret has {len(self.secret)} bytes instead of {SECRET_BYTES}")

    @classmethod
    def generate(
        cls,
        model: "str | ModelLike" = BUILTIN,
        *,
        modulus: int = 2,
        rotation: int = 0,
        scheme: SchemeName = "keyed",
        code_length: int = 0,
    ) -> "WatermarkKey":
        """A fresh key for `model` (a name, a folder, or a loaded model), its secret from the system's generator.

        Args:
            model: whose tokenizer and padded vocabulary the key is bound to.
            modulus: number of groups, 2..16.
            rotation: positions after which the groups change; 0 = never.
            scheme: "keyed", or "token-id" for the paper's keyless rule.
            code_length: period of a keyed position code, a multiple of the modulus up to 64; 0 = the paper's i mod m.

        Raises:
            SettingsError: modulus, rotation, scheme or code length out of range.
            ModelNotFound: no such model.
        """
        if isinstance(model, str):
            tokenizer, table_size = load_tokenizer(model), find_checkpoint(model).vocab_size
        else:
            tokenizer, table_size = model.tokenizer, model.vocab_size
        spec = WatermarkSpec(
            modulus=modulus,
            rotation=rotation,
            scheme=scheme,
            table_size=table_size,
            tokenizer=tokenizer.name,
            tokenizer_fingerprint=tokenizer.fingerprint,
            code_length=code_length,
        )
        secret = secrets.token_bytes(SECRET_BYTES) if scheme == "keyed" else None
        key = cls(spec=spec, key_id=secrets.token_hex(8), secret=secret)
        key.check_tokenizer(tokenizer)
        return key

    @property
    def keyless(self) -> bool:
        """Whether anybody can compute the groups, so that no p-value has a guarantee."""
        return self.secret is None

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits that name this secret and spec, and give neither away."""
        spec = asdict(self.spec)
        if not spec["code_length"]:
            del spec["code_length"]  # fingerprints are older than position codes
        public = json.dumps({"prf": PRF, **spec}, sort_keys=True, separators=(",", ":")).encode()
        return hashlib.blake2b(public, key=self.secret or b"", digest_size=8, person=b"dgmark/key/v1").hexdigest()

    @cached_property
    def tables(self) -> GroupTables:
        """The groups of this key."""
        return GroupTables(self.spec, self.secret or b"")

    def check_tokenizer(self, tokenizer: Tokenizer) -> None:
        """Refuse a tokenizer other than the one the key is bound to.

        Raises:
            TokenizerMismatch: the fingerprints differ.
            VocabularyMismatch: the key's group table does not reach as far as the tokenizer.
        """
        if tokenizer.fingerprint != self.spec.tokenizer_fingerprint:
            raise TokenizerMismatch(
                f"key {self.fingerprint} is bound to tokenizer {self.spec.tokenizer!r} "
                f"({self.spec.tokenizer_fingerprint}), not to {tokenizer.name!r} ({tokenizer.fingerprint}): "
                "use the model and tokenizer that the key was made for, or make a key for this one"
            )

        if tokenizer.vocab_size > self.spec.table_size:
            raise VocabularyMismatch(
                f"key {self.fingerprint} has groups for {self.spec.table_size} token ids, its tokenizer "
                f"{tokenizer.name!r} has {tokenizer.vocab_size}: the key file is damaged, or of another model"
            )

    def check_model(self, model: "ModelLike") -> None:
        """Refuse a model whose tokenizer or padded vocabulary is not the key's.

        Raises:
            TokenizerMismatch: another tokenizer.
            VocabularyMismatch: the same tokenizer, padded to another size.
        """
        self.check_tokenizer(model.tokenizer)
        if model.vocab_size != self.spec.table_size:
            raise VocabularyMismatch(
                f"key {self.fingerprint} has groups for {self.spec.table_size} token ids, the model predicts "
                f"{model.vocab_size}: make a key for this model with `dgmark keygen --model`"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key file with mode 0600; an existing file is never overwritten.

        Raises:
            KeyFileExists: something stands at `path`.
        """
        content = _KeyFile(
            format="dgmark-key",
            version=2 if self.spec.code_length else 1,
            key_id=self.key_id,
            secret=None if self.secret is None else base64.b64encode(self.secret).decode(),
            prf="shake256-rank-v1",
            **asdict(self.spec),
        )
        # version 1 knows no position code
        absent = None if self.spec.code_length else {"code_length"}
        _write_private(Path(path), content.model_dump_json(indent=2, exclude=absent) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, allow_open: bool = False) -> "WatermarkKey":
        """Read a key file.

        Args:
            path: the file.
            allow_open: accept a file that every user can read (a mounted secret, say), with a warning.

        Raises:
            KeyFileNotFound: no such file.
            KeyFileOpen: every user of the machine can read it, and `allow_open` is not set.
            KeyFileFormat: not a key file, a damaged one, or of a newer version.
        """
        path = Path(path)
        try:
            with open(path, "rb") as file:
                text, mode = file.read(), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        except OSError as error:
            raise KeyFileNotFound(
                f"no key file can be read at {path} ({error.strerror}); make one with `dgmark keygen {path}`"
            ) from error
        key = _parse(text, path)
        if not key.keyless:
            _check_mode(mode, path, allow_open)
        return key


class _KeyFile(BaseModel):
    """Versions 1 and 2 of the key file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal["dgmark-key"]
    version: Literal[1, 2]
    key_id: str
    secret: str | None
    prf: Literal["shake256-rank-v1"]
    scheme: SchemeName
    modulus: int
    rotation: int
    table_size: int
    tokenizer: str
    tokenizer_fingerprint: str
    code_length: int = 0

    @model_validator(mode="after")
    def _version_fits(self) -> "_KeyFile":
        if (self.version == 2) != bool(self.code_length):
            raise ValueError("version 2 has a code_length, version 1 has none")
        return self


def _parse(text: bytes, path: Path) -> WatermarkKey:
    try:
        content = _KeyFile.model_validate_json(text)
        secret = None if content.secret is None else base64.b64decode(content.secret, validate=True)
        fields = content.model_dump(exclude={"format", "version", "key_id", "secret", "prf"})
        return WatermarkKey(spec=WatermarkSpec(**fields), key_id=content.key_id, secret=secret)
    except ValidationError as error:
        # only the places of the errors: their inputs may hold the secret
        places = ", ".join(sorted({".".join(map(str, e["loc"])) or "the file" for e in error.errors()}))
        versions = " or ".join(map(str, KEY_FILE_VERSIONS))
        problem = f"{path} is not a key file of version {versions} (wrong: {places})"
    except (SettingsError, ValueError) as error:
        problem = f"{path} is a damaged key file: {error}"
    raise KeyFileFormat(problem)  # out here, so that it carries no exception that holds the secret


def _check_mode(mode: int, path: Path, allow_open: bool) -> None:
    if mode & stat.S_IROTH and not allow_open:
        raise KeyFileOpen(
            f"every user of this machine can read the key file {path} (mode {mode:04o}): "
            f"run `chmod 600 {path}`, and replace the key if it may have been read"
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        warnings.warn(
            f"the key file {path} has mode {mode:04o}; `chmod 600 {path}` keeps it yours alone",
            KeyFilePermissionWarning,
            stacklevel=3,
        )


def _write_private(path: Path, content: str) -> None:
    """Create `path` with mode 0600 and `content`, or leave nothing behind."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileExists(
            f"{path} exists and is never overwritten, as texts marked with a lost key cannot be proved: "
            "choose another path"
        ) from None
    except OSError as error:
        raise KeyFileNotFound(f"no key file can be written at {path} ({error.strerror}); choose another path") from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)  # whatever the umask
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        path.unlink()
        raise KeyFileNotFound(
            f"the key file {path} could not be written ({error.strerror}); nothing is left"
        ) from error
    except BaseException:
        path.unlink()
        raise
