"""The settings of a server: what is refused, and how."""

from pathlib import Path
from typing import Any

import pytest

from dgmark.engines.policy import Policy
from dgmark.errors import KeyFileError, SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key_file import KeyFilePermissionWarning
from support.cases import cases
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
    ("settings", "problem"), [*cases(__file__, "refused"), ({"key": None}, "key None is not the name of a key file")]
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
