"""Settings that are invalid, or have no meaning under a rule, are refused with the reason."""

from typing import Any

import pytest
import torch

from dgmark.decode import DecodeConfig, NoMark, OneKeySide, decode
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from support.known_keys import bound_key
from support.rules import rule_of_key
from support.unchecked import unchecked

LENGTH, BLOCK = 8, 4
TOY = ToyDenoiser(end_ids=())
PROMPTS = torch.tensor([[2, 7, 5, 9], [11, 3, 20, 4], [8, 8, 25, 16]])
SEEDS = [5, 6, 7]
PAIRS, POSITIONS = (rule_of_key(bound_key("config", TOY, rule=rule), len(SEEDS)) for rule in ("bigram", "position"))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"strategy": "margin", "temperature": 0.5}, "margin proposes the most likely token: it needs temperature 0"),
        ({"strategy": "random", "lookahead": 2}, "random are noise, so lookahead has no best candidates"),
        (
            {"strategy": "random", "min_relative_reward": 0.5},
            "random say nothing of quality, so min_relative_reward has nothing to compare",
        ),
        (
            {"strategy": "entropy", "commit": "threshold"},
            "commit threshold compares confidences: it needs strategy conf",
        ),
        ({"commit": "threshold", "steps": 4}, "commit threshold takes as many steps as it needs: leave steps out"),
        ({"lookahead": 0}, "lookahead 0 must be greater than or equal to 1"),
        ({"commit": "all"}, "commit 'all' must be 'quota' or 'threshold'"),
        ({"threshold": 1.0}, "threshold 1.0 must be less than 1"),
        ({"min_relative_reward": 1.1}, "min_relative_reward 1.1 must be less than or equal to 1"),
        ({"steps": 9}, "steps 9 must be a multiple of the 2 blocks, and at most 8, one a token"),
        ({"steps": 3}, "steps 3 must be a multiple of the 2 blocks"),
        ({"steps": 1}, "steps 1 must be a multiple of the 2 blocks"),
        ({"steps": 0}, "steps 0 must be greater than or equal to 1"),
        (
            {"temperature": 0.0, "top_k": 3},
            "temperature 0 takes the most likely token: top-k and top-p have no meaning",
        ),
        ({"length": -32}, "length -32 must be greater than or equal to 1"),
        ({"temperature": float("nan")}, "temperature nan must be a finite number"),
        ({"temperature": float("inf")}, "temperature inf must be a finite number"),
        ({"top_p": float("nan")}, "top_p nan must be a finite number"),
        ({"alpha": 1.1}, "alpha 1.1 must be less than or equal to 1"),
        ({"bias": 21.0}, "bias 21.0 must be less than or equal to 20"),
        ({"temperature": 1e-7}, "temperature 1e-07 must be 0 or at least 1e-06"),
        ({"temperature": 1e7}, "temperature 10000000.0 must be less than or equal to 1000000"),
        ({"round_trip_check": "no"}, "round_trip_check 'no' must be a valid boolean"),
        ({"top_k": True}, "top_k True must be a valid integer"),
        ({"warmth": 1}, "there is no setting warmth; the settings are length, block_length"),
    ],
    ids=str,
)
def test_invalid_settings_are_refused_with_the_reason(settings: dict[str, Any], reason: str) -> None:
    # without the run-time type checks, as users call it
    with unchecked(), pytest.raises(SettingsError, match=reason):
        DecodeConfig(**{"length": LENGTH, "block_length": BLOCK, **settings})


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"temperature": 0.0}, "temperature 0 draws nothing, so rule bigram leaves no mark: give a bias"),
        ({"temperature": 0.0, "alpha": 1.0}, "temperature 0 draws nothing"),
        ({"alpha": 0.0}, "alpha 0 makes draws plain, so rule bigram leaves no mark: give a bias"),
        ({"lookahead": 2}, "lookahead above 1 needs .*: use 1"),
        ({"min_relative_reward": 0.1}, "min_relative_reward needs .*: leave it out"),
    ],
    ids=str,
)
def test_settings_that_have_no_meaning_for_pairs_or_leave_no_mark_are_refused(
    settings: dict[str, Any], reason: str
) -> None:
    config = DecodeConfig(LENGTH, BLOCK, **settings)
    with pytest.raises(SettingsError, match=reason) as caught:
        decode(TOY, PROMPTS, config, PAIRS, SEEDS)
    assert caught.value.field in settings
    for rule in (POSITIONS, NoMark()):  # they have one for rule "position", and change nothing without a mark
        assert len(decode(TOY, PROMPTS, config, rule, SEEDS)) == len(SEEDS)


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"alpha": 1.0}, {"bias": 0.5}], ids=str)
def test_keyed_draws_do_not_go_with_a_watermark_without_bits(settings: dict[str, Any]) -> None:
    side = OneKeySide(bound_key("config", TOY, rule="bigram"), len(SEEDS), "cpu")
    decode(TOY, PROMPTS, DecodeConfig(LENGTH, BLOCK), side, SEEDS)
    with pytest.raises(SettingsError, match="belongs to keyed draws, and this watermark has options of its own"):
        decode(TOY, PROMPTS, DecodeConfig(LENGTH, BLOCK, **settings), side, SEEDS)


def test_an_invalid_length_is_named_where_it_is_positional_too() -> None:
    with pytest.raises(SettingsError, match=r"^length 0 must be greater than or equal to 1; block_length 0 must be"):
        DecodeConfig(0, 0)
