"""The check of texts that were just written: whether a checker with the same key will find their mark.

Settings, the model or a short text can leave a key nothing to choose; what is written then bears no mark, whatever its
row names. Knows texts and a key, and of a model its tokenizer.
"""

from dataclasses import dataclass

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import DEFAULT_FPR, Detector
from dgmark.detection.reading.reader import Ranges
from dgmark.detection.results.figures import Verdict
from dgmark.watermark.key import WatermarkKey


@dataclass(frozen=True)
class Check:
    """What a checker with the same key finds in a text: the verdict, its p-value, and the rate that it is held to."""

    verdict: Verdict
    p_value: float
    fpr: float


class TextChecker:
    """Checks texts as `dgmark.detect` does by default."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._detectors: dict[WatermarkKey, Detector] = {}

    def __call__(self, key: WatermarkKey | None, text: str, only: Ranges | None = None) -> Check | None:
        """The check of a text, or of some ranges of characters of it, of which empty ones are left out; None without a
        key.

        Of a sub-key the whole key is looked for, which is what checkers have.
        """
        if key is None:
            return None
        if only is not None:
            only = [(start, end) for start, end in only if start < end]
            if not only:  # holes in which nothing can be read
                return Check("uncertain", 1.0, DEFAULT_FPR)
        if key.whole not in self._detectors:
            self._detectors[key.whole] = Detector(key.whole, tokenizer=self._tokenizer)
        found = self._detectors[key.whole].detect(text, only=only)
        return Check(found.verdict, found.p_value, found.fpr)
