"""Which of dgmark's own files a user gave in place of another, as errors say it. Knows no key and no report."""

import json

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
