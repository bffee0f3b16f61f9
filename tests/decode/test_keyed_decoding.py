"""Whole decodes with keyed draws, token by token against a slow loop."""

from typing import Any

import pytest
import torch

from dgmark.decode import DecodeConfig, decode
from dgmark.decode.matching import key_steering
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from support.known_keys import bound_key
from support.plain_decoding import decode_with_bits

PROMPTS = [[2, 7, 5], [9, 9, 30], [25, 3, 11]]
# of the words of the first, more than 64 have at least 1e-4 of the mass; of the second, most have less
MODELS = [ToyDenoiser(words=120, spread=4.0, end_ids=()), ToyDenoiser(spread=20.0, end_bias=2.0)]
SETTINGS: list[dict[str, Any]] = [
    {},
    {"alpha": 0.5},
    {"bias": 1.5},
    {"alpha": 0.0, "bias": 1.5},
    {"temperature": 0.0, "bias": 2.0},
    {"temperature": 0.0, "bias": 2.0, "strategy": "margin"},
    {"temperature": 0.7, "top_k": 8},
    {"top_p": 0.8},
    {"steps": 9},
    {"commit": "threshold", "threshold": 0.3},
    {"commit": "factor"},
    {"strategy": "entropy"},
    {"strategy": "random"},
]


def keys_of(rule: str, model: ToyDenoiser) -> list[WatermarkKey | None]:
    """A key, none, and another key, which share a batch."""
    first, other = ({}, {"subkeys": 64}) if rule == "bigram" else ({"modulus": 3}, {"modulus": 2})
    keys = [bound_key("keyed draws", model, rule=rule, **one) for one in (first, other)]
    return [keys[0], None, keys[1].subkey(63) if rule == "bigram" else keys[1]]


@pytest.mark.parametrize("model", MODELS, ids=["many words", "ending"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("rule", ["bigram", "position"])
def test_a_decode_is_the_slow_one(rule: str, settings: dict[str, Any], model: ToyDenoiser) -> None:
    if rule == "position" and settings.get("temperature") != 0:
        settings = {"alpha": 1.0} | settings
    config, keys, matched = DecodeConfig(18, 6, **settings), keys_of(rule, model), []
    rows = decode(model, torch.tensor(PROMPTS), config, key_steering(keys, torch.device("cpu")), [4, 5, 6])
    for prompt, key, seed, row in zip(PROMPTS, keys, (4, 5, 6), rows, strict=True):
        plain = decode_with_bits(model, prompt, config, key, seed)
        assert row.trace.position == plain.positions
        assert row.token_ids == plain.y[: len(row.token_ids)]
        assert row.trace.token_id == [plain.y[position] for position in plain.positions]
        assert row.trace.matched == plain.matched
        assert row.trace.reward == pytest.approx(plain.rewards, rel=1e-9)
        matched += plain.matched if key else []
    assert True in matched
    assert False in matched or rule == "position"  # where hardly any candidate does not match
