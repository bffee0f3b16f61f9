"""The detector: from a text and a key to a verdict with a stated error rate (paper section 3.5).

Knows nothing of models and prompts, and needs no torch. The false-positive rate holds for any text chosen without
knowledge of the key. The p-value is that of `aligned.py`, which allows for insertions and deletions; the exact one of
`intact.py` stands beside it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.evidence import DEFAULT_FPR, DEFAULT_MAX_CROP, KeyTest, setting_of
from dgmark.detection.intact import Phase
from dgmark.detection.normalise import check_steps, normalise
from dgmark.detection.reader import Ranges, Reader, ScoredIds, TextOrIds
from dgmark.detection.result import Detection, Mode, ScoredToken, Span
from dgmark.detection.shares import UNCHANGED, bonferroni_p
from dgmark.detection.spans import Stretch, check_length, find_stretches
from dgmark.detection.subkey_spans import find_subkey_stretches
from dgmark.detection.windows import DEFAULT_WINDOW, WindowTest, window_test
from dgmark.detection.words import Limit
from dgmark.errors import SettingsError, several, whole
from dgmark.watermark.key import WatermarkKey

__all__ = ["DEFAULT_FPR", "DEFAULT_MAX_CROP", "Detector", "detect"]


class Detector:
    """Detects the mark of one key.

    Args:
        key: the key.
        tokenizer: the model's tokenizer, or its folder or file; by default the one the key names.
        fpr: false-positive rate to hold, from 1e-300 to below 1.
        mode: "auto" allows for text edited or not; "intact" is the exact test, which allows only for a crop; "edited"
            expects edits.
        phase: "any" allows for tokens missing at the front and pays for it; "start" takes the text as complete.
        max_crop: with a rotating key and phase "any", the largest number of tokens that may be missing.
        normalise: steps of `normalise.STEPS` that undo disguises, tried if the unchanged text does not show the mark.
            A text that they change is tried both ways and pays for both. Ids are never changed.

    Attributes:
        reader: reads texts and ids.
        normalise: the steps.

    Raises:
        SettingsError: `key` is not a key, or a setting is invalid.
        TokenizerMismatch: the tokenizer is not the key's.
    """

    def __init__(
        self,
        key: WatermarkKey,
        *,
        tokenizer: Tokenizer | str | None = None,
        fpr: float = DEFAULT_FPR,
        mode: Mode = "auto",
        phase: Phase = "any",
        max_crop: int = DEFAULT_MAX_CROP,
        normalise: Sequence[str] = (),
    ) -> None:
        self._test = KeyTest(key, fpr, mode, phase, max_crop)
        check_steps(normalise)
        self.normalise = tuple(normalise)
        self.reader = Reader(key, tokenizer)

    @property
    def key(self) -> WatermarkKey:
        """The key."""
        return self._test.key

    @property
    def fpr(self) -> float:
        """The false-positive rate."""
        return self._test.fpr

    @property
    def mode(self) -> Mode:
        """Which tests are computed."""
        return self._test.mode

    @property
    def phase(self) -> Phase:
        """Whether the front of a text may be missing."""
        return self._test.phase

    @property
    def max_crop(self) -> int:
        """With a rotating key, the largest number of tokens that may be missing at the front."""
        return self._test.max_crop

    @property
    def tokenizer(self) -> Tokenizer:
        """The key's tokenizer, loaded when first needed."""
        return self.reader.tokenizer

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that a detection depends on except the text."""
        return {
            "keys": [setting_of(self.key)],
            "fpr": self.fpr,
            "mode": self.mode,
            "scheme": None,
            "phase": self.phase,
            "max_crop": self.max_crop,
            "normalise": sorted(set(self.normalise)),
        }

    @property
    def shared_fields(self) -> dict[str, Any]:
        """The fields that all detections have in common."""
        return {"fpr": self.fpr, "mode": self.mode, "key_fingerprint": self.key.fingerprint}

    def detect(self, text_or_ids: TextOrIds, *, only: Ranges | None = None) -> Detection:
        """Score one text, or the token ids of one response.

        Ids are scored up to the first end token. A text is not cut there: whoever can put an end token into a text
        could hide everything behind it.

        Args:
            text_or_ids: the text or ids.
            only: ranges [start, end) to score, in characters (in indices for ids), such as the infilled parts of a
                text. Tokens that straddle an edge are not scored. Positions count from the first token of the text.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: the input is neither a text nor ids, or a range is empty or lies outside the text.
        """
        if self.normalise and only is not None:
            raise SettingsError("ranges refer to the unchanged text: leave normalisation out")
        if self.normalise and isinstance(text_or_ids, str):
            return self._detect_normalised(text_or_ids)
        return self._test.detect(self.reader.read(text_or_ids, only))

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score several texts or responses, encoding the texts together; the detections equal those of `detect`.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: the input is one text instead of several, or an item is neither a text nor ids.
        """
        if self.normalise and not isinstance(texts_or_ids, str):
            return [self.detect(item) for item in several(texts_or_ids, "texts")]
        return [self._test.detect(tokens) for tokens in self.reader.read_many(texts_or_ids)]

    def limits(
        self, text_or_ids: TextOrIds, rates: Sequence[float], detection: Detection | None = None
    ) -> list[Limit | None]:
        """Why each of these false-positive rates leaves the unchanged text `uncertain`, unless it shows the mark.

        Args:
            text_or_ids: the text or ids.
            rates: the rates.
            detection: the text's detection by this key, if it is known: it spares the scan of all sub-keys.

        Returns:
            For each rate "empty", "short" or "repetitive" (see `Detection.uncertain_because`); None where a text that
            does not show the mark is `not_detected`.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
            SettingsError: the input is neither a text nor ids.
        """
        return self._test.limits(self.reader.read(text_or_ids), rates, detection)

    def spans(self, text_or_ids: TextOrIds) -> tuple[Span, ...]:
        """The spans of a text (or of ids) that carry the mark, in order; with sub-keys, the mark of any of them.

        The chance to report any span without marked text is at most `fpr`. The ends of a span are estimates.

        Raises:
            SettingsError: the text is too long for this key's number of hidden states.
        """
        tokens = self.reader.locate(text_or_ids)
        check_length(self.key.spec, len(tokens.ids))
        return tuple(
            Span(
                start=int(tokens.offsets[stretch.first, 0]),
                end=int(tokens.offsets[stretch.last - 1, 1]),
                num_tokens_scored=stretch.last - stretch.first,
                p_value=stretch.p_value,
                subkey=subkey,
            )
            for subkey, stretch in self._stretches(tokens)
        )

    def _stretches(self, tokens: ScoredIds) -> Sequence[tuple[int | None, Stretch]]:
        if self._test.subkeys > 1:
            return find_subkey_stretches(self.key, tokens, self.fpr)
        stretches = find_stretches(self.key.tables, tokens.ids, tokens.positions, self.fpr)
        return [(self.key.number, stretch) for stretch in stretches]

    def windows(
        self, text_or_ids: TextOrIds, window: int = DEFAULT_WINDOW, detection: Detection | None = None
    ) -> WindowTest:
        """The paper's sliding-window statistic of a text, for comparison, with a p-value from drawn keys.

        With sub-keys, that of the likeliest one, whose p-value pays for all.

        Args:
            text_or_ids: the text or ids.
            window: number of tokens in a window.
            detection: the text's detection by this key, if it is known: it spares the scan of all sub-keys.

        Raises:
            SettingsError: the window is shorter than 1 token.
        """
        if whole("window", window) < 1:
            raise SettingsError(f"window {window} is not at least 1 token")
        tokens = self.reader.read(text_or_ids)
        key = self._test.likeliest(tokens, detection)
        test = window_test(key.tables, tokens.ids, tokens.positions, window=window)
        return replace(test, p_value=bonferroni_p(test.p_value, self._test.tried))

    def tokens(self, text: str, detection: Detection) -> list[ScoredToken]:
        """Each token of `text`, and whether it matches at the shift of `detection`, for display.

        Raises:
            SettingsError: `detection` is not a detection.
        """
        if not isinstance(detection, Detection):
            raise SettingsError(f"a detection is what detect returns, not a {type(detection).__name__}")
        ids, offsets = self.reader.encode(text)
        matched = self.matched(ids, np.arange(len(ids)), detection)
        return [
            ScoredToken(start, end, bool(match) if counts else None)
            for (start, end), match, counts in zip(offsets.tolist(), matched, self.reader.counts(ids), strict=True)
        ]

    def matched(
        self, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], detection: Detection
    ) -> Bool[np.ndarray, " n"]:
        """Whether each token matches at the shift of `detection`, with sub-keys under the likeliest one.

        Args:
            ids: token ids of the text.
            positions: their positions, counted from the first token of the text.
            detection: the text's detection.
        """
        scored = self.reader.counts(ids)
        key = self._test.likeliest(ScoredIds(ids[scored], positions[scored]), detection)
        return key.tables.matching(ids, positions + detection.shift)

    def _detect_normalised(self, text: str) -> Detection:
        """Test the unchanged text, then the normalised one, each with its share; test once if they are equal."""
        changed, steps = normalise(text, self.normalise)
        unchanged = self._test.detect(self.reader.read(text), UNCHANGED if steps else 1.0)
        if not steps:
            return unchanged
        normalised = replace(self._test.detect(self.reader.read(changed), 1 - UNCHANGED), normalised=steps)
        return min(unchanged, normalised, key=lambda detection: detection.p_value)


def detect(
    text_or_ids: TextOrIds,
    key: WatermarkKey,
    *,
    tokenizer: Tokenizer | str | None = None,
    fpr: float = DEFAULT_FPR,
    mode: Mode = "auto",
    phase: Phase = "any",
) -> Detection:
    """Score one text, or the token ids of one response, against one key; see `Detector`."""
    return Detector(key, tokenizer=tokenizer, fpr=fpr, mode=mode, phase=phase).detect(text_or_ids)
