"""Settings that are invalid, or have no meaning under a rule, are refused with the reason."""

from typing import Any

import pytest
import torch

from dgmark.decode import DecodeConfig, NoMark, OneKeySide, decode
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from support.cases import cases
from support.known_keys import bound_key
from support.rules import rule_of_key
from support.unchecked import unchecked

LENGTH, BLOCK = 8, 4
TOY = ToyDenoiser(end_ids=())
PROMPTS = torch.tensor([[2, 7, 5, 9], [11, 3, 20, 4], [8, 8, 25, 16]])
SEEDS = [5, 6, 7]
PAIRS, POSITIONS = (rule_of_key(bound_key("config", TOY, rule=rule), len(SEEDS)) for rule in ("bigram", "position"))


@pytest.mark.parametrize(("settings", "reason"), cases(__file__, "invalid"))
def test_invalid_settings_are_refused_with_the_reason(settings: dict[str, Any], reason: str) -> None:
    # without the run-time type checks, as users call it
    with unchecked(), pytest.raises(SettingsError, match=reason):
        DecodeConfig(**{"length": LENGTH, "block_length": BLOCK, **settings})


@pytest.mark.parametrize(("settings", "reason"), cases(__file__, "without_meaning_for_pairs"))
def test_settings_that_have_no_meaning_for_pairs_or_leave_no_mark_are_refused(
    settings: dict[str, Any], reason: str
) -> None:
    config = DecodeConfig(LENGTH, BLOCK, **settings)
    with pytest.raises(SettingsError, match=reason) as caught:
        decode(TOY, PROMPTS, config, PAIRS, SEEDS)
    assert caught.value.field in settings
    for rule in (POSITIONS, NoMark()):  # they have one for rule "position", and change nothing without a mark
        assert len(decode(TOY, PROMPTS, config, rule, SEEDS)) == len(SEEDS)


@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"alpha": 1.0}, {"bias": 0.5}, {"edit_threshold": 0.5}], ids=str)
def test_keyed_draws_and_edits_do_not_go_with_a_watermark_without_bits(settings: dict[str, Any]) -> None:
    side = OneKeySide(bound_key("config", TOY, rule="bigram"), len(SEEDS), "cpu")
    decode(TOY, PROMPTS, DecodeConfig(LENGTH, BLOCK), side, SEEDS)
    reason = "belongs to keyed draws, and this watermark has options of its own"
    if "edit_threshold" in settings:
        reason = "edit_threshold needs matches that an edit may not lose"
    with pytest.raises(SettingsError, match=reason):
        decode(TOY, PROMPTS, DecodeConfig(LENGTH, BLOCK, **settings), side, SEEDS)


def test_an_invalid_length_is_named_where_it_is_positional_too() -> None:
    with pytest.raises(SettingsError, match=r"^length 0 must be greater than or equal to 1; block_length 0 must be"):
        DecodeConfig(0, 0)
