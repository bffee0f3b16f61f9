"""The settings of a server: what is refused, and how."""

from pathlib import Path
from typing import Any

import pytest

from dgmark.engines.policy import Policy
from dgmark.errors import KeyFileError, SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key_file import KeyFilePermissionWarning
from support.known_keys import bound_key


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two keys."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("a", "b"):
        bound_key(name, ToyDenoiser(), subkeys=1).save(folder / f"{name}.json")
    return folder


def test_what_is_left_out_has_its_default(keys: Path) -> None:
    policy = Policy.of({"keys": str(keys), "key": "b", "bias": 1}, temperature=0, commit="threshold", threshold=0.95)
    assert (policy.default, policy.enforce, policy.slots) == ("b", False, 256)
    assert (policy.config.commit, policy.config.threshold) == ("threshold", 0.95)
    with pytest.raises(SettingsError, match=r"several keys \(a, b\): say with `key` which one"):
        Policy.of({"keys": str(keys)})


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"key": "other"}, "there is no key 'other'"),
        ({"edit_threshold": 0.5}, "there is no setting edit_threshold; the settings are keys, key,"),
        ({"top_p": 0.9}, "there is no setting top_p"),
        ({"strategy": "entropy", "commit": "threshold"}, "needs strategy confidence"),
        ({"threshold": 0.8}, "threshold has a meaning under commit threshold only, and the commit is quota"),
        ({"commit": "quota", "threshold": 0.8}, "leave threshold out"),
        ({"slots": "x"}, "slots 'x' is not a whole number of at least 1"),
        ({"slots": 0}, "slots 0 is not"),
        ({"slots": True}, "slots True is not"),
        ({"key": None}, "key None is not the name of a key file"),
        ({"key": 1}, "key 1 is not the name of a key file"),
        ({"allow_open_keys": "false"}, "allow_open_keys 'false' is neither true nor false; write it without quotes"),
        ({"allow_open_keys": 0}, "allow_open_keys 0 is neither"),
        ({"policy": True}, "policy True is not one of"),
        ({"temperature": 0}, "temperature 0 draws nothing, so rule bigram leaves no mark: give a bias"),
        ({"min_relative_reward": 0.5}, "prefers some candidates"),
    ],
)
def test_a_setting_without_effect_or_of_a_wrong_type_is_refused(
    keys: Path, settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(SettingsError, match=problem):
        Policy.of({"keys": str(keys), "key": "a", **settings})


def test_keys_of_both_rules_in_one_folder_are_refused(tmp_path: Path) -> None:
    for rule in ("bigram", "position"):
        bound_key(rule, ToyDenoiser(), rule=rule).save(tmp_path / f"{rule}.json")
    with pytest.raises(SettingsError, match="keys of the rules bigram and position"):
        Policy.of({"keys": str(tmp_path), "key": "bigram"})


def test_open_keys_are_refused_unless_allowed(keys: Path) -> None:
    (keys / "a.json").chmod(0o644)
    try:
        with pytest.raises(KeyFileError):
            Policy.of({"keys": str(keys), "key": "a", "allow_open_keys": False})
        with pytest.warns(KeyFilePermissionWarning):
            assert Policy.of({"keys": str(keys), "key": "a", "allow_open_keys": True}).default == "a"
    finally:
        (keys / "a.json").chmod(0o600)
