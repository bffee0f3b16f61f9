"""From a text, a key and a scheme's score to a verdict with a stated error rate: `dgmark.Detector` for baselines."""

from collections.abc import Callable, Iterable

import numpy as np

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import DEFAULT_FPR, Detector, ScoredIds, TextOrIds
from dgmark.detection.result import Detection, Verdict
from dgmark.lab.baselines.score import Score
from dgmark.watermark.key import WatermarkKey

# (key, ids, positions, fpr) -> score
ScoreFunction = Callable[[WatermarkKey, np.ndarray, np.ndarray, float], Score]


class SchemeDetector:
    """Detects one scheme's mark under one key; texts are read as `dgmark.Detector` reads them.

    Args:
        scheme: the scheme's name.
        score: its statistic.
        key: the key.
        fpr: false-positive rate to hold, from 1e-300 to below 1.
        tokenizer: the model's tokenizer, or where to find it; by default the one the key names.

    Raises:
        SettingsError: a rate that is none.
        TokenizerMismatch: the tokenizer is not the key's.
    """

    def __init__(
        self,
        scheme: str,
        score: ScoreFunction,
        key: WatermarkKey,
        *,
        fpr: float = DEFAULT_FPR,
        tokenizer: Tokenizer | str | None = None,
    ) -> None:
        self.scheme = scheme
        self.key = key
        self.fpr = fpr
        self._score = score
        self._reader = Detector(key, tokenizer=tokenizer, fpr=fpr)

    @property
    def tokenizer(self) -> Tokenizer:
        """The key's tokenizer, loaded when first needed."""
        return self._reader.tokenizer

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response up to its first end token.

        The verdict rests on the p-value over random keys; `p_published` is that of the scheme's publication.

        Raises:
            VocabularyMismatch: an id lies outside the key's vocabulary.
        """
        return self._detect_scored(self._reader.scored_tokens(text_or_ids))

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score many; the same detections as one by one."""
        return [self.detect(item) for item in texts_or_ids]

    def _detect_scored(self, tokens: ScoredIds) -> Detection:
        score = self._score(self.key, tokens.ids, tokens.positions, self.fpr)
        verdict: Verdict = (
            "watermarked" if score.p_value <= self.fpr else "not_detected" if score.tells else "uncertain"
        )
        return Detection(
            verdict=verdict,
            p_value=score.p_value,
            z_score=score.z_score,
            green_fraction=score.matched / score.scored if score.scored else 0.0,
            num_tokens_scored=score.scored,
            num_tokens_matched=score.matched,
            fpr=self.fpr,
            shift=score.shift,
            shifts_tested=score.shifts_tested,
            key_fingerprint=self.key.fingerprint,
            guaranteed=True,
            summary=_summary(verdict, self.scheme, score, self.fpr, self.key.fingerprint),
            p_intact=score.p_value,
            draws=score.draws,
            scheme=self.scheme,
            p_published=score.p_published,
        )


def _summary(verdict: Verdict, scheme: str, score: Score, fpr: float, key: str) -> str:
    match verdict:
        case "watermarked":
            return (
                f"The text carries the {scheme} mark of key {key}: a text without it fits this well with probability "
                f"{score.p_value:.2g} or less, below the false-positive rate {fpr:g}."
            )
        case "not_detected":
            return (
                f"No {scheme} mark of key {key} was found at the false-positive rate {fpr:g}; "
                "this does not tell who or what wrote the text."
            )
        case _:
            return (
                f"Too little to tell: {score.scored} tokens, pairs or windows could not show even "
                f"a typical {scheme} mark of key {key} at the false-positive rate {fpr:g}."
            )
