"""The test of a rule that another package adds: options and figures of its own."""

from dataclasses import dataclass
from typing import Any

import pytest

from dgmark import Detection, Detector, Keyring, WatermarkKey
from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.results.figures import RuleFigures
from dgmark.detection.statistics.bigram import BigramTest
from dgmark.detection.statistics.rules import DetectionSettings, RuleOptions
from dgmark.errors import SettingsError
from dgmark.watermark.rules import Rule
from support.known_keys import known_key


@dataclass(frozen=True)
class LeastOptions(RuleOptions):
    """The option of a test of another package."""

    least: int = 3


@dataclass(frozen=True)
class LeastFigures(RuleFigures):
    """Its figures."""

    seen: int

    def lines(self) -> tuple[tuple[str, str], ...]:
        """What it shows."""
        return (("seen", str(self.seen)),)


class LeastTest(BigramTest):
    """Pairs are counted as by rule bigram, and the option is a figure."""

    options_type = LeastOptions
    figures_type = LeastFigures  # type: ignore[assignment]

    def __init__(self, key: WatermarkKey, tokens: ScoredIds, settings: DetectionSettings) -> None:
        super().__init__(key, tokens, settings)
        assert isinstance(settings.options, LeastOptions)
        self.least = settings.options.least

    def fields(self, found: bool) -> dict[str, Any]:
        """Those of rule bigram, with other figures."""
        return {**super().fields(found), "figures": LeastFigures(self.least)}


def test_a_rule_of_another_package_has_options_and_figures_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    key = known_key("pairs", rule="bigram")
    monkeypatch.setattr(Rule, "test", lambda _: LeastTest)
    options: Any = {"least": 5}
    for scorer in (Detector(key, **options), Keyring([key], **options)):
        found = scorer.detect("Once upon a time.")
        assert (found.figures, found.tries, found.counts[0]) == (LeastFigures(5), 1, "tokens")
        assert found.to_row("a")["figures"] == {"seen": 5}
        assert scorer.settings["least"] == 5
    assert Detector(key).settings["least"] == 3
    assert [field.name for field in Detection.arrow_schema(rules=["bigram"]).field("figures").type] == ["seen"]
    for wrong in ({"phase": "start"}, {"leest": 5}):
        with pytest.raises(SettingsError, match="is no option of rule bigram"):
            Detector(key, **wrong)
