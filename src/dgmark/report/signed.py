"""What a signed report states, once its signature holds: who signed it, when it was made, and what it found."""

import html
import json
import re
from collections.abc import Mapping
from typing import Any

from dgmark.errors import SignatureInvalid
from dgmark.report.signing import report_keys, verify_report

# fields of the JSON report that the page repeats for machines
_STATED = ("created", "name", "heading", "key_fingerprint", "key_name", "key_commitment")
_IN_PAGE = re.compile(rb'<meta name="dgmark-report" content="([^"]*)">')


def stated(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Those fields of a JSON report (docs/formats.md) that say what was found, and when."""
    return {name: fields.get(name) for name in _STATED}


def read_signed_report(document: bytes, jwks: object) -> dict[str, Any]:
    """Verify a report, and read who signed it and what it states; see `verify_report`.

    Returns:
        The fields of `stated`, `key_id` of the key that signed it, and `signer`: whose key that is, None if the key set
        does not say.

    Raises:
        SignatureInvalid: the signature does not hold, or what was signed is not a report of dgmark.
        InputError: `jwks` is not a key set with Ed25519 keys.
        MissingExtra: joserfc is not installed.
    """
    key_id = verify_report(document, jwks)
    signer = next(key.get("name") for key in report_keys(jwks) if key["kid"] == key_id)
    in_page = _IN_PAGE.search(document)
    try:
        fields = json.loads(html.unescape(in_page[1].decode()) if in_page else document)
        if fields["heading"]:
            return {"key_id": key_id, "signer": signer, **stated(fields)}
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise SignatureInvalid(
        f"key {key_id} signed this file, and it was not changed, but it is not a report of dgmark", "no_report", key_id
    )
