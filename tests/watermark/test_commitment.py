"""Commitments to keys: what they bind, what their files may hold, and the time stamps over them."""

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dgmark.errors import CommitmentMismatch, InputError, SettingsError
from dgmark.watermark.commitment import KeyCommitment, load_commitments
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import WatermarkSpec
from dgmark.watermark.timestamp import stamped_at
from support.known_keys import known_key, known_spec

KEY = known_key("commitment", code_length=16)
# what docs/formats.md says
MESSAGE = (
    b'dgmark/key-commitment/v1\0{"code_length":16,"grouping":"keyed","modulus":2,"prf":"shake256-rank-v1","rotation":0,"rule":"position",'
    b'"table_size":%d,"tokenizer":"storyteller","tokenizer_fingerprint":"%s"}\0%s'
)
SPECS = [
    *(
        replace(KEY.spec, **change)
        for change in (
            {"modulus": 4},
            {"rotation": 16},
            {"code_length": 0},
            {"table_size": KEY.spec.table_size + 1},
            {"tokenizer_fingerprint": "0" * 16},
        )
    ),
    known_spec(rule="bigram"),
]


def test_the_digest_is_that_of_the_documented_message() -> None:
    fields = (KEY.spec.table_size, KEY.spec.tokenizer_fingerprint.encode(), bytes(KEY.secret or b""))
    commitment = KeyCommitment.of(KEY)
    assert commitment.sha256 == hashlib.sha256(MESSAGE % fields).hexdigest()
    assert abs(datetime.now(UTC) - commitment.created) < timedelta(minutes=1)
    commitment.check(KEY)
    commitment.check(replace(KEY, key_id="a file of another name for it"))


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_commitment_binds_all_that_decides_what_is_detected(spec: WatermarkSpec) -> None:
    other = WatermarkKey(spec, KEY.key_id, KEY.secret)
    commitment = KeyCommitment.of(KEY)
    for forged in (commitment, commitment.model_copy(update={"key_fingerprint": other.fingerprint})):
        with pytest.raises(CommitmentMismatch, match="does not meet"):
            forged.check(other)


def test_a_commitment_binds_the_secret() -> None:
    with pytest.raises(CommitmentMismatch, match="does not meet"):
        KeyCommitment.of(KEY).check(known_key("another", code_length=16))


def test_a_key_without_a_secret_takes_no_commitment() -> None:
    with pytest.raises(SettingsError, match="no secret"):
        KeyCommitment.of(known_key("none", grouping="token-id"))


@pytest.mark.parametrize(
    "change",
    [
        *({"version": 2}, {"version": True}, {"format": "dgmark-key"}, {"sha256": "ab"}, {"more": 1}, None),
        *({"created": "2026-03-01T00:00:00"}, {"created": "0001-01-01T00:00:00+14:00"}),
        {"created": "9999-12-31T23:00:00-12:00"},
    ],
    ids=str,
)
def test_what_is_no_commitment_is_refused(tmp_path: Path, change: dict[str, Any] | None) -> None:
    commitment, file = KeyCommitment.of(KEY), tmp_path / "commitment.json"
    file.write_text(commitment.model_dump_json())
    assert KeyCommitment.load(file) == commitment
    file.write_text("[" * 100_000 if change is None else json.dumps({**commitment.model_dump(mode="json"), **change}))
    with pytest.raises(InputError, match="is not a commitment"):
        KeyCommitment.load(file)


