"""Commitments to keys: what they bind, and what their files may hold."""

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dgmark.errors import CommitmentMismatch, InputError, SettingsError
from dgmark.watermark.commitment import KeyCommitment, load_commitments
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import WatermarkSpec
from support.known_keys import known_key, known_spec

KEY = known_key("commitment", code_length=16)
# what docs/formats.md says
MESSAGE = (
    b'dgmark/key-commitment/v1\0{"code_length":16,"grouping":"keyed","modulus":2,"prf":"shake256-rank-v1","rotation":0,"rule":"position",'
    b'"table_size":%d,"tokenizer":"storyteller","tokenizer_fingerprint":"%s"}\0%s'
)
CHANGES: list[dict[str, Any]] = [{"modulus": 4}, {"rotation": 16}, {"code_length": 0}]
CHANGES += [{"table_size": KEY.spec.table_size + 1}, {"tokenizer_fingerprint": "0" * 16}]
SPECS = [*(replace(KEY.spec, **change) for change in CHANGES), known_spec(rule="bigram")]


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
        {"created": "2026-03-01T00:00:00"},
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
