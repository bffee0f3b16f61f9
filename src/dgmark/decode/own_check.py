"""The check of texts that were just written: whether a checker with the same key will find their mark.

Settings, the model or a short text can leave a key nothing to choose; what is written then bears no mark, whatever its
row names. Knows texts and a key, and of a model its tokenizer.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from dgmark.arguments.checks import flag
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import DEFAULT_FPR, Detector
from dgmark.detection.finding import Verdict
from dgmark.detection.reader import Ranges
from dgmark.models.denoiser import Denoiser, check_model
from dgmark.watermark.key import WatermarkKey, check_has_key


class MarkWarning(UserWarning):
    """Texts name a key, and will not be found with it."""


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


@runtime_checkable
class Written(Protocol):
    """A text that was just written."""

    @property
    def key_fingerprint(self) -> str | None:
        """The key that it names."""

    @property
    def token_ids(self) -> list[int]:
        """Its tokens."""

    @property
    def choices(self) -> int:
        """How many of them had a choice."""

    @property
    def check(self) -> Check | None:
        """What a checker finds in it."""


@dataclass
class MarkTally:
    """Counts, over one run, the texts that name a key and that will not be found with it.

    Attributes:
        marked: the texts that name a key and have tokens.
        without_choice: those of them of which no token had a choice.
        checked: those of them that were checked.
        found: those of these whose verdict is `watermarked`.
    """

    marked: int = 0
    without_choice: int = 0
    checked: int = 0
    found: int = 0

    @classmethod
    def of(cls, texts: "Iterable[Written]") -> "MarkTally":
        """The tally of texts."""
        tally = cls()
        for text in texts:
            tally.add(text)
        return tally

    def add(self, text: "Written") -> None:
        """Count one text."""
        marked = text.key_fingerprint is not None and bool(text.token_ids)
        verdict = None if text.check is None else text.check.verdict
        self.count(marked=marked, choices=text.choices, verdict=verdict)

    def count(self, *, marked: bool, choices: int, verdict: Verdict | None) -> None:
        """Count a text that names a key or not, with so many choices; the verdict is that of its check."""
        if marked:
            self.marked += 1
            self.without_choice += not choices
        if verdict is not None:
            self.checked += 1
            self.found += verdict == "watermarked"

    @property
    def problem(self) -> str | None:
        """What will not be found, why, and what to do; None if nothing is known to be missing."""
        if self.found < self.checked:
            problem = f"{self.checked - self.found} of {self.checked} texts will not be found with this key at a "
            problem += f"false-positive rate of {DEFAULT_FPR:g}"
            if self.without_choice:
                problem += f"; in {self.without_choice} of them no token had a choice"
        elif self.marked and self.without_choice == self.marked:
            problem = "no token had a choice, so what was written names a key and bears no mark"
        else:
            return None
        return f"{problem}: write longer texts, or allow more choice (temperature, top_k, top_p)"

    def warn(self) -> None:
        """Warn of what will not be found."""
        if self.problem is not None:
            warnings.warn(self.problem, MarkWarning, stacklevel=3)
