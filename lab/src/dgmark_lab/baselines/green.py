"""Green lists: which (context, token) pairs are green, how many of a text's are, and the exact null of that count.

Over random keys the distinct pairs of a text are independent, and each is green with probability gamma. So given the
text, the count is a sum of independent terms, each 0 or a pair's multiplicity, like dgMARK's own matches
(`match_null.MatchNull`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from jaxtyping import Bool, Int

from dgmark.detection.alpha_spending import SMALLEST_P
from dgmark.detection.exact_test import MatchNull
from dgmark.errors import SettingsError
from dgmark_lab.baselines.prf import SubKey, states, threshold, uniform_bits
from dgmark_lab.baselines.score import Score

# gamma is a/b with b up to this: the null puts a pair on one of b equally likely lists, of which a are green
_LARGEST_DENOMINATOR = 64


def check_gamma(gamma: float) -> None:
    """Refuse an invalid share of green tokens.

    Raises:
        SettingsError: gamma is not in (0, 1), or not a fraction with a denominator up to 64.
    """
    if not (isinstance(gamma, int | float) and 0 < gamma < 1):
        raise SettingsError(f"gamma {gamma} is not between 0 and 1")
    if abs(float(_fraction(gamma)) - gamma) > 1e-12:
        raise SettingsError(
            f"gamma {gamma} is not a fraction with a denominator up to {_LARGEST_DENOMINATOR}, which the exact null "
            f"needs: use the nearest one, {float(_fraction(gamma))!r}"
        )


def check_delta(delta: float) -> None:
    """Refuse an invalid bias.

    Raises:
        SettingsError: delta is not a number from 0 to 100.
    """
    if not (isinstance(delta, int | float) and 0 <= delta <= 100):
        raise SettingsError(f"delta {delta} is not in 0..100")


def _fraction(gamma: float) -> Fraction:
    return Fraction(gamma).limit_denominator(_LARGEST_DENOMINATOR)


def is_green(
    subkey: SubKey, contexts: Int[np.ndarray, " n"], tokens: Int[np.ndarray, " n"], gamma: float
) -> Bool[np.ndarray, " n"]:
    """Return whether each token is on the green list of its context."""
    green: Bool[np.ndarray, " n"] = uniform_bits(states(subkey, contexts), tokens) < threshold(gamma)
    return green


@dataclass(frozen=True)
class Pairs:
    """The distinct (context, token) pairs of a text, and how often each counts."""

    contexts: Int[np.ndarray, " pairs"]
    tokens: Int[np.ndarray, " pairs"]
    counts: Int[np.ndarray, " pairs"]

    @classmethod
    def of(cls, contexts: Int[np.ndarray, " n"], tokens: Int[np.ndarray, " n"], *, dedup: bool) -> "Pairs":
        """Collect the pairs in order of (context, token); with `dedup` each counts once."""
        both, counts = np.unique(np.stack([contexts, tokens]), axis=1, return_counts=True)
        return cls(both[0], both[1], np.ones_like(counts) if dedup else counts)


def green_null(counts: Int[np.ndarray, " pairs"], gamma: float) -> MatchNull:
    """Return the null of the green count, over random keys, for pairs with these multiplicities."""
    share = _fraction(gamma)
    sizes = np.bincount(counts, minlength=1)
    sizes[0] = 0
    present = sizes.nonzero()[0]
    kinds = np.zeros((len(present), share.denominator), dtype=np.int64)
    kinds[:, share.denominator - share.numerator :] = present[:, None]
    return MatchNull(kinds, sizes[present], 0)


def score_pairs(
    pairs: Pairs, green: Bool[np.ndarray, " pairs"], gamma: float, fpr: float, published: Callable[[int, int], float]
) -> Score:
    """Compare the green count with its exact null; `published` maps (green, scored) to the published p-value."""
    scored, matched = int(pairs.counts.sum()), int(pairs.counts[green].sum())
    null = green_null(pairs.counts, gamma)
    p_value = null.tail(matched)
    # a typical mark turns half of the tokens green that would not be green by chance
    typical = min(math.ceil(scored * (1 + gamma) / 2), null.largest)
    return Score(
        scored=scored,
        matched=matched,
        z_score=standard_score(matched, scored, gamma),
        p_value=p_value,
        p_published=published(matched, scored),
        tells=p_value <= fpr or null.tail(typical) <= fpr,
    )


def standard_score(matched: int, scored: int, gamma: float) -> float:
    """(matched - gamma n) / sqrt(n gamma (1 - gamma)) for n = `scored`; 0 if nothing is scored."""
    return (matched - gamma * scored) / math.sqrt(scored * gamma * (1 - gamma)) if scored else 0.0


def normal_tail(z: float) -> float:
    """P(Z >= z) of the standard normal distribution; never 0."""
    return max(SMALLEST_P, 0.5 * math.erfc(z / math.sqrt(2)))


def normal_p(gamma: float) -> Callable[[int, int], float]:
    """Return the p-value function of the z-test, as KGW publishes it."""
    return lambda matched, scored: normal_tail(standard_score(matched, scored, gamma)) if scored else 1.0


def binomial_p(gamma: float) -> Callable[[int, int], float]:
    """Return the p-value function of the exact binomial test."""
    return lambda matched, scored: green_null(np.ones(scored, dtype=np.int64), gamma).tail(matched)
