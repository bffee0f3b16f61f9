"""All evidence for one key in one text: the tests, each with its share of the rate, and the verdict that follows.

Knows tokens and their positions, not how they were read. The paper puts a threshold on the z-score (section 3.5);
here the threshold is on the p-value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np

from dgmark.detection.aligned import AlignedResult, aligned_test, aligned_tokens, edited_fraction
from dgmark.detection.intact import Hypothesis, IntactTest, Phase
from dgmark.detection.match_null import MatchNull, z_score
from dgmark.detection.reader import ScoredIds
from dgmark.detection.result import Detection, Mode, verdict_of
from dgmark.detection.shares import adjusted_p, bonferroni_p, shares_of
from dgmark.detection.subkey_scan import SubkeyScan
from dgmark.detection.windows import window_statistic
from dgmark.detection.words import Limit
from dgmark.errors import SettingsError, number, whole
from dgmark.watermark.key import WatermarkKey, check_key

# raised whenever a text's p-value changes, so that no file mixes p-values of two versions
STATISTICS_VERSION = 1
DEFAULT_FPR = 1e-4
DEFAULT_MAX_CROP = 1024
# a p-value that no drawn keys need to make smaller; a constant, so that no p-value depends on the rate asked for
SETTLED = 1e-12
# no p-value is below the smallest normal float, and shares of the rate must be representable as well
SMALLEST_FPR = 1e-300


@dataclass(frozen=True)
class Evidence:
    """The results of one key's tests on one text.

    Attributes:
        key: the key or sub-key that was tested.
        p_value: the smallest p-value of the tests, adjusted for their shares.
        intact: the exact test's result at its best shift.
        aligned: the alignment test's result; None if it was not needed or not requested.
        limit: why a typical mark would not be found in a text like this; None if it would be.
        scan: the scan of the key's sub-keys; None if it has none.
    """

    key: WatermarkKey
    p_value: float
    intact: Hypothesis
    aligned: AlignedResult | None
    limit: Limit | None
    scan: SubkeyScan | None = field(default=None, repr=False)


@dataclass(frozen=True)
class KeyTest:
    """The tests of one key, or of all sub-keys of one key, held to one false-positive rate.

    Attributes:
        key: the key.
        fpr: the false-positive rate over all keys that are tried.
        mode: which tests are computed.
        phase: "any" allows for tokens missing at the front and pays for it; "start" takes the text as complete.
        max_crop: with a rotating key and phase "any", the largest number of tokens that may be missing.
        keys: how many keys are tried, including this one.

    Raises:
        SettingsError: a setting is invalid.
    """

    key: WatermarkKey
    fpr: float = DEFAULT_FPR
    mode: Mode = "auto"
    phase: Phase = "any"
    max_crop: int = DEFAULT_MAX_CROP
    keys: int = 1

    def __post_init__(self) -> None:
        check_key(self.key)
        check_fpr(self.fpr, self.tried)
        if not isinstance(self.mode, str) or self.mode not in get_args(Mode):
            raise SettingsError(f"mode {self.mode!r} is not one of: {', '.join(get_args(Mode))}")
        if not isinstance(self.phase, str) or self.phase not in get_args(Phase):
            raise SettingsError(f"phase {self.phase!r} is not one of: {', '.join(get_args(Phase))}")
        if whole("max crop", self.max_crop) < 0:
            raise SettingsError(f"max crop {self.max_crop} is negative")

    @property
    def subkeys(self) -> int:
        """How many sub-keys of the key are tried; 1 if it has none."""
        return self.key.spec.subkeys if self.key.number is None else 1

    @property
    def tried(self) -> int:
        """How many keys and sub-keys are tried in all, which each p-value pays for."""
        return self.keys * self.subkeys

    @property
    def level(self) -> float:
        """The p-value at which one key, or one sub-key, alone decides."""
        return self.fpr / self.tried

    def detect(self, tokens: ScoredIds, share: float = 1.0, *, among: Sequence[int] | None = None) -> Detection:
        """The detection of scored tokens, tested at this share of the rate.

        Args:
            tokens: the scored tokens.
            share: the share of this text.
            among: numbers of the sub-keys to test, if they were found already.
        """
        evidence = self.evidence(tokens, share, among=among)
        best, aligned, scored = evidence.intact, evidence.aligned, len(tokens.ids)
        verdict = verdict_of(evidence.p_value, self.level, detectable=evidence.limit is None)
        p_value = bonferroni_p(evidence.p_value, self.tried)
        matched = evidence.key.tables.matching(tokens.ids, tokens.positions + best.shift)
        found = verdict == "watermarked"
        subkey = evidence.key.number if found else None
        fingerprint, keyless, modulus = self.key.fingerprint, self.key.keyless, self.key.spec.modulus
        return Detection(
            verdict=verdict,
            p_value=p_value,
            z_score=z_score(best.matched, scored, modulus),
            green_fraction=best.matched / scored if scored else 0.0,
            num_tokens_scored=scored,
            num_tokens_matched=best.matched,
            fpr=self.fpr,
            shift=best.shift,
            shifts_tested=self._intact(evidence.key).shifts_tested,
            key_fingerprint=fingerprint,
            guaranteed=not keyless,
            mode=self.mode,
            p_intact=None if self.mode == "edited" else best.p_value,
            p_aligned=aligned.p_value if aligned else None,
            draws=aligned.draws if aligned else 0,
            edited_fraction=self._edited_fraction(evidence.key, tokens) if aligned and found else None,
            z_window=float(window_statistic(matched, modulus)),
            keys_tested=self.keys,
            uncertain_because=evidence.limit,
            subkeys_tested=self.subkeys,
            subkey=subkey,
            subkey_confidence=evidence.scan.confidence(subkey) if subkey is not None and evidence.scan else None,
            subkey_tested=evidence.key.number,
        )

    def _edited_fraction(self, key: WatermarkKey, tokens: ScoredIds) -> float:
        return edited_fraction(key.tables, tokens.ids, tokens.positions, self.phase)

    def evidence(self, tokens: ScoredIds, share: float = 1.0, *, among: Sequence[int] | None = None) -> Evidence:
        """Test scored tokens for the key, or for the likeliest of its sub-keys (or those given)."""
        if self.subkeys == 1:
            return self._evidence(self.key, tokens, share)
        scan = self._scan(tokens)
        among = self._likeliest(scan) if among is None else among
        each = [self._evidence(self.key.subkey(number), tokens, share) for number in among]
        return replace(min(each, key=lambda evidence: evidence.p_value), scan=scan)

    def likeliest(self, tokens: ScoredIds, detection: Detection | None = None) -> WatermarkKey:
        """The key, or the likeliest of its sub-keys: the one that a detection of these tokens tested, if given."""
        if self.subkeys == 1:
            return self.key
        tested = detection.subkey_tested if detection else None
        return self.key.subkey(self._likeliest(self._scan(tokens))[0] if tested is None else tested)

    def _scan(self, tokens: ScoredIds) -> SubkeyScan:
        return SubkeyScan([self.key], tokens, self.mode, self.phase, self.max_crop)

    def _likeliest(self, scan: SubkeyScan) -> list[int]:
        return [number for _, number in scan.likeliest(by_count=self.counts(len(scan.tokens.ids)))]

    def _evidence(self, key: WatermarkKey, tokens: ScoredIds, share: float) -> Evidence:
        """Test for one key. Keys are drawn unless the exact test settles the case: leaving a test out is safe."""
        for_intact, for_aligned = self.shares(len(tokens.ids), share)
        hypotheses = self._intact(key).hypotheses(tokens.ids, tokens.positions)
        best = min(hypotheses, key=lambda hypothesis: hypothesis.p_value)
        p, aligned = adjusted_p(best.p_value, for_intact), None
        if for_aligned and p > SETTLED:
            aligned = aligned_test(key.tables, tokens.ids, tokens.positions, self.phase, intact=self.mode != "edited")
            p = min(p, adjusted_p(aligned.p_value, for_aligned))
        limit = None
        if p > self.level:
            (limit,) = self._limits(hypotheses[0], len(tokens.ids), max(for_intact, for_aligned), [self.level])
        return Evidence(key, p, best, aligned, limit)

    def limits(
        self, tokens: ScoredIds, rates: Sequence[float], detection: Detection | None = None
    ) -> list[Limit | None]:
        """Why a typical mark would not be found in these tokens at each rate; None where it would be."""
        plain = self._intact(self.likeliest(tokens, detection)).hypotheses(tokens.ids, tokens.positions)[0]
        share = max(self.shares(len(tokens.ids)))
        return self._limits(plain, len(tokens.ids), share, [rate / self.tried for rate in rates])

    def shares(self, scored: int, share: float = 1.0) -> tuple[float, float]:
        """The shares of the exact test and of the alignment test. They depend on the length of the text alone."""
        return shares_of(self.mode, share, sees_all=self.sees_all(scored))

    def counts(self, scored: int) -> bool:
        """Whether candidates are chosen by match counts too: alignment does not see all, or is not used."""
        return self.mode == "intact" or (self.mode == "auto" and not self.sees_all(scored))

    def sees_all(self, scored: int) -> bool:
        """Whether alignment covers all that the exact test tries: the whole text, and every shift."""
        crops = bool(self.key.spec.rotation and self.phase == "any" and self.max_crop)
        return not crops and scored <= aligned_tokens(self.key.spec)

    def _intact(self, key: WatermarkKey) -> IntactTest:
        return IntactTest(key.tables, self.phase, self.max_crop)

    def _limits(self, plain: Hypothesis, scored: int, share: float, levels: Sequence[float]) -> list[Limit | None]:
        """Why the tests would not find a typical intact mark in this text at each level; None where they would.

        The exact test answers, at the larger share of the two tests, because alignment finds intact text as well.
        """
        if not scored:
            return ["empty"] * len(levels)
        typical = self._typical_p_value(plain, scored, share)
        if typical <= min(levels, default=1):
            return [None] * len(levels)
        different = np.eye(1, self.key.spec.modulus, dtype=np.int64).repeat(scored, axis=0)
        as_different = self._typical_p_value(replace(plain, null=MatchNull.of(different)), scored, share)
        return [None if typical <= level else "repetitive" if as_different <= level else "short" for level in levels]

    def _typical_p_value(self, plain: Hypothesis, scored: int, share: float) -> float:
        """The p-value of a typical mark, in which half of the tokens that chance misses match."""
        chance = 1 / self.key.spec.modulus
        typical = min(math.ceil(scored * (1 + chance) / 2), plain.null.largest)
        return adjusted_p(plain.p_value_of(typical), share)


def setting_of(key: WatermarkKey) -> str:
    """The key as a setting of a detection: its fingerprint, and its number if it is one sub-key."""
    return key.fingerprint if key.number is None else f"{key.fingerprint}/{key.number}"


def check_fpr(fpr: float, keys: int = 1) -> None:
    """Refuse an invalid false-positive rate, or one too small for this many keys and sub-keys.

    Raises:
        SettingsError: the rate is not below 1, or each key's share is below 1e-300.
    """
    if not SMALLEST_FPR * keys <= number("fpr", fpr) < 1:
        raise SettingsError(
            f"fpr {fpr} is not between 0 and 1 (at least {SMALLEST_FPR * keys}): give the share of unmarked texts that "
            "may be called watermarked, such as 1e-4"
        )
