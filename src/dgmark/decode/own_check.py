"""The check of texts that were just written: whether a checker with the same key will find their mark.

Settings, the model or a short text can leave a key nothing to choose; what is written then bears no mark, whatever its
row names. Knows texts and a key, and of a model its tokenizer.
"""

from dataclasses import dataclass, replace

from dgmark.arguments.checks import flag
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import DEFAULT_FPR, Detector
from dgmark.detection.finding import Verdict
from dgmark.detection.reader import Ranges
from dgmark.models.denoiser import Denoiser, check_model
from dgmark.watermark.key import WatermarkKey, check_has_key


@dataclass(frozen=True)
class Check:
    """What a checker with the same key finds in a text: the verdict, its p-value, and the rate that it is held to."""

    verdict: Verdict
    p_value: float
    fpr: float


class TextChecker:
    """Checks texts as `dgmark.detect` does by default.

    Args:
        tokenizer: the model's tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._detectors: dict[WatermarkKey, Detector] = {}

    def __call__(self, key: WatermarkKey | None, text: str, only: Ranges | None = None) -> Check | None:
        """The check of a text, or of some ranges of characters of it; None without a key.

        Args:
            key: the key that marked the text. Of a sub-key the whole key is looked for, which is what checkers have.
            text: the text.
            only: ranges [start, end); empty ones are left out.
        """
        if key is None:
            return None
        if only is not None:
            only = [(start, end) for start, end in only if start < end]
            if not only:  # holes in which nothing can be read
                return Check("uncertain", 1.0, DEFAULT_FPR)
        whole = replace(key, number=None)
        if whole not in self._detectors:
            self._detectors[whole] = Detector(whole, tokenizer=self._tokenizer)
        found = self._detectors[whole].detect(text, only=only)
        return Check(found.verdict, found.p_value, found.fpr)


def checker_of(model: Denoiser, keys: object, check: object) -> TextChecker | None:
    """The checker of texts of a model, if they are to be checked.

    Args:
        model: the model.
        keys: the key of all texts, or a list with that of each.
        check: whether they are.

    Raises:
        SettingsError: there is no key to check with, or `check` is neither true nor false.
    """
    check_model(model)
    if not flag("check", check):
        return None
    check_has_key(keys)
    return TextChecker(model.tokenizer)
