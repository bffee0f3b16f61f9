"""Specs that are refused, each with what is wrong with it."""

from typing import Any

import pytest

from dgmark.errors import SettingsError
from support.known_keys import known_spec
from support.unchecked import unchecked


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"modulus": 1}, "modulus 1 is not in"),
        ({"modulus": 17}, "modulus 17 is not in"),
        ({"rotation": -1}, "rotation -1 is not in"),
        ({"grouping": "token-id", "rotation": 8}, "no key to draw from"),
        ({"grouping": "token-id", "code_length": 8}, "no key to draw from"),
        ({"grouping": "parity"}, "grouping is not one of: keyed, token-id"),
        ({"table_size": 1}, "table size 1 is not in"),
        ({"code_length": 3}, "code length 3 is not a multiple of modulus 2"),
        ({"code_length": 66}, "code length 66 is not a multiple of modulus 2"),
        ({"code_length": -2}, "code length -2 is not a multiple of modulus 2"),
        ({"modulus": 16, "code_length": 8}, "code length 8 is not a multiple of modulus 16"),
        (
            {"rule": "position", "subkeys": 2},
            "rule position has no sub-keys: leave that out, or choose a rule that has it",
        ),
        ({"rule": "bigram", "modulus": 4}, "rule bigram has no modulus: leave that out, or choose a rule that has it"),
        ({"rule": "bigram", "rotation": 8}, "bigram has no rotation"),
        ({"rule": "bigram", "code_length": 16}, "bigram has no code length"),
        ({"rule": "bigram", "nearest": 3, "farthest": 2}, "3 to 2, are not a range"),
        ({"rule": "bigram", "farthest": 65}, "1 to 65, are not a range"),
        *(({"subkeys": number}, f"subkeys {number} is not a power of two") for number in (0, -1, 3, 131_072)),
        *(({"subkeys": value}, "not a whole number") for value in (True, 2.0, "2")),
    ],
    ids=str,
)
def test_an_invalid_spec_is_refused(wrong: dict[str, Any], message: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=message):
        known_spec(**wrong)
