"""The schemes that cells name, and the detector that scores a cell's texts."""

from collections.abc import Mapping
from typing import Any, Protocol

from dgmark.detector import Detector, TextOrIds
from dgmark.errors import SettingsError
from dgmark.key import WatermarkKey
from dgmark.tokenizer import Tokenizer

DGMARK = "dgmark"


class Scored(Protocol):
    """What the report reads of a detection."""

    p_value: float
    z_score: float
    green_fraction: float
    num_tokens_scored: int


class Scorer(Protocol):
    """A detector of any scheme."""

    def detect(self, text_or_ids: TextOrIds) -> Any:
        """Score one text."""
        ...


def scheme_options(scheme: str | None, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of a scheme, those left out at their defaults.

    Raises:
        SettingsError: no such scheme or option.
    """
    if scheme is None or scheme == DGMARK:
        if options:
            raise SettingsError(f"scheme {scheme} has no options")
        return {}
    raise SettingsError(f"there is no scheme {scheme!r}")


def scorer(scheme: str | None, options: Mapping[str, Any], key: WatermarkKey, tokenizer: Tokenizer) -> Scorer:
    """The detector of a scheme for texts that begin at position 0; of no scheme, dgmark's.

    All schemes are given the start of the text, as in the paper: dgmark tries one phase, by the exact test.
    """
    if scheme is None or scheme == DGMARK:
        return Detector(key, tokenizer=tokenizer, mode="intact", phase="start")
    raise SettingsError(f"there is no scheme {scheme!r}")
