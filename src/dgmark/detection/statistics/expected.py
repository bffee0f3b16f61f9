"""The expected evidence: the p-value of a marked text of so many tokens, and the tokens it needs.

A law, not a promise: lab/docs/results/decoding.md compares it with texts. Its texts repeat themselves as those of the
built-in storyteller do; texts that repeat themselves less need fewer tokens. P-values and verdicts do not rest on it.
"""

from bisect import bisect_left
from functools import lru_cache
from math import sqrt
from statistics import NormalDist

from dgmark.detection.results.detection import Detection
from dgmark.detection.statistics.match_null import MatchNull
from dgmark.detection.statistics.p_values import adjusted_p
from dgmark.watermark.rules import find_rule
from dgmark.watermark.spec import WatermarkSpec

# standard deviations of a binomial count that 95 % of the texts stay above: more than the normal 1.64, as texts differ
# in how much they repeat themselves
DEVIATIONS_OF_95_PERCENT = 2.0
MAX_TOKENS = 100_000


def expected_p(spec: WatermarkSpec, tokens: int, *, most: bool = False, refilled: float = 1.0) -> float | None:
    """The p-value that a marked text is expected to have, by the coins that its rule says; None if it says none.

    Args:
        spec: the key's spec.
        tokens: how many tokens the text has.
        most: of 95 % of the texts, instead of the median text.
        refilled: share of the tokens that carry the mark, where the others were there before.
    """
    expected = find_rule(spec.rule).test().expectation(spec, tokens, refilled)
    if expected is None:
        return None
    coins, match, share = expected
    matched = coins * match - most * DEVIATIONS_OF_95_PERCENT * sqrt(coins * match * (1 - match))
    null = MatchNull.of_distinct(coins, round(1 / spec.chance))
    return adjusted_p(null.tail(int(matched)), share)


def matched_by_chance(spec: WatermarkSpec, found: Detection) -> tuple[int, int]:
    """How many of a text's pairs (or tokens) would match by chance, without the key: about from this to that many.

    The first is the mean under one key, sub-key and shift; the second the median under those with the most matches. A
    detection shows the likeliest ones, of which parts of the text decide as well, so its count lies between.
    """
    _, _, scored = found.counts
    mean, deviation = scored * spec.chance, sqrt(scored * spec.chance * (1 - spec.chance))
    best = mean + deviation * NormalDist().inv_cdf(0.5 ** (1 / found.tries)) if found.tries > 1 else mean
    return round(mean), min(scored, round(best))


@lru_cache(maxsize=256)
def tokens_needed(spec: WatermarkSpec, fpr: float, *, most: bool = False, refilled: float = 1.0) -> int | None:
    """How many tokens must be written for an expected p-value of at most `fpr`; see `expected_p`.

    None if 100,000 are too few, or if the rule does not say what to expect (`Rule.expects` tells which).
    """

    def found(tokens: int) -> bool:
        p = expected_p(spec, tokens, most=most, refilled=refilled)
        return p is not None and p <= fpr

    return 1 + bisect_left(range(1, MAX_TOKENS), True, key=found) if found(MAX_TOKENS) else None
