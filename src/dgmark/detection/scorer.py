"""What scores texts: one key, a ring of keys, or a baseline's detector; all behind one protocol."""

from collections.abc import Iterable
from typing import Any, Protocol, runtime_checkable

from dgmark.detection.detector import Detector
from dgmark.detection.reader import Reader, TextOrIds
from dgmark.detection.result import Detection
from dgmark.errors import SettingsError


@runtime_checkable
class Scorer(Protocol):
    """Scores texts: `Detector`, `Keyring` and the baselines' `SchemeDetector`."""

    @property
    def reader(self) -> Reader:
        """What reads texts and ids for it."""
        ...

    @property
    def settings(self) -> dict[str, Any]:
        """What its detections depend on beside the text, as plain JSON values.

        Every scorer has the fields keys (fingerprints), fpr, mode, scheme, phase, max_crop and normalise.
        """
        ...

    @property
    def shared_fields(self) -> dict[str, Any]:
        """The fields of its detections that are the same for every text."""
        ...

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response."""
        ...

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score many; the same detections as one by one."""
        ...


def one_key(scorer: Scorer) -> Detector:
    """The scorer, if it can do what takes one dgMARK key: spans, ranges, and tokens for display.

    Raises:
        SettingsError: it looks for several keys, or for a baseline's mark.
    """
    if isinstance(scorer, Detector):
        return scorer
    raise SettingsError(
        f"spans, ranges and single tokens need one dgMARK key: use a Detector, not a {type(scorer).__name__}"
    )
