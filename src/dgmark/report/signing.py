"""Signatures of reports: who made a report, and that no byte of it was changed since.

A signed file holds a JSON Web Signature (RFC 7515, algorithm Ed25519 of RFC 9864) of all its other bytes: the detached
payload is the file with the place of the signature left empty. Keys are JSON Web Keys (RFC 7517, RFC 8037), named by
their thumbprint (RFC 7638). Signing keys are other keys than watermark keys, which sign nothing.
"""

import base64
import json
import os
import re
from typing import TYPE_CHECKING, Any

from dgmark.arguments.checks import as_path, check_name
from dgmark.errors import InputError, KeyFileFormat, SettingsError, SignatureInvalid, needed_extra
from dgmark.files.inputs import read_bytes
from dgmark.files.own_files import instead
from dgmark.watermark.key_file import check_mode, read_private, write_private
from dgmark.watermark.secret import Secret

if TYPE_CHECKING:
    from joserfc.jwk import OKPKey

ALGORITHM = "Ed25519"
# in a page and in a JSON document the signature stands in one of these two places, which are empty before it is made
_PLACES = (b'<meta name="dgmark-signature" content="', b'"signature": "')
_SIGNATURE = re.compile(rb"(" + b"|".join(map(re.escape, _PLACES)) + rb")([^\"]*)\"")


class SigningKey:
    """A private Ed25519 key that signs reports.

    It never leaves this object except into its file.

    Raises:
        SettingsError: it is made of another kind of key.
    """

    def __init__(self, key: "OKPKey") -> None:
        if not _is_signing_key(key):
            raise SettingsError(
                f"a signing key is made of a private Ed25519 key, not of a {type(key).__name__}: "
                "see SigningKey.generate and SigningKey.load"
            )
        self._key = key

    @classmethod
    def generate(cls, name: str | None = None) -> "SigningKey":
        """Make a new key. The operating system draws it.

        Args:
            name: who signs with it, such as "ACME", for those who verify reports: up to 80 visible characters.

        Raises:
            SettingsError: the name cannot stand in a sentence.
            MissingExtra: joserfc is not installed.
        """
        named: Any = None  # the type of joserfc knows the registered members only
        if name is not None:
            check_name(name, "whoever signs")
            named = {"name": name}
        return cls(_okp().generate_key("Ed25519", parameters=named))

    @property
    def key_id(self) -> str:
        """The thumbprint of the public key (RFC 7638)."""
        return str(self._key.thumbprint())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key as a private JSON Web Key with mode 0600. Never overwrites a file; "-" is standard output.

        Raises:
            KeyFileExists: `path` exists.
            KeyFileNotFound: the file cannot be written.
        """
        public = {"alg": ALGORITHM, "use": "sig", "kid": self.key_id}
        text = Secret(json.dumps({**self._key.as_dict(private=True), **public}, indent=2).encode() + b"\n")
        write_private(as_path(path, "a signing key"), text)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, allow_open: bool = False) -> "SigningKey":
        """Read a key file that `save` wrote.

        Args:
            path: the file; "-" is standard input.
            allow_open: accept a file that every user of the machine can read, with a warning.

        Raises:
            KeyFileNotFound: the file does not exist or is unreadable.
            KeyFileError: every user of the machine can read it, and `allow_open` is not set.
            KeyFileFormat: it is not a private Ed25519 key.
            MissingExtra: joserfc is not installed.
        """
        path = as_path(path, "a signing key")
        content, mode = read_private(path, "dgmark report keygen")
        key = _imported(content)
        if key is None:
            if found := instead(content, "private"):
                raise KeyFileFormat(f"{path} is not a signing key: {found}; give what `dgmark report keygen` made")
            raise KeyFileFormat(
                f"{path} is not a signing key (a private Ed25519 JSON Web Key, under a name of up to 80 visible "
                "characters, if any): make one with `dgmark report keygen`"
            )
        check_mode(mode, path, allow_open)
        return cls(key)

    def to_jwks(self) -> dict[str, Any]:
        """The public key as a JSON Web Key Set, to be published for those who verify reports."""
        return {"keys": [{**self._key.as_dict(private=False), "alg": ALGORITHM, "use": "sig", "kid": self.key_id}]}

    def sign(self, document: bytes) -> bytes:
        """The document with its signature put in.

        Args:
            document: a report as a page or as JSON, with exactly one empty place for the signature.

        Raises:
            SettingsError: the document has no such place, or is signed already.
        """
        before, signature, after = _cut(_bytes_of(document)) or (b"", b"-", b"")
        if signature:
            raise SettingsError("this document has no empty place for a signature: only unsigned reports can be signed")
        from joserfc import jws

        header = {"alg": ALGORITHM, "kid": self.key_id}
        whole = jws.serialize_compact(header, document, self._key, algorithms=[ALGORITHM])
        return before + jws.detach_content(whole).encode() + after


def _imported(text: bytes) -> "OKPKey | None":
    """The private Ed25519 key of a file; None if it holds none. The reasons are not shown, as they may quote it."""
    okp = _okp()
    from joserfc.errors import JoseError

    try:
        key = okp.import_key(json.loads(text))
    except (JoseError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return key if _is_signing_key(key) else None


def _is_signing_key(key: object) -> bool:
    """Whether this is a private Ed25519 key, under a name that can be shown, if it has one."""
    if not isinstance(key, _okp()) or not key.is_private or key.curve_name != "Ed25519":
        return False
    return _is_shown(key.as_dict(private=False).get("name"))


def _is_shown(name: object) -> bool:
    """Whether whoever signs has no name, or one that can be shown."""
    try:
        if name is not None:
            check_name(name, "whoever signs")
    except SettingsError:
        return False
    return True


def read_key_set(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the published keys of whoever signs reports.

    Raises:
        InputError: the file cannot be read, or is not a JSON Web Key Set with Ed25519 keys.
        MissingExtra: joserfc is not installed.
    """
    try:
        content = read_bytes(path)
        jwks: dict[str, Any] = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: give the key set (jwks.json) of whoever signed the report") from error
    if found := instead(content, "public"):
        raise InputError(f"{path} holds no public keys: {found}; give what `dgmark report jwks` printed")
    report_keys(jwks)
    return jwks


