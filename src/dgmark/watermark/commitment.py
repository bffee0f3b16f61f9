"""A commitment to a key: published before a text is written, it shows later that the key was not made to fit the text.

Its digest binds the secret and all that decides what the key detects, and reveals nothing of the secret, which has 256
random bits. Knows nothing of texts and reports. Ours.
"""

import hashlib
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, StringConstraints, ValidationError

from dgmark.arguments.checks import FirstVersion, as_path, refused_in_words, wrong_fields
from dgmark.errors import CommitmentMismatch, InputError, SettingsError
from dgmark.files.inputs import read_bytes
from dgmark.files.own_files import instead
from dgmark.watermark.key import WatermarkKey, check_key
from dgmark.watermark.secret import Secret

DOMAIN: Final = b"dgmark/key-commitment/v1\0"


class KeyCommitment(BaseModel):
    """The commitment to one key. All of it is public.

    Attributes:
        format: names the format of its file.
        version: version of the format.
        key_fingerprint: fingerprint of the key; 64 bits, so too short to bind a key by itself.
        sha256: the digest, 64 hex digits; the same whenever one commits to this key.
        created: when the commitment was made, by the clock of whoever made it. Its publication proves a date, not this.

    Raises:
        SettingsError: a field is missing, unknown or invalid.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["dgmark-key-commitment"]
    version: FirstVersion
    key_fingerprint: Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    created: AwareDatetime

    _refuse = refused_in_words(
        lambda _, error: f"a commitment of version 1 has other fields (invalid or missing: {wrong_fields(error)})"
    )

    @classmethod
    def of(cls, key: WatermarkKey) -> "KeyCommitment":
        """Commit to a key now; what is not a key, or has no secret, is a SettingsError."""
        return cls(
            format="dgmark-key-commitment",
            version=1,
            sha256=_digest(key),
            key_fingerprint=key.fingerprint,
            created=datetime.now(UTC).replace(microsecond=0),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "KeyCommitment":
        """Read the file of a commitment.

        Raises:
            NoTexts: the file cannot be read.
            InputError: it does not hold a commitment of this version.
        """
        content = read_bytes(as_path(path, "a commitment"), "what `dgmark key commit` printed")
        try:
            return cls.model_validate_json(content)
        except ValidationError:  # it is not even JSON
            problem = "it is not JSON"
        except SettingsError as error:
            problem = instead(content, "dgmark-key-commitment") or str(error)
        raise InputError(f"{path} is not a commitment ({problem}): give what `dgmark key commit` printed")

    def check(self, key: WatermarkKey) -> None:
        """Refuse a key that does not meet this commitment.

        Raises:
            CommitmentMismatch: its secret, or something that decides what it detects, is another.
            SettingsError: `key` is not a key, or has no secret.
        """
        if (self.sha256, self.key_fingerprint) != (_digest(key), key.fingerprint):
            raise CommitmentMismatch(
                f"key {key.fingerprint} does not meet this commitment, which was made to key {self.key_fingerprint}: "
                "the key or the commitment is another or was changed since; give the two that belong together"
            )


def load_commitments(folder: Path, keys: Iterable[WatermarkKey]) -> dict[str, KeyCommitment]:
    """Read the commitments in a folder's `.json` files, by the fingerprints of the keys."""
    files = sorted(folder.glob("*.json"))
    for file in files:
        if not file.is_file():  # reading a pipe may never end
            raise InputError(f"{file} is not a regular file: take it out of the folder of commitments")
    found = {commitment.key_fingerprint: commitment for commitment in map(KeyCommitment.load, files)}
    if not found:
        raise InputError(f"the folder {folder} holds no commitment (*.json): make one with `dgmark key commit`")
    for key in keys:
        if key.fingerprint in found:
            found[key.fingerprint].check(key)
    return found


def _digest(key: WatermarkKey) -> str:
    """SHA-256 of the domain, the public half of the key as canonical JSON, a zero byte, and the secret."""
    check_key(key)
    if key.secret is None:
        raise SettingsError(
            "a token-id key has no secret, so a commitment to it proves nothing: make a key with `dgmark keygen`"
        )
    return hashlib.sha256(Secret(DOMAIN + key.spec_bytes + b"\0" + key.secret)).hexdigest()
