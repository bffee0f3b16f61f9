"""What the tests of published watermarks share: a score, of which detection makes a verdict."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int
from scipy.stats import binom

from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.results.figures import ShiftFigures, Uncertain
from dgmark.detection.results.sentences import MIN_TOKENS
from dgmark.detection.statistics.p_values import MIN_P
from dgmark.detection.statistics.rules import DetectionSettings, TextTest
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import check_ids

# token ids, or their positions
Ids = Int[np.ndarray, " n"]


def binomial_p(matched: int, scored: int, chance: float) -> float:
    """P(at least `matched` of `scored` coins of this chance); never 0."""
    return max(MIN_P, float(binom.sf(matched - 1, scored, chance)))


@dataclass(frozen=True)
class Score:
    """The statistic of one text and its p-values.

    Attributes:
        scored: how many pairs, tokens or windows were scored.
        matched: how many of them agree with the key.
        z_score: the statistic, standardised as if its terms were independent.
        p_value: probability that a random key fits this very text as well, corrected for all shifts tried.
        p_published: the p-value as the watermark's publication computes it.
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


NOTHING = Score(0, 0, 0.0, 1.0, 1.0, detectable=False)  # of a text in which nothing is scored


@dataclass(frozen=True)
class PublishedFigures(ShiftFigures):
    """What the test of a published watermark finds.

    Attributes:
        p_published: the p-value as the watermark's publication computes it, for comparison.
    """

    p_published: float

    def lines(self) -> tuple[tuple[str, str], ...]:
        """The p-value of the publication."""
        return (("published p-value", f"{self.p_published:.3g}, by the rule's own publication"),)


@runtime_checkable
class ReadsPrompts(Protocol):
    """What the test of a rule has that scores a text better with its prompt: experiments, which know it, give it."""

    @classmethod
    def after_prompt(cls, key: WatermarkKey, prompt: str, text: Sequence[int], *, chat: bool, fpr: float) -> Score:
        """Score a text after its prompt.

        Args:
            key: a key of the rule.
            prompt: the prompt.
            text: the ids of the text.
            chat: whether the writer put the prompt into the model's chat template.
            fpr: the p-value that a mark is to reach.
        """


class PublishedTest(TextTest):
    """The test of a published watermark, which scores a text as it is: a subclass writes `scored`."""

    figures_type = PublishedFigures
    scores_layout = True
    units = ("token or group of tokens", "tokens or groups of tokens")

    def __init__(self, key: WatermarkKey, tokens: ScoredIds, settings: DetectionSettings) -> None:
        check_ids(tokens.ids, key.spec.table_size)
        self._tokens = len(tokens.ids)
        self.score = self.scored(key, tokens.ids, tokens.positions, settings.fpr) if self._tokens else NOTHING

    @classmethod
    @abstractmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Score tokens, of which there is one or more, at their positions (0-based, ascending).

        Args:
            key: a key of the rule.
            ids: the token ids.
            positions: their positions.
            fpr: the p-value that a mark is to reach.
        """

    def p_value(self) -> float:
        """The p-value over random keys."""
        return self.score.p_value

    def uncertain_because(self, share: float, level: float) -> Uncertain | None:  # noqa: ARG002 (the score's)
        """Why a typical mark would not be found; None if it would."""
        if self.score.detectable:
            return None
        if not self.score.scored:
            return "empty"
        return "short" if self._tokens < MIN_TOKENS else "repetitive"

    def fields(self, found: bool) -> dict[str, Any]:  # noqa: ARG002 (of every rule)
        """The score, with the p-value of the publication."""
        score = self.score
        return {
            "z_score": score.z_score,
            "green_fraction": score.matched / score.scored if score.scored else 0.0,
            "num_tokens_scored": score.scored,
            "num_tokens_matched": score.matched,
            "figures": PublishedFigures(score.shift, score.shifts_tested, score.p_published),
        }
