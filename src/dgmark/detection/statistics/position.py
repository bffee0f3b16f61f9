"""The detection side of the position rule: the match count at one shift against its exact null.

Allows for a crop, not for other edits. Takes the place of the paper's global z-test (section 3.5, Eq. 1), whose z-score
is reported for comparison, as is its statistic of sliding windows: each of the paper's tests has its own threshold. All
p-values also pay for the balance of the group tables (`balance_of`). Knows tokens, positions and residues only.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, get_args

import numpy as np
from jaxtyping import Bool, Float, Int

from dgmark.arguments.checks import is_of, shown, whole
from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.results.detection import Detection
from dgmark.detection.results.figures import Phase, PositionFigures, Uncertain
from dgmark.detection.statistics.match_null import MatchNull, residue_counts
from dgmark.detection.statistics.p_values import adjusted_p, z_score
from dgmark.detection.statistics.rules import DetectionSettings, Expectation, RuleOptions, TextTest
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.position import FEW_TOKENS, PositionSpec, tables_of
from dgmark.watermark.spec import spec_as

# the share of the rate that a rotating key's test of the whole text has
UNCROPPED_SHARE = 0.5
DEFAULT_MAX_CROP = 1024
DEFAULT_WINDOW = 8
# seconds of one core that a group table takes for each token id, and what it takes where a few tokens are ranked alone
_TABLE_SECONDS, _FEW_SECONDS = 9e-8, 1.5e-8
# the first tokens of a text, from which a rotating key's crop is found; more would not find it better
_TOKENS_FOR_CROP = 4096


def balance_of(spec: PositionSpec, distinct: Iterable[int]) -> float:
    """How much likelier balanced group tables can make any event than independent groups do.

    A table of N ids gives each group N / m of them (one more or less), so the groups of different tokens are not quite
    independent. U tokens have any particular groups with at most this factor times the chance m^-U; see
    docs/statistics-position.md. All p-values are corrected for it. `distinct` has the number of distinct tokens of each
    segment; segments have independent tables.
    """
    log, size, modulus = 0.0, spec.table_size, spec.modulus
    for tokens in distinct:
        # likeliest are the groups that leave equally many ids over in every group
        left = size - tokens
        for group in range(modulus):
            log += _log_factorial(len(range(group, size, modulus)))
            log -= _log_factorial(len(range(group, left, modulus)))
        log += tokens * math.log(modulus) - _log_factorial(size) + _log_factorial(left)
    return math.exp(min(700.0, max(0.0, log)))


def _log_factorial(number: int) -> float:
    return math.lgamma(number + 1)


def window_statistic(
    matched: Bool[np.ndarray, "n *keys"], modulus: int, window: int = DEFAULT_WINDOW
) -> Float[np.ndarray, " *keys"]:
    """The paper's z_win: the mean squared z-score of the windows of so many tokens; 1, its mean, if there is none."""
    if len(matched) < window:
        return np.ones(matched.shape[1:])
    counts = np.cumsum(matched, axis=0, dtype=np.int64)
    sums = counts[window - 1 :].copy()
    sums[1:] -= counts[:-window]
    chance = 1 / modulus
    scores = (sums - window * chance) / math.sqrt(window * chance * (1 - chance))
    return np.asarray(np.square(scores).sum(axis=0) / len(scores))


@dataclass(frozen=True)
class Hypothesis:
    """The hypothesis that the text is marked and `shift` tokens are missing at its front.

    Attributes:
        shift: tokens missing at the front (modulo the code's period without rotation).
        matched: number of matches at this shift.
        weight: the hypothesis's share of the false-positive rate.
        null: the null of the match count at this shift.
        balance: the factor by which the p-value is corrected for the balance of the key's group tables.
    """

    shift: int
    matched: int
    weight: float
    null: MatchNull
    balance: float = 1.0

    @cached_property
    def p_value(self) -> float:
        """Chance that a random key matches as well at any of the shifts tried."""
        return self.p_value_of(self.matched)

    def p_value_of(self, matched: int) -> float:
        """The p-value if this many tokens matched."""
        return adjusted_p(self.balance * self.null.tail(matched), self.weight)