def test_a_folder_of_commitments(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no commitment"):
        load_commitments(tmp_path, [KEY])
    former, mine = KeyCommitment.of(known_key("former")), KeyCommitment.of(KEY)
    (tmp_path / "former.json").write_text(former.model_dump_json())
    (tmp_path / "mine.json").write_text(mine.model_dump_json())
    assert load_commitments(tmp_path, [KEY]) == {KEY.fingerprint: mine, former.key_fingerprint: former}
    (tmp_path / "mine.json").write_text(mine.model_copy(update={"sha256": former.sha256}).model_dump_json())
    with pytest.raises(CommitmentMismatch, match="does not meet"):
        load_commitments(tmp_path, [KEY])


# --- time stamps, by an authority made with openssl


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an authority: its certificate in cert.pem, its time stamp over KEY's commitment in c.tsr."""
    pytest.importorskip("rfc3161_client")
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return new_authority(tmp_path_factory.mktemp("authority"), KeyCommitment.of(KEY).sha256)


def new_authority(folder: Path, sha256: str) -> Path:
    (folder / "serial").write_text("01")
    (folder / "tsa.cnf").write_text(
        "[tsa]\nserial=serial\nsigner_cert=cert.pem\nsigner_key=key.pem\nsigner_digest=sha256\n"
        "default_policy=1.2.3\ndigests=sha256\n"
    )
    usage = ["-addext", "extendedKeyUsage=critical,timeStamping"]
    new_key = ["-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=An authority"]
    for command in (
        ["req", "-x509", *new_key, *usage],
        ["ts", "-query", "-sha256", "-cert", "-digest", sha256, "-out", "c.tsq"],
        ["ts", "-reply", "-config", "tsa.cnf", "-section", "tsa", "-queryfile", "c.tsq", "-out", "c.tsr"],
    ):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    return folder


def test_a_time_stamp_shows_when_the_commitment_existed(authority: Path) -> None:
    response, certificate = (authority / "c.tsr").read_bytes(), (authority / "cert.pem").read_bytes()
    digest = KeyCommitment.of(KEY).sha256
    written = datetime.fromtimestamp(os.path.getmtime(authority / "c.tsr"), UTC)
    assert abs(stamped_at(digest, response, certificate) - written) < timedelta(seconds=5)


def test_time_stamps_that_do_not_hold(authority: Path, tmp_path: Path) -> None:
    response, certificate = (authority / "c.tsr").read_bytes(), (authority / "cert.pem").read_bytes()
    digest, other = KeyCommitment.of(KEY).sha256, KeyCommitment.of(known_key("another")).sha256
    stranger = (new_authority(tmp_path, digest) / "cert.pem").read_bytes()
    middle = response.index(bytes.fromhex(digest))
    changed = response.replace(bytes.fromhex(digest), bytes.fromhex(other))
    bad = [(digest, b"", certificate), (digest, response[:middle], certificate), (other, changed, certificate)]
    for asked in [(other, response, certificate), (digest, response, stranger), *bad]:
        with pytest.raises(CommitmentMismatch, match="does not hold"):
            stamped_at(*asked)
    with pytest.raises(InputError, match="not certificates in PEM"):
        stamped_at(digest, response, b"no certificate")


def test_a_time_stamp_with_a_chain_of_certificates_holds(authority: Path, tmp_path: Path) -> None:
    """OpenSSL writes the certificates in the order of its file, the parser wants them sorted."""
    digest = KeyCommitment.of(KEY).sha256
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        new_authority(tmp_path / name, digest)
    certificates = [(tmp_path / name / "cert.pem").read_text() for name in ("first", "second")]
    for folder in ("first", "second"):  # one of the two orders is not the sorted one
        made = tmp_path / folder
        (made / "chain.pem").write_text("".join(certificates))
        reply = ["ts", "-reply", "-config", "tsa.cnf", "-section", "tsa", "-queryfile", "c.tsq", "-out", "c.tsr"]
        subprocess.run(["openssl", *reply, "-chain", "chain.pem"], cwd=made, check=True, capture_output=True)
        assert stamped_at(digest, (made / "c.tsr").read_bytes(), (made / "cert.pem").read_bytes())


@pytest.mark.parametrize("ahead", [timedelta(days=1), timedelta(days=1900)])
def test_a_time_stamp_of_the_future_is_refused(
    authority: Path, monkeypatch: pytest.MonkeyPatch, ahead: timedelta
) -> None:
    class Earlier(datetime):
        """A clock that is behind that of the authority."""

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) - ahead

    monkeypatch.setattr("dgmark.watermark.timestamp.datetime", Earlier)
    response, certificate = (authority / "c.tsr").read_bytes(), (authority / "cert.pem").read_bytes()
    with pytest.raises(CommitmentMismatch, match="in the future"):
        stamped_at(KeyCommitment.of(KEY).sha256, response, certificate)
