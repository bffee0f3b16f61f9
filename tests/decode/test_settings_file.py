"""Settings files: they are read and used, and what they must not hold is refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

import dgmark
from dgmark.decode.config import DecodeConfig
from dgmark.decode.settings_file import TunedSettings, read_settings_file
from dgmark.errors import SettingsError
from support.cases import cases
from support.command_line import rows, run
from support.known_keys import known_key
from support.unchecked import unchecked

TUNED = TunedSettings(
    model="storyteller",
    rule="position",
    decoding={"temperature": 0.6, "min_relative_reward": 0.05, "lookahead": 3, "top_p": 0.95},
)


def written(path: Path, **changes: Any) -> Path:
    """A settings file; a field whose value is "..." is left out."""
    content = {**TUNED.model_dump(), **changes}
    path.write_text(json.dumps({name: value for name, value in content.items() if value != "..."}))
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"model": TUNED.model, "rule": TUNED.rule, "decoding": TUNED.decoding}))
    assert read_settings_file(path) == TUNED
    key = known_key("settings")
    assert dgmark.read_settings(path, key=key) == TUNED.decoding
    assert dgmark.read_settings(str(path), key=None) == TUNED.decoding
    DecodeConfig(**dgmark.read_settings(path, key=None))


def test_generate_takes_a_file_and_options_go_before_it(tmp_path: Path) -> None:
    path, right, wrong = tmp_path / "settings.json", tmp_path / "right.json", tmp_path / "wrong.json"
    written(path, rule="bigram", decoding={"temperature": 0.7, "block_length": 8})
    dgmark.WatermarkKey.generate().save(right)
    known_key("wrong").save(wrong)
    arguments = ("--settings", path, "--prompt", "Once upon", "--length", 8, "--json")
    for options, temperature in (((), 0.7), (("--temperature", 0.25), 0.25)):
        (row,) = rows(run("generate", "--key", right, *arguments, *options).stdout)
        assert (row["settings"]["temperature"], row["settings"]["block_length"]) == (temperature, 8)
    refused = run("generate", "--key", wrong, *arguments, code=2)
    assert "a key of rule bigram, and the key is of rule position" in " ".join(refused.stderr.split())


def test_every_decoding_setting_can_stand_in_a_file(tmp_path: Path) -> None:
    every = DecodeConfig(round_trip_check=False, top_k=7, steps=128, alpha=0.5, bias=0.2).to_dict()
    assert read_settings_file(written(tmp_path / "all.json", decoding=every)).decoding == every


@pytest.mark.parametrize(("changes", "message"), cases(__file__, "refused"))
def test_what_a_file_must_not_hold_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = written(tmp_path / "settings.json", **changes)
    with unchecked(), pytest.raises(SettingsError, match=message) as error:
        read_settings_file(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b'"text"', b"[" * 100_000])
def test_what_is_no_settings_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.json"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match="settings file"):
        read_settings_file(path)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        read_settings_file(tmp_path / "none.json")
