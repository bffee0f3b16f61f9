import base64
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from dgmark.errors import (
    InputError,
    KeyFileError,
    KeyFileExists,
    KeyFileFormat,
    KeyFileNotFound,
    SettingsError,
    SignatureInvalid,
)
from dgmark.report.signing import SigningKey, read_key_set, verify_report
from support.known_keys import known_key

DOCUMENT = b'{"verdict": "watermarked", "signature": ""}\n'
PAGE = b'<meta name="dgmark-signature" content="">\n<p>Watermark found</p>'


@pytest.fixture(scope="module")
def signer() -> SigningKey:
    return SigningKey.generate()


@pytest.mark.parametrize("document", [DOCUMENT, PAGE])
def test_any_changed_byte_fails(signer: SigningKey, document: bytes) -> None:
    signed, keys = signer.sign(document), signer.to_jwks()
    assert verify_report(signed, keys) == signer.key_id
    changes = [
        *(
            signed[:at] + bytes([signed[at] ^ bit]) + signed[at + 1 :]
            for at in range(len(signed))
            for bit in (1, 4, 128)
        ),
        *(signed[:at] + signed[at + 1 :] for at in range(len(signed))),
        *(signed[:at] + b" " + signed[at:] for at in range(len(signed) + 1)),
    ]
    for changed in changes:
        with pytest.raises(SignatureInvalid):
            verify_report(changed, keys)


@pytest.mark.parametrize("document", [DOCUMENT, PAGE])
@pytest.mark.parametrize("change", [b"", b"x"])
@pytest.mark.parametrize("attach", ["the original", "the changed one", "other bytes"])
def test_signature_with_an_attached_payload_is_refused(
    signer: SigningKey, document: bytes, change: bytes, attach: str
) -> None:
    """RFC 7515 lets a signature carry its payload, which need not be the document that it stands in."""
    payload = {"the original": document, "the changed one": document + change, "other bytes": b"x"}[attach]
    header, middle, signature = re.findall(rb'"([^".]+)\.([^".]*)\.([^".]+)"', signer.sign(document))[0]
    assert not middle
    attached = base64.urlsafe_b64encode(payload).rstrip(b"=")
    forged = document.replace(b'""', b'"' + b".".join((header, attached, signature)) + b'"') + change
    with pytest.raises(SignatureInvalid):
        verify_report(forged, signer.to_jwks())


def test_only_trusted_keys_count(signer: SigningKey) -> None:
    other = SigningKey.generate()
    with pytest.raises(SignatureInvalid, match="not among the trusted"):
        verify_report(signer.sign(DOCUMENT), other.to_jwks())
    both = {"keys": other.to_jwks()["keys"] + signer.to_jwks()["keys"]}
    assert verify_report(signer.sign(DOCUMENT), both) == signer.key_id


@pytest.mark.parametrize("document", [b"", b"%PDF-1.4", DOCUMENT, DOCUMENT + PAGE, DOCUMENT.replace(b'""', b'"e30.."')])
def test_without_a_signature(signer: SigningKey, document: bytes) -> None:
    with pytest.raises(SignatureInvalid):
        verify_report(document, signer.to_jwks())


@pytest.mark.parametrize("document", [b"", b"{}", DOCUMENT + PAGE])
def test_document_without_one_empty_place_is_not_signed(signer: SigningKey, document: bytes) -> None:
    with pytest.raises(SettingsError, match="place for a signature"):
        signer.sign(document)
    with pytest.raises(SettingsError, match="place for a signature"):
        signer.sign(signer.sign(DOCUMENT))


@pytest.mark.parametrize("keys", [{}, {"keys": []}, {"keys": [{"kty": "oct", "k": "AAAA", "kid": "x"}]}, [], None, "x"])
def test_unusable_key_sets(signer: SigningKey, keys: Any) -> None:
    with pytest.raises(InputError, match="JSON Web Key Set"):
        verify_report(signer.sign(DOCUMENT), keys)


def test_key_file(signer: SigningKey, tmp_path: Path) -> None:
    path = tmp_path / "sign.json"
    signer.save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert verify_report(SigningKey.load(path).sign(DOCUMENT), signer.to_jwks()) == signer.key_id
    with pytest.raises(KeyFileExists):
        signer.save(path)
    path.chmod(0o644)
    with pytest.raises(KeyFileError):
        SigningKey.load(path)
    with pytest.raises(KeyFileNotFound, match="dgmark report keygen"):
        SigningKey.load(tmp_path / "none.json")


def test_keys_of_other_uses_beside_that_of_reports_are_passed_over(signer: SigningKey, tmp_path: Path) -> None:
    (own,) = signer.to_jwks()["keys"]
    (other,) = SigningKey.generate().to_jwks()["keys"]
    others: list[Any] = [
        {"kty": "RSA", "kid": "rsa", "use": "sig", "n": "AQAB", "e": "AQAB"},
        {"kty": "EC", "kid": own["kid"], "crv": "P-256", "x": "AA", "y": "AA"},
        {"kty": "OKP", "kid": "x", "crv": "X25519", "x": other["x"]},
        {**other, "use": "enc"},
        {**other, "key_ops": ["deriveKey"]},
        {**other, "x": "!"},
        {name: value for name, value in other.items() if name != "kid"},
        {"kty": "of a later standard"},
        None,
    ]
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [*others, own]}))
    jwks = read_key_set(tmp_path / "jwks.json")
    assert verify_report(signer.sign(DOCUMENT), jwks) == signer.key_id
    with pytest.raises(InputError, match="not public keys for reports"):
        verify_report(signer.sign(DOCUMENT), {"keys": others})


def test_what_is_no_signing_key(signer: SigningKey, tmp_path: Path) -> None:
    known_key("sign").save(tmp_path / "watermark.json")
    contents = [b"", b"[]", b"{}", b"\xff", json.dumps(signer.to_jwks()["keys"][0]).encode()]
    for number, content in enumerate(contents):
        (tmp_path / f"{number}.json").write_bytes(content)
    for path in tmp_path.iterdir():
        path.chmod(0o600)
        with pytest.raises(KeyFileFormat, match="dgmark report keygen"):
            SigningKey.load(path)


def test_secret_stays_in_the_file(signer: SigningKey) -> None:
    private = str(signer._key.as_dict(private=True)["d"])
    assert private not in json.dumps(signer.to_jwks())
    assert private not in repr(signer)
    assert private.encode() not in signer.sign(DOCUMENT)
