"""Settings that depend on the model: its defaults, its block mask, and the user's settings, which come first."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

import dgmark
from dgmark.decode import DecodeConfig
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser


@dataclass(frozen=True)
class OpinionatedToy(ToyDenoiser):
    """A toy with defaults and a block mask of its own."""

    defaults: Mapping[str, Any] = field(default_factory=lambda: {"length": 24, "block_length": 8, "lookahead": 2})
    block_multiple: int = 8
    block_origin: str = "canvas"


MODEL = OpinionatedToy()


def test_settings_of_the_user_come_before_the_models_and_the_packages() -> None:
    config = DecodeConfig.of(MODEL, temperature=0.5, lookahead=3)
    assert (config.length, config.block_length, config.lookahead, config.temperature) == (24, 8, 3, 0.5)
    assert config.strategy == DecodeConfig().strategy
    assert DecodeConfig.of(ToyDenoiser()) == DecodeConfig()


def test_generate_uses_the_models_defaults_and_says_so() -> None:
    (made,) = dgmark.generate(MODEL, "w1 w2 w3", key=None)
    assert made.settings == DecodeConfig.of(MODEL).to_dict()
    assert max(made.trace.position) < 24


@pytest.mark.parametrize("block_length", [3, 16, 5])
def test_a_block_that_the_models_mask_does_not_hold_is_refused(block_length: int) -> None:
    with pytest.raises(SettingsError, match=f"blocks of 8: block length {block_length} does not divide"):
        DecodeConfig.of(MODEL, block_length=block_length, length=240)


def test_an_unknown_setting_is_refused_by_name() -> None:
    settings: dict[str, Any] = {"temprature": 0.5}
    with pytest.raises(SettingsError, match="no setting temprature"):
        DecodeConfig.of(MODEL, **settings)
