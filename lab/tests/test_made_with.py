"""The line of what figures depend on: which change of the code changes which part."""

from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
from torch import Tensor

from dgmark.decode.steps.selection import order_of
from dgmark.errors import SettingsError
from dgmark_lab.experiments.made_with import identifier, made_with
from dgmark_lab.experiments.prompt_sets import builtin_prompts

PARTS = ("bigram", "position", "kgw", "decoding", "decoding-kgw", "storyteller")


def without_matches(scores: Tensor, masked: Tensor, _preferred: Tensor | None = None, *rest: Any) -> Tensor:
    """Order positions as if no candidate matched."""
    return order_of(scores, masked, None, *rest)


@cache
def of_a_few_prompts() -> dict[str, str]:
    """The identifier of each part, of a twentieth of the prompts."""
    with patch("dgmark_lab.experiments.made_with.builtin_prompts", lambda: builtin_prompts()[::20]):
        return {part: identifier.__wrapped__(part) for part in PARTS}


@pytest.mark.parametrize(
    ("where", "value", "changed"),
    [
        ("dgmark.detection.statistics.parts.WHOLE_SHARE", 0.6, {"bigram"}),
        ("dgmark.detection.statistics.position.adjusted_p", lambda p, _share: p, {"position"}),
        ("dgmark.watermark.position.DEFAULT_CODE", 8, {"position", "decoding"}),
        ("dgmark_lab.baselines.prf.PRF_VERSION", "splitmix64-v2", {"kgw", "decoding-kgw"}),
        ("dgmark.decode.steps.selection.order_of", without_matches, {"decoding"}),
        ("dgmark.decode.steps.proposals.CANDIDATES", 4, {"decoding"}),
        ("dgmark.decode.steps.proposals.filter_weights", lambda weights, *_rest: weights**2, {"decoding"}),
        ("dgmark.detection.statistics.parts.MIN_UNITS", 10**9, {"bigram"}),
        ("dgmark.decode.steps.draws.STEP", 12345, set()),  # other random numbers: figures over many texts stay
        ("dgmark_lab.experiments.store._content_hash", lambda file: file.name, {"storyteller"}),
    ],
)
def test_a_change_of_the_code_changes_the_parts_that_depend_on_it(
    where: str, value: Any, changed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = of_a_few_prompts()
    monkeypatch.setattr(where, value)
    after = of_a_few_prompts.__wrapped__()
    assert {part for part in PARTS if after[part] != before[part]} == changed


def test_the_line_names_the_version_and_each_part() -> None:
    line = made_with("kgw", storyteller="0123456789abcdef")
    assert line == f"Made with dgmark: kgw {identifier('kgw')[:8]}, storyteller 01234567."
    with pytest.raises(SettingsError, match="'kgv'"):
        made_with("kgv")
