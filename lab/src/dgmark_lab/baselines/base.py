"""What all baselines have in common: a name, options as plain values, and a detector built on a score."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Int

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.contents.accepted import TextOrIds
from dgmark.decode.rules import Rule
from dgmark.detection.detector import DEFAULT_FPR, DEFAULT_MAX_CROP, check_fpr
from dgmark.detection.finding import PositionFigures, Uncertain
from dgmark.detection.reader import Reader, ScoredIds
from dgmark.detection.result import Detection, verdict_of
from dgmark.detection.sentences import MIN_TOKENS
from dgmark.models.denoiser import Denoiser
from dgmark.watermark.key import WatermarkKey, check_key
from dgmark_lab.baselines.prf import HashKey

# token ids, or their positions
Ids = Int[np.ndarray, " n"]


@dataclass(frozen=True)
class Score:
    """The statistic of one text and its p-values.

    Attributes:
        scored: how many pairs, tokens or windows were scored.
        matched: how many of them agree with the key.
        z_score: the statistic, standardised as if its terms were independent.
        p_value: probability that a random key fits this very text as well, corrected for all shifts tried.
        p_published: the p-value as the baseline's publication computes it.
        detectable: whether a typical mark would be detected in a text like this.
        shift: the shift that fits best.
        shifts_tested: how many shifts were tried.
    """

    scored: int
    matched: int
    z_score: float
    p_value: float
    p_published: float
    detectable: bool
    shift: int = 0
    shifts_tested: int = 1


@dataclass(frozen=True)
class Baseline(ABC):
    """A watermark. Its options are the fields of the subclass; generator and detector need the same ones."""

    name: ClassVar[str]
    # decoding settings to use where the user gives none
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def to_dict(self) -> dict[str, Any]:
        """Name and options as plain JSON values."""
        options = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"name": self.name, **options}

    def hash_key(self, key: WatermarkKey, use: str = "") -> HashKey:
        """Derive this baseline's hash key; a baseline that needs several gives each a `use`.

        Raises:
            SettingsError: the key has no secret.
        """
        return HashKey.of(key, f"{self.name}/{use}" if use else self.name)

    @abstractmethod
    def rule(self, key: WatermarkKey, model: Denoiser) -> Rule:
        """Return what the baseline does to a step on this model under this key.

        Raises:
            SettingsError: the key has no secret.
        """

    @abstractmethod
    def score(self, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Score tokens at their positions (0-based, ascending).

        Raises:
            SettingsError: the key has no secret.
        """

    def detector(
        self,
        key: WatermarkKey,
        *,
        fpr: float = DEFAULT_FPR,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    ) -> "BaselineDetector":
        """Return a detector of this baseline with these options under `key`; see `BaselineDetector`."""
        return BaselineDetector(self, key, fpr=fpr, tokenizer=tokenizer)


class BaselineDetector:
    """Detects one baseline's mark under one key; texts are read as `dgmark.Detector` reads them.

    Args:
        baseline: the baseline with its options.
        key: the key.
        fpr: false-positive rate to hold, from 1e-300 to below 1.
        tokenizer: the model's tokenizer, or where to find it; by default the one that the key names.

    Raises:
        SettingsError: `key` is not a key or has no secret, or `fpr` is not a valid rate.
        TokenizerMismatch: the tokenizer is not the key's.
    """

    def __init__(
        self,
        baseline: Baseline,
        key: WatermarkKey,
        *,
        fpr: float = DEFAULT_FPR,
        tokenizer: Tokenizer | str | os.PathLike[str] | None = None,
    ) -> None:
        check_key(key)
        check_fpr(fpr)
        baseline.hash_key(key)
        self.baseline = baseline
        self.key = key
        self.fpr = float(fpr)
        self.reader = Reader(key, tokenizer)

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
            "baseline": self.baseline.to_dict(),
            "phase": "any",
            "max_crop": DEFAULT_MAX_CROP,
            "normalise": [],
        }

    def detect(self, text_or_ids: TextOrIds) -> Detection:
        """Score one text, or the token ids of one response up to its first end token.

        The verdict rests on the p-value over random keys; `p_published` is that of the baseline's publication.

        Raises:
            VocabularyMismatch: an id is outside the key's vocabulary.
        """
        return self._detect_scored(self.reader.read(text_or_ids))

    def detect_many(self, texts_or_ids: Iterable[TextOrIds]) -> list[Detection]:
        """Score many texts; the detections equal those of `detect`, but the texts are encoded together."""
        return [self._detect_scored(tokens) for tokens in self.reader.read_many(texts_or_ids)]

    def _detect_scored(self, tokens: ScoredIds) -> Detection:
        score = self.baseline.score(self.key, tokens.ids, tokens.positions, self.fpr)
        verdict = verdict_of(score.p_value, self.fpr, detectable=score.detectable)
        return Detection(
            verdict=verdict,
            p_value=score.p_value,
            z_score=score.z_score,
            green_fraction=score.matched / score.scored if score.scored else 0.0,
            num_tokens_scored=score.scored,
            num_tokens_matched=score.matched,
            fpr=self.fpr,
            position=PositionFigures(score.shift, score.shifts_tested),
            key_fingerprint=self.key.fingerprint,
            guaranteed=True,
            baseline=self.baseline.name,
            p_published=score.p_published,
            uncertain_because=_limit(score, len(tokens.ids)) if verdict == "uncertain" else None,
        )


def _limit(score: Score, tokens: int) -> Uncertain:
    """Why a typical mark would not be found."""
    if not score.scored:
        return "empty"
    return "short" if tokens < MIN_TOKENS else "repetitive"
