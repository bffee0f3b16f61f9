"""Generation with sub-keys: a fresh one for each row, or the one that is asked for."""

import secrets
from typing import Any

import pytest

import dgmark
from dgmark.decode import Prepared, Request
from dgmark.decode.generation import generations
from dgmark.errors import SettingsError
from dgmark.models.toy import ToyDenoiser
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines import BASELINES
from support.known_keys import bound_key

TOY = ToyDenoiser(end_bias=-2.0)
SHORT: dict[str, Any] = {"length": 12, "block_length": 4}
PARTS: list[str | int] = ["w1 w2 w3", 7, "w4 w5", 12, "w6 w7 w8 w9"]


KEY = bound_key("many", TOY, subkeys=4096)


# --- which sub-key -------------------------------------------------------------------------------


def test_the_operating_system_draws_once_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def below(count: int) -> int:
        asked.append(count)
        return len(asked)

    monkeypatch.setattr(secrets, "randbelow", below)
    rows = dgmark.generate(TOY, ["w1", "w2", "w3 w4"], key=KEY, batch_size=2, **SHORT)
    assert [row.subkey for row in rows] == [1, 2, 3]  # whatever the seeds and prompts
    assert asked == [4096] * 3


def test_a_given_sub_key_marks_every_row_and_writes_the_same_text_again() -> None:
    one, two = (dgmark.generate(TOY, ["w1", "w2 w3"], key=KEY, subkey=77, seed=3, **SHORT) for _ in range(2))
    assert one == two == dgmark.generate(TOY, ["w1", "w2 w3"], key=KEY.subkey(77), seed=3, **SHORT)
    assert [row.subkey for row in one] == [77, 77]
    assert {row.key_fingerprint for row in one} == {KEY.fingerprint}
    assert [row.token_ids for row in one] != [
        row.token_ids for row in dgmark.generate(TOY, ["w1", "w2 w3"], key=KEY, subkey=78, seed=3, **SHORT)
    ]


def test_a_request_keeps_the_sub_key_that_it_drew() -> None:
    prepared = Prepared.of(TOY, [Request("w1", 0, KEY)], SHORT)
    first, again = (generations(prepared, [0])[0] for _ in range(2))
    assert first == again
    assert first.subkey == prepared.requests[0].subkey


# --- holes -------------------------------------------------------------------------------------


def test_holes_are_filled_with_a_sub_key_of_each_text() -> None:
    one, two, three = dgmark.infill(TOY, [PARTS, PARTS, PARTS], key=KEY, seed=1)
    assert len({one.subkey, two.subkey, three.subkey}) > 1  # three draws of one number: 6e-8
    assert one.to_row("a")["subkey"] == one.subkey
    (again,) = dgmark.infill(TOY, [PARTS], key=KEY, subkey=one.subkey, seed=1)
    assert again == one
    assert dgmark.infill(TOY, [PARTS], key=None)[0].to_row("a")["subkey"] is None


# --- who refuses them ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "message"), [(KEY, r"sub-key 4096 is not in 0\.\.4095"), (None, "text without a mark has")]
)
def test_a_sub_key_that_there_is_not_is_refused(key: WatermarkKey | None, message: str) -> None:
    ways: list[tuple[Any, Any]] = [(dgmark.generate, "w1"), (dgmark.stream_generate, "w1"), (dgmark.infill, [PARTS])]
    for way, given in ways:
        with pytest.raises(SettingsError, match=message):
            way(TOY, given, key=key, subkey=4096)


@pytest.mark.parametrize("name", BASELINES)
def test_a_published_rule_has_no_sub_keys(name: str) -> None:
    with pytest.raises(SettingsError, match=f"rule {name} has no sub-keys: leave that out"):
        WatermarkKey.generate(TOY, rule=name, subkeys=4)
    assert WatermarkKey.generate(TOY, rule=name, subkeys=1).num_subkeys == 1
