"""Access tokens: random texts that say what their holder may do. The file keeps their hashes only.

A token has 32 random bytes, so that a plain SHA-256 of it cannot be reversed by trial. Knows nothing of HTTP.
"""

import errno
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, get_args

import portalocker
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dgmark.arguments.checks import FirstVersion, as_path, check_name
from dgmark.errors import InputError, KeyFileNotFound, SettingsError
from dgmark.files.inputs import open_file
from dgmark.files.outputs import atomic_write

log = logging.getLogger("dgmark_service")
Scope = Literal["detect", "detect:full", "generate", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
ALL_SCOPES = frozenset(SCOPES)
PREFIX = "dgm_"  # tells people, and scanners of repositories, what they have found
MAX_FILE_BYTES = 2**20
API_TOKEN = "DGMARK_API_TOKEN"  # noqa: S105 (its name)
MIN_SECRET = 24


def _with_zone(time: datetime) -> datetime:
    """A time that names no zone is one of UTC."""
    return time if time.tzinfo else time.replace(tzinfo=UTC)


class Token(BaseModel):
    """What the file knows of one token.

    Attributes:
        name: its name.
        scopes: what its holder may do.
        sha256: hash of its secret.
        created: when it was made.
        expires: from when on it is refused; None for never.
        keys: the names of the keys that its holder may use; None for all.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Annotated[str, AfterValidator(lambda name: check_name(name, "a token") or name)]
    scopes: tuple[Scope, ...] = Field(min_length=1)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    created: str
    expires: Annotated[datetime, AfterValidator(_with_zone)] | None = None
    keys: tuple[str, ...] | None = None


class _TokenFile(BaseModel):
    """Version 1 of the file."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["dgmark-tokens"] = "dgmark-tokens"
    version: FirstVersion = 1
    tokens: tuple[Token, ...] = ()


@dataclass
class TokenFile:
    """A file of tokens, read again whenever it changes: a removed token is refused from then on.

    Attributes:
        path: the file.

    Raises:
        SettingsError: the path is that of a folder, or no file can have it.
    """

    path: Path

    def __post_init__(self) -> None:
        if os.path.isdir(as_path(self.path, "the token file")):
            raise SettingsError(f"{self.path} is a folder: give the path of a token file, such as tokens.json")
        self._seen: tuple[int, ...] | None = None
        self._tokens: tuple[Token, ...] = ()
        self._fault = ""

    def tokens(self) -> tuple[Token, ...]:
        """All tokens of the file.

        Raises:
            KeyFileNotFound: the file cannot be read.
            InputError: it is not a file of tokens.
        """
        try:
            status = os.stat(self.path)
            if not stat.S_ISREG(status.st_mode):  # opening a pipe waits for whoever writes to it
                raise OSError(errno.EINVAL, "it is no regular file")
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen != self._seen:
                with open_file(self.path) as file:
                    self._tokens = _TokenFile.model_validate_json(file.read(MAX_FILE_BYTES)).tokens
                self._seen = seen
        except (ValidationError, SettingsError) as error:
            raise InputError(
                f"{self.path} is not a file of access tokens{_where(error)}: correct it, or give the file that "
                "`dgmark access keygen` wrote"
            ) from None
        except OSError as error:
            raise KeyFileNotFound(
                f"the token file {self.path} cannot be read ({error.strerror}): make one with "
                f"`dgmark access keygen {self.path} NAME`"
            ) from error
        return self._tokens

    def last_good(self) -> tuple[Token, ...]:
        """All tokens of the file; while a mistake makes it no file of tokens, those of before, as the log says once.

        Raises:
            KeyFileNotFound: the file cannot be read.
        """
        try:
            tokens, fault = self.tokens(), ""
        except InputError as error:
            tokens, fault = self._tokens, str(error)
        if fault and fault != self._fault:
            log.error("the access tokens stay as they were: %s", fault)
        self._fault = fault
        return tokens

    def add(
        self, name: str, scopes: Iterable[str], *, expires: datetime | None = None, keys: Iterable[str] | None = None
    ) -> str:
        """Make a token, and return its secret, which nobody can read from the file.

        Args:
            name: its name.
            scopes: what its holder may do.
            expires: from when on it is refused, in UTC unless the time says otherwise.
            keys: the names of the only keys that its holder may use.

        Raises:
            SettingsError: the name is taken, is none, or a scope is none.
            InputError: the file is not one of tokens, or cannot be written.
        """
        check_name(name, "the token")
        secret = PREFIX + secrets.token_urlsafe(32)
        fields = {"name": name, "scopes": tuple(dict.fromkeys(scopes)), "sha256": _hash(secret), "expires": expires}
        fields["keys"] = None if keys is None else tuple(dict.fromkeys(keys))
        with self._locked():
            tokens = self.tokens() if self.path.exists() else ()
            if any(token.name == name for token in tokens):
                raise SettingsError(
                    f"{self.path} has a token {name!r} already: remove it first, or choose another name"
                )
            try:
                token = Token.model_validate({**fields, "created": datetime.now(UTC).isoformat(timespec="seconds")})
            except ValidationError as error:
                raise SettingsError(f"a token's scopes are one or more of: {', '.join(SCOPES)}") from error
            self._write((*tokens, token))
        return secret

    def remove(self, name: str) -> None:
        """Remove a token: whoever has it is refused from now on.

        Raises:
            SettingsError: the file has no token of this name.
        """
        with self._locked():
            tokens = self.tokens()
            left = tuple(token for token in tokens if token.name != name)
            if len(left) == len(tokens):
                raise SettingsError(f"{self.path} has no token {name!r}: `dgmark access list {self.path}` names them")
            self._write(left)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """No other process changes the file meanwhile."""
        try:
            with portalocker.Lock(self.path.with_name(f".{self.path.name}.lock"), "a", timeout=10):
                yield
        except (OSError, portalocker.LockException) as error:
            raise InputError(f"{self.path} cannot be written ({error}): choose another place") from error

    def _write(self, tokens: tuple[Token, ...]) -> None:
        content = json.dumps(_TokenFile(tokens=tokens).model_dump(mode="json", exclude_none=True), indent=2) + "\n"
        atomic_write(self.path, content.encode(), over_protected=True)
        self.path.chmod(0o600)


def _where(error: ValidationError | SettingsError) -> str:
    """Which entry of the file is wrong, and why; nothing of a value, which may be a secret."""
    if isinstance(error, SettingsError):
        return ""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f" ({place}: {first['msg']})" if place else f" ({first['msg']})"


def find(secret: str, tokens: Iterable[Token]) -> Token | None:
    """The token of this secret that is valid today; the time that this takes does not tell how near a guess is."""
    digest, now = _hash(secret), datetime.now(UTC)
    valid = (token for token in tokens if token.expires is None or now < token.expires)
    found = [token for token in valid if hmac.compare_digest(token.sha256, digest)]
    return found[0] if found else None


def environment_token() -> Token | None:
    """A token that may do everything, whose secret is in the environment, if it is; no process of ours inherits it.

    Raises:
        SettingsError: the secret is so short that it could be guessed, or no header can have it.
    """
    secret = os.environ.pop(API_TOKEN, None)
    if secret is None:
        return None
    if not re.fullmatch(rf"[\x21-\x7e]{{{MIN_SECRET},}}", secret):
        raise SettingsError(
            f"the token in {API_TOKEN} could be guessed, or is none that a header can have: take {MIN_SECRET} random "
            "letters and digits or more, such as `openssl rand -hex 32` prints"
        )
    return Token(name=API_TOKEN, scopes=SCOPES, sha256=_hash(secret), created=datetime.now(UTC).isoformat())


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
