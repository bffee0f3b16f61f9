"""The key file: JSON with mode 0600. It is never overwritten, and no error message shows the secret."""

import base64
import json
import os
import stat
import warnings
from pathlib import Path
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dgmark.arguments import FirstVersion
from dgmark.errors import KeyFileError, KeyFileExists, KeyFileFormat, KeyFileNotFound, SettingsError
from dgmark.rows.inputs import open_file
from dgmark.watermark.groups import Secret
from dgmark.watermark.spec import WatermarkSpec, spec_of

KEY_FILE_VERSION: Final = 1
SECRET_BYTES: Final = 32
MAX_FILE_BYTES = 65_536


def check_name(name: str | None) -> None:
    """Refuse what cannot name the owner of a key in a sentence, on a page or on a terminal.

    Raises:
        SettingsError: it is not a line of 1 to 80 visible characters.
    """
    if name is not None and (not isinstance(name, str) or not name.strip() or len(name) > 80 or not name.isprintable()):
        raise SettingsError(
            f"the name {name!r:.90} cannot stand in a sentence: give 1 to 80 visible characters on one line"
        )


def check_secret(secret: bytes | None, spec: WatermarkSpec) -> None:
    """Refuse a secret that does not fit a spec.

    Raises:
        SettingsError: the secret is missing, superfluous, not of bytes, or of the wrong length.
    """
    if (secret is not None) != spec.keyed:
        raise SettingsError("grouping keyed needs a secret, and token-id takes none")
    if secret is not None and not isinstance(secret, bytes):
        raise SettingsError(f"the secret is of type {type(secret).__name__} instead of bytes")
    if secret is not None and len(secret) != SECRET_BYTES:
        raise SettingsError(f"the secret has {len(secret)} bytes instead of {SECRET_BYTES}")


class KeyFilePermissionWarning(UserWarning):
    """Users other than the owner can read the key file."""


def write_key_file(
    path: Path, spec: WatermarkSpec, key_id: str, name: str | None, secret: bytes | None, fingerprint: str
) -> None:
    """Write a key file with mode 0600.

    Raises:
        KeyFileExists: `path` exists.
        KeyFileNotFound: the file cannot be written.
    """
    content = _KeyFile(
        format="dgmark-key",
        version=KEY_FILE_VERSION,
        key_id=key_id,
        name=name,
        secret=None if secret is None else base64.b64encode(secret).decode(),
        prf=spec.prf,
        fingerprint=fingerprint,
    )
    fields = Secret(json.dumps(content.model_dump() | spec.to_fields(), indent=2, ensure_ascii=False).encode() + b"\n")
    write_private(path, fields)


def read_key_file(path: Path, *, allow_open: bool = False) -> tuple[WatermarkSpec, str, str | None, bytes | None, str]:
    """Read a key file: its spec, key id, name, secret, and the key's fingerprint.

    Raises:
        KeyFileNotFound: the file does not exist or is unreadable.
        KeyFileError: it holds a secret, every user of the machine can read it, and `allow_open` is false.
        KeyFileFormat: it is not a key file, is damaged, or has another version.
    """
    content, mode = read_private(path, "dgmark keygen")
    parsed = _parse(content, path)
    if parsed[3] is not None:
        check_mode(mode, path, allow_open)
    return parsed


def read_private(path: Path, maker: str) -> tuple[Secret, int]:
    """The content and the mode of a file with a secret. Check the mode once the content is known to be one.

    Args:
        path: the file.
        maker: the command that makes such files.

    Raises:
        KeyFileNotFound: the file does not exist or is unreadable.
        KeyFileFormat: it is too large for a key file.
    """
    try:
        with open_file(path) as file:
            content, mode = Secret(file.read(MAX_FILE_BYTES + 1)), stat.S_IMODE(os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise KeyFileNotFound(
            f"the key file {path} cannot be read ({error.strerror}): make one with `{maker} FILE`"
        ) from error
    if len(content) > MAX_FILE_BYTES:
        raise KeyFileFormat(
            f"{path} has more than {MAX_FILE_BYTES} bytes, so it is not a key file: give the right file"
        )
    return content, mode


class _KeyFile(BaseModel):
    """The fields of the key file beside those of the spec."""

    model_config = ConfigDict(strict=True)

    format: Literal["dgmark-key"]
    version: FirstVersion
    key_id: str
    name: str | None = None
    secret: str | None = Field(repr=False)
    prf: str
    fingerprint: str


def _parse(text: bytes, path: Path) -> tuple[WatermarkSpec, str, str | None, bytes | None, str]:
    try:
        return _read(text)
    except ValidationError as error:
        # names of fields only: their values may hold the secret
        places = ", ".join(sorted({".".join(map(str, e["loc"])) for e in error.errors()}))
        problem = f"fields invalid or missing: {places or 'all'}"
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        problem = "it is not JSON"
    except (SettingsError, ValueError) as error:
        problem = f"it is damaged: {error}"
    # out here, so that it carries no exception that holds the secret
    raise KeyFileFormat(f"{path} is not a key file: {problem}; give the file that `dgmark keygen` wrote")


def _read(text: bytes) -> tuple[WatermarkSpec, str, str | None, bytes | None, str]:
    fields = json.loads(text)
    content = _KeyFile.model_validate(fields)
    secret = None if content.secret is None else Secret(base64.b64decode(content.secret, validate=True))
    spec = spec_of({name: value for name, value in fields.items() if name not in _KeyFile.model_fields})
    check_secret(secret, spec)
    if content.prf != spec.prf:
        raise ValueError(f"its prf is not that of a key of rule {spec.rule}, {spec.prf}")
    check_name(content.name)
    return spec, content.key_id, content.name, secret, content.fingerprint


def check_mode(mode: int, path: Path, allow_open: bool) -> None:
    """Refuse a file with a secret that every user can read, and warn of one that others than its owner can use.

    Raises:
        KeyFileError: every user of the machine can read it, and `allow_open` is false.
    """
    if mode & stat.S_IROTH and not allow_open:
        raise KeyFileError(
            f"every user of this machine can read the key file {path} (mode {mode:04o}): "
            f"run `chmod 600 {path}`, and replace the key if it may have been read"
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        warnings.warn(
            f"the key file {path} has mode {mode:04o}; run `chmod 600 {path}` so that only you can read it",
            KeyFilePermissionWarning,
            stacklevel=3,
        )


def write_private(path: Path, content: Secret) -> None:
    """Create `path` with mode 0600 and `content`, or leave nothing behind.

    Raises:
        KeyFileExists: `path` exists.
        KeyFileNotFound: the file cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise KeyFileExists(
            f"{path} exists, and key files are never overwritten, because texts marked with a lost key cannot be "
            "proved: choose another path"
        ) from None
    except OSError as error:
        raise KeyFileNotFound(
            f"the key file {path} cannot be written ({error.strerror}); choose another path"
        ) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # whatever the umask
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink()
        if isinstance(error, OSError):
            raise KeyFileNotFound(f"the key file {path} could not be written ({error.strerror})") from error
        raise
