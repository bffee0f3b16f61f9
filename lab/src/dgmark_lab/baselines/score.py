"""The result of a scheme's statistic for one text, before it becomes a verdict."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """A statistic and its p-values.

    Attributes:
        scored: how many pairs, tokens or windows were scored.
        matched: how many of them agree with the key.
        z_score: the statistic, standardised as published.
        p_value: probability that a random key fits this very text as well, corrected for all shifts tried.
        p_published: the p-value as the scheme's publication computes it.
        tells: whether a typical mark would be detected in a text like this.
        shift: the shift that fits best.
        shifts_tested: how many shifts were tried.
        draws: how many keys were re-drawn.
    """

    scored: int
    matched: int
    z_score: float
    p_value: float
    p_published: float
    tells: bool
    shift: int = 0
    shifts_tested: int = 1
    draws: int = 0
