"""The scorer: one protocol for everything that scores texts, whether one key, a keyring or a baseline's detector.

Knows nothing of how texts are scored.
"""

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from dgmark.detection.detector import Detector
from dgmark.detection.keyring import Keyring
from dgmark.detection.reader import Reader, TextOrIds
from dgmark.detection.result import Detection
from dgmark.errors import SettingsError


@runtime_checkable
class Scorer(Protocol):
    """Scores texts: `Detector`, `Keyring` and the baselines' `SchemeDetector`."""

    @property
    def reader(self) -> Reader:
        """Reads texts and ids for this scorer."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text, as plain JSON values.

        Every scorer has the fields keys (fingerprints), fpr, mode, scheme, phase, max_crop and normalise.
        """
        ...

    @property
    def shared_fields(self) -> dict[str, Any]:
        """The fields that all detections have in common."""
        ...

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response."""
        ...

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score several texts or responses; the detections equal those of `detect`."""
        ...


def check_payload(scorer: Scorer) -> None:
    """Refuse a scorer that finds no payloads.

    Raises:
        SettingsError: it looks for a baseline's mark, or none of its keys has sub-keys.
    """
    keys = scorer.keys if isinstance(scorer, Keyring) else [scorer.key] if isinstance(scorer, Detector) else []
    if all(key.spec.subkeys == 1 for key in keys):
        raise SettingsError(
            "a payload is the sub-key of a text, and no key here has sub-keys: leave the payload out, or make a key "
            "with `dgmark keygen --subkeys`"
        )


def one_key(scorer: Scorer) -> Detector:
    """The scorer as a `Detector`, which spans, ranges, and tokens for display need.

    Raises:
        SettingsError: the scorer looks for several keys, or for a baseline's mark.
    """
    if isinstance(scorer, Detector):
        return scorer
    raise SettingsError(
        f"spans, ranges and single tokens need one dgMARK key: use a Detector, not a {type(scorer).__name__}"
    )
