"""Which of dgmark's own files a file is: one of keys, or another than was asked for. Knows no key and no report."""

import json
import re
from pathlib import Path

_OWN = {
    "dgmark-key": "a watermark key, which `dgmark keygen` made",
    "dgmark-key-commitment": "a commitment to a key, which `dgmark key commit` printed",
    "dgmark-report": "a report of a text",
    "dgmark-joined-report": "a report of several texts",
    "dgmark-settings": "a settings file",
    "dgmark-tokens": "a file of access tokens, which `dgmark access keygen` made",
    "private": "a secret signing key, which `dgmark report keygen` made",
    "public": "a set of public keys for reports, which `dgmark report jwks` printed",
}

# those that belong to keys: an object that states their format, or that is a private JSON Web Key
_MOST_OF_KEY = 2**16  # bytes
_KEY = re.compile(
    rb"""(?:\xef\xbb\xbf|\xff\xfe|\xfe\xff)?\s*\{(?:.*"format"\s*:\s*"dgmark-(?:key|key-commitment|tokens)\""""
    rb"""|(?=.*"kty"\s*:).*"d"\s*:\s*"[\w-])""",
    re.S,
)


def is_key(path: Path) -> bool:
    """Whether a file holds a key, a commitment or tokens of dgmark, whatever its name: it is no text to score."""
    try:
        content = path.read_bytes() if path.is_file() and path.stat().st_size <= _MOST_OF_KEY else b""
    except OSError:  # which is an error where the file is read
        return False
    return _KEY.match(content.replace(b"\0", b"")) is not None  # UTF-16 has zeros between letters


def instead(content: bytes, wanted: str) -> str:
    """What a file holds in place of the kind that is wanted: "it is a report of a text"; "" if it is not known."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(fields, dict):
        return ""
    of_keys = "private" if "d" in fields and "kty" in fields else "public" if "keys" in fields else ""
    kind = str(fields.get("format", of_keys))
    return f"it is {_OWN[kind]}" if kind in _OWN and kind != wanted else ""