def verify_report(document: bytes, jwks: object) -> str:
    """Check that a report is signed by one of these keys and was not changed since.

    Args:
        document: the bytes of the report's file.
        jwks: a JSON Web Key Set (as parsed JSON) with the public keys that are trusted.

    Returns:
        The id of the key that signed it.

    Raises:
        SignatureInvalid: there is no signature, it is of none of these keys, or the document was changed.
        InputError: `jwks` is not a key set with Ed25519 keys.
        SettingsError: `document` is not bytes.
        MissingExtra: joserfc is not installed.
    """
    keys = report_keys(jwks)
    from joserfc import jws
    from joserfc.errors import JoseError
    from joserfc.jwk import KeySet

    parts = _cut(_bytes_of(document))
    if parts is None or not parts[1]:
        raise SignatureInvalid(
            "this file holds no signature of dgmark: it is not a report, or it was never signed; ask whoever made it "
            "for a signed one, which `dgmark detect --report FILE --sign KEY` writes",
            "unsigned",
        )
    before, signature, after = parts
    header, attached, last = signature.split(b".") if signature.count(b".") == 2 else (b"", b"-", b"")
    # what is verified is always this document, never a payload that the signature brings along
    whole = b".".join((header, base64.urlsafe_b64encode(before + after).rstrip(b"="), last))
    try:
        found = jws.deserialize_compact(whole, KeySet.import_key_set({"keys": keys}), algorithms=[ALGORITHM])
        if not attached and _is_canonical(last):
            return str(found.protected["kid"])
    except (JoseError, ValueError, KeyError):
        pass
    named = _named_key(header)
    if named is None or named in {key["kid"] for key in keys}:
        of = f" of key {named}" if named else ""
        raise SignatureInvalid(
            f"the signature{of} does not hold: the file was changed after it was signed; get the report again from "
            "whoever made it",
            "changed",
            named,
        )
    raise SignatureInvalid(
        f"the file names key {named}, which is not among the trusted ones: without that key nobody can tell whether it "
        "was changed; ask whoever made the report for their published keys",
        "untrusted",
        named,
    )


def _named_key(header: bytes) -> str | None:
    """The key that the head of a signature names, if its name can be shown."""
    try:
        named = json.loads(base64.urlsafe_b64decode(header + b"=="))["kid"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return named if isinstance(named, str) and _is_shown(named) else None


def _bytes_of(document: object) -> bytes:
    """The bytes of a report's file; a SettingsError for anything else."""
    if isinstance(document, bytes):
        return document
    raise SettingsError(
        f"a report is given as the bytes of its file, with read_bytes(), not as a {type(document).__name__}"
    )


def _cut(document: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The document before, in and after the place of its signature; None if there is not exactly one place.

    The text of a report cannot hold such a place: its quotation marks are escaped.
    """
    places = list(_SIGNATURE.finditer(document))
    if len(places) != 1:
        return None
    start, end = places[0].span(2)
    return document[:start], document[start:end], document[end:]


def _is_canonical(last: bytes) -> bool:
    """Whether this is the only base64url text of its bytes: the unused bits of its last digit are free."""
    return base64.urlsafe_b64encode(base64.urlsafe_b64decode(last + b"==")).rstrip(b"=") == last


def report_keys(jwks: object) -> list[dict[str, Any]]:
    """The keys of a JSON Web Key Set that reports can be signed with; others are passed over (RFC 7517, section 5).

    Raises:
        InputError: the set has no such key.
        MissingExtra: joserfc is not installed.
    """
    okp = _okp()
    keys = jwks.get("keys") if isinstance(jwks, dict) else None
    if found := [key for key in (keys if isinstance(keys, list) else []) if _verifies(key, okp)]:
        return found
    raise InputError(
        "these are not public keys for reports (a JSON Web Key Set with Ed25519 keys, each with its id, and under a "
        "name of up to 80 visible characters, if any): whoever signs reports makes them with `dgmark report jwks`"
    )


def _verifies(key: Any, okp: "type[OKPKey]") -> bool:
    """Whether this is an Ed25519 key for signatures, with an id, and under a name that can be shown, if it has one."""
    from joserfc.errors import JoseError

    try:
        return (
            (key["kty"], key["crv"]) == ("OKP", "Ed25519")
            and key.get("use") in (None, "sig")
            and key.get("alg") in (None, ALGORITHM, "EdDSA")
            and "verify" in (key.get("key_ops") or ["verify"])
            and key["kid"] is not None
            and _is_shown(key["kid"])
            and _is_shown(key.get("name"))
            and bool(okp.import_key(key))
        )
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        return False


def _okp() -> "type[OKPKey]":
    with needed_extra("report", "a signed report", "joserfc"):
        from joserfc.jwk import OKPKey
    return OKPKey
