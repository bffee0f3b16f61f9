"""A file of dgmark's own in place of another: the error says what it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from dgmark import WatermarkKey
from dgmark.decode.settings_file import TunedSettings, read_settings_file
from dgmark.errors import DgmarkError
from dgmark.files.own_files import instead
from dgmark.report.signing import SigningKey, read_key_set
from dgmark.watermark.commitment import KeyCommitment
from support.known_keys import known_key

KEY = known_key("own files")
SIGNER = SigningKey.generate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    KEY.save(tmp_path / "key")
    SIGNER.save(tmp_path / "signer")
    (tmp_path / "keys").write_text(json.dumps(SIGNER.to_jwks()))
    (tmp_path / "commitment").write_text(KeyCommitment.of(KEY).model_dump_json())
    (tmp_path / "settings").write_text(TunedSettings(model="storyteller", rule="bigram", decoding={}).model_dump_json())
    return tmp_path


WANTED: dict[str, Any] = {
    "key": WatermarkKey.load,
    "signer": SigningKey.load,
    "keys": read_key_set,
    "commitment": KeyCommitment.load,
    "settings": read_settings_file,
}
NAMED = {
    "key": "it is a watermark key",
    "signer": "it is a secret signing key",
    "keys": "it is a set of public keys",
    "commitment": "it is a commitment to a key",
    "settings": "it is a settings file",
}


@pytest.mark.parametrize("wanted", WANTED)
@pytest.mark.parametrize("given", NAMED)
def test_a_file_of_another_kind_is_named(wanted: str, given: str, folder: Path) -> None:
    if given == wanted:
        assert WANTED[wanted](folder / given)
        return
    (folder / given).chmod(0o600)
    with pytest.raises(DgmarkError, match=NAMED[given]) as refused:
        WANTED[wanted](folder / given)
    assert json.loads((folder / "key").read_text())["secret"] not in str(refused.value)
    assert json.loads((folder / "signer").read_text())["d"] not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"[" * 100_000, b"\xff", b'{"format": ["dgmark-key"]}'])
def test_any_other_content_is_not_named(content: bytes) -> None:
    assert instead(content, "dgmark-key") == ""
