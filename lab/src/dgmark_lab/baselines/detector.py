"""Turn a scheme's score of a text into a verdict with a stated error rate: `dgmark.Detector` for baselines."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import DEFAULT_FPR, DEFAULT_MAX_CROP, check_fpr
from dgmark.detection.reader import Reader, ScoredIds, TextOrIds
from dgmark.detection.result import FEW_TOKENS, Detection, Limit, verdict_of
from dgmark.watermark.key import WatermarkKey, check_key
from dgmark_lab.baselines.score import Score

# (key, ids, positions, fpr) -> score
ScoreFunction = Callable[[WatermarkKey, np.ndarray, np.ndarray, float], Score]


class SchemeDetector:
    """Detects one scheme's mark under one key; texts are read as `dgmark.Detector` reads them.

    Args:
        options: the scheme's name and options, as `Baseline.to_dict` returns them.
        score: the scheme's statistic.
        key: the key.
        fpr: false-positive rate to hold, from 1e-300 to below 1.
        tokenizer: the model's tokenizer, or where to find it; by default the one that the key names.

    Raises:
        SettingsError: `key` is not a key, or `fpr` is not a valid rate.
        TokenizerMismatch: the tokenizer is not the key's.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        score: ScoreFunction,
        key: WatermarkKey,
        *,
        fpr: float = DEFAULT_FPR,
        tokenizer: Tokenizer | str | None = None,
    ) -> None:
        check_key(key)
        check_fpr(fpr)
        self.options = dict(options)
        self.key = key
        self.fpr = fpr
        self.reader = Reader(key, tokenizer)
        self._score = score

    @property
    def scheme(self) -> str:
        """The scheme's name."""
        return str(self.options["name"])

    @property
    def tokenizer(self) -> Tokenizer:
        """The key's tokenizer, loaded when first needed."""
        return self.reader.tokenizer

    @property
    def settings(self) -> dict[str, Any]:
        """What its detections depend on in addition to the text; settings that it lacks are at their defaults."""
        return {
            "keys": [self.key.fingerprint],
            "fpr": self.fpr,
            "mode": "auto",
            "scheme": self.options,
            "phase": "any",
            "max_crop": DEFAULT_MAX_CROP,
            "normalise": [],
        }

    @property
    def shared_fields(self) -> dict[str, Any]:
        """The fields that its detections have in common."""
        return {"fpr": self.fpr, "mode": "intact", "key_fingerprint": self.key.fingerprint, "scheme": self.scheme}

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response up to its first end token.

        The verdict rests on the p-value over random keys; `p_published` is that of the scheme's publication.

        Raises:
            VocabularyMismatch: an id is outside the key's vocabulary.
        """
        return self._detect_scored(self.reader.read(text_or_ids))

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score many texts; the detections equal those of `detect`, but the texts are encoded together."""
        return [self._detect_scored(tokens) for tokens in self.reader.read_many(texts_or_ids)]

    def _detect_scored(self, tokens: ScoredIds) -> Detection:
        score = self._score(self.key, tokens.ids, tokens.positions, self.fpr)
        verdict = verdict_of(score.p_value, self.fpr, detectable=score.tells)
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
            p_intact=score.p_value,
            draws=score.draws,
            scheme=self.scheme,
            p_published=score.p_published,
            uncertain_because=_limit(score, len(tokens.ids)) if verdict == "uncertain" else None,
        )


def _limit(score: Score, tokens: int) -> Limit:
    """Why the scheme's typical mark would not be found."""
    if not score.scored:
        return "empty"
    return "short" if tokens < FEW_TOKENS else "repetitive"