@dataclass(frozen=True)
class PositionOptions(RuleOptions):
    """The options of the test of rule "position".

    Attributes:
        phase: "any" allows for tokens missing at the front and pays for it; "start" takes the text as complete.
        max_crop: with a rotating key and phase "any", the largest number of tokens that may be missing. For other keys
            all numbers of missing tokens are looked at.

    Raises:
        SettingsError: the phase is unknown, or the crop is negative or no whole number.
    """

    phase: Phase = "any"
    max_crop: int = DEFAULT_MAX_CROP

    def __post_init__(self) -> None:
        if not is_of(self.phase, str) or self.phase not in get_args(Phase):
            raise SettingsError(f"{shown(self.phase)} is not one of: {', '.join(get_args(Phase))}", field="phase")
        if whole("max_crop", self.max_crop) < 0:
            raise SettingsError(f"{self.max_crop} is negative", field="max_crop")


class PositionTest(TextTest):
    """The test of a key of rule "position" on one text, with `PositionOptions`."""

    options_type = PositionOptions
    figures_type = PositionFigures
    no_spans = "it needs a key of rule bigram, and this key is of rule position"

    def __init__(self, key: WatermarkKey, tokens: ScoredIds, settings: DetectionSettings) -> None:
        self.tables, self.tokens = tables_of(key), tokens
        options = settings.options
        assert isinstance(options, PositionOptions)
        self._phase, self._max_crop = options.phase, options.max_crop
        self._matched: dict[int, Bool[np.ndarray, " n"]] = {}
        self.hypotheses = self._hypotheses()
        self.best = min(self.hypotheses, key=lambda hypothesis: hypothesis.p_value)

    @classmethod
    def seconds(cls, key: WatermarkKey, tokens: float) -> float:
        """That of the group tables of a key that rotates: those of the text, and those that find its crop."""
        spec = spec_as(PositionSpec, key)
        if not spec.rotation:
            return 0.0
        of_text = _FEW_SECONDS if 2 * spec.rotation <= FEW_TOKENS else _TABLE_SECONDS
        crops = (min(tokens, _TOKENS_FOR_CROP) + DEFAULT_MAX_CROP) / spec.rotation
        return spec.table_size * (tokens / spec.rotation * of_text + crops * _TABLE_SECONDS)

    def p_value(self) -> float:
        """The p-value at the whole rate of the key."""
        return self.best.p_value

    def uncertain_because(self, share: float, level: float) -> Uncertain | None:
        """Why this test would not find a typical mark in a text like this; None if it would."""
        scored, hypothesis = len(self.tokens.ids), self.hypotheses[0]
        if not scored:
            return "empty"
        typical = math.ceil(scored * self.tables.spec.typical_match)
        if adjusted_p(hypothesis.p_value_of(min(typical, hypothesis.null.largest)), share) <= level:
            return None
        different = replace(hypothesis, null=MatchNull.of_distinct(scored, self.tables.spec.modulus))
        p_different = adjusted_p(different.p_value_of(min(typical, different.null.largest)), share)
        return "repetitive" if p_different <= level else "short"

    def fields(self, found: bool) -> dict[str, Any]:  # noqa: ARG002 (of every rule)
        """The fields of a `Detection` that this rule computes; `found`: whether the text is marked."""
        scored, modulus, best = len(self.tokens.ids), self.tables.spec.modulus, self.best
        (matched,) = self._matching(best.shift)
        return {
            "z_score": z_score(best.matched, scored, modulus),
            "green_fraction": best.matched / scored if scored else 0.0,
            "num_tokens_matched": best.matched,
            "test": "count",
            "figures": PositionFigures(best.shift, self._shifts, float(window_statistic(matched, modulus))),
        }

    @classmethod
    def expectation(cls, spec: PositionSpec, tokens: int, refilled: float) -> Expectation:
        """That of a n^b independent coins, one for each token: a word that is repeated says less again.

        The numbers were fitted to texts of 32 to 256 tokens of the storyteller.
        """
        match = spec.chance + (spec.typical_match - spec.chance) * refilled
        share = UNCROPPED_SHARE if spec.rotation else 1 / spec.period
        return Expectation(int(min(float(tokens), 3.3 * tokens**0.6)), match, share)

    def matched_tokens(self, detection: Detection) -> Bool[np.ndarray, " n"]:
        """Which tokens match at the shift of a detection of this text."""
        figures = detection.figures
        shift = figures.shift if isinstance(figures, PositionFigures) else self.best.shift
        (matched,) = self._matching(shift)
        return matched

    @property
    def _shifts(self) -> int:
        if self._phase == "start":
            return 1
        return self._max_crop + 1 if self.tables.spec.rotation else self.tables.spec.period

    def _hypotheses(self) -> list[Hypothesis]:
        """The likeliest hypotheses. With rotation the first one is the uncropped text."""
        spec = self.tables.spec
        if self._phase == "start" or (spec.rotation and not self._max_crop):
            return [self._hypothesis(0, 1.0)]
        # Any one shift may be picked after looking at the text, as each has its own share of the rate.
        if not spec.rotation:
            best = int(self._matched_by_phase().argmax())
            return [self._hypothesis(best, 1 / spec.period)]
        crop = self._likeliest_crop()
        self._matching(0, crop)
        return [self._hypothesis(0, UNCROPPED_SHARE), self._hypothesis(crop, (1 - UNCROPPED_SHARE) / self._max_crop)]

    def _matching(self, *shifts: int) -> list[Bool[np.ndarray, " n"]]:
        """Which tokens match at each of these shifts; what shifts need of one segment is computed together."""
        missing = [shift for shift in dict.fromkeys(shifts) if shift not in self._matched]
        if missing:
            at = np.concatenate([self.tokens.positions + shift for shift in missing])
            matched = self.tables.matching(np.tile(self.tokens.ids, len(missing)), at, once=True)
            self._matched.update(zip(missing, np.split(matched, len(missing)), strict=True))
        return [self._matched[shift] for shift in shifts]

    def _hypothesis(self, shift: int, weight: float) -> Hypothesis:
        spec, ids, at = self.tables.spec, self.tokens.ids, self.tokens.positions + shift
        matched = int(np.count_nonzero(self._matching(shift)[0]))
        items = self.tables.segment(at) * spec.table_size + ids
        counts = residue_counts(items, self.tables.residues(at), spec.modulus)
        distinct = [len(counts)]
        if spec.rotation:
            distinct = np.unique(np.unique(items) // spec.table_size, return_counts=True)[1].tolist()
        return Hypothesis(shift, matched, weight, MatchNull.of(counts), balance_of(spec, distinct))

    def _matched_by_phase(self) -> Int[np.ndarray, " period"]:
        """Matches if the first token's position were 0, 1, ... modulo the code's period."""
        spec, tables = self.tables.spec, self.tables
        places = self.tokens.positions % spec.period * spec.modulus + tables.table()[self.tokens.ids]
        counts = np.bincount(places, minlength=spec.period * spec.modulus).reshape(spec.period, spec.modulus)
        matched: Int[np.ndarray, " period"] = counts[np.arange(spec.period), tables.shifted_codes].sum(axis=1)
        return matched

    def _likeliest_crop(self) -> int:
        """The shift in 1..max_crop at which the most tokens match a rotating key."""
        spec, tables = self.tables.spec, self.tables
        positions = self.tokens.positions[:_TOKENS_FOR_CROP]
        distinct, token = np.unique(self.tokens.ids[:_TOKENS_FOR_CROP], return_inverse=True)
        last = int(positions.max(initial=0)) + self._max_crop
        groups = np.stack([tables.table(segment)[distinct] for segment in range(last // spec.rotation + 1)])
        counts = [
            np.count_nonzero(groups[at // spec.rotation, token] == tables.residues(at))
            for at in (positions + shift for shift in range(1, self._max_crop + 1))
        ]
        return 1 + int(np.argmax(counts))
