"""Specs that are refused, each with what is wrong with it."""

from typing import Any

import pytest

from dgmark.errors import SettingsError
from support.cases import cases
from support.known_keys import known_spec
from support.unchecked import unchecked


@pytest.mark.parametrize(("wrong", "message"), cases(__file__, "invalid"))
def test_an_invalid_spec_is_refused(wrong: dict[str, Any], message: str) -> None:
    with unchecked(), pytest.raises(SettingsError, match=message):
        known_spec(**wrong)
