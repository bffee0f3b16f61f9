"""What a scheme's statistic says of one text, before it becomes a verdict."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """A statistic and its p-values.

    Attributes:
        scored: what was scored (pairs, tokens or windows).
        matched: what of it agrees with the key.
        z_score: the statistic standardised as published.
        p_value: chance that a random key does as well with this very text, all that was tried paid for.
        p_published: the p-value of the scheme's publication.
        tells: whether a typical mark would be seen in a text like this.
        shift: the shift that fits best.
        shifts_tested: how many were tried.
        draws: keys that were re-drawn.
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
