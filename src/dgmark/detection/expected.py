"""The expected evidence: the p-value of a marked text of so many tokens, as written or edited, and the tokens it needs.

A law, not a promise: lab/docs/results/decoding.md compares it with texts. Its texts repeat themselves as those of the
built-in storyteller do; texts that repeat themselves less need fewer tokens. P-values and verdicts do not rest on it.
"""

from bisect import bisect_left
from functools import lru_cache
from math import sqrt

import numpy as np

from dgmark.detection.finding import Edit
from dgmark.detection.match_null import MatchNull
from dgmark.detection.p_values import adjusted_p
from dgmark.detection.rules import rule_of
from dgmark.errors import SettingsError
from dgmark.watermark.spec import WatermarkSpec

# standard deviations of a binomial count that 95 % of the texts stay above: more than the normal 1.64, as texts differ
# in how much they repeat themselves
DEVIATIONS_OF_95_PERCENT = 2.0
MAX_TOKENS = 100_000


def surviving(spec: WatermarkSpec, edit: Edit | None, share: float) -> float:
    """The share of an edited text's pairs (of its tokens, under the position rule) that the text had before the edits.

    Args:
        spec: the key's spec.
        edit: what happens to the tokens; None: nothing.
        share: how many of the text's tokens are deleted or replaced, or are inserted, as a share of the text.

    Raises:
        SettingsError: this is no share.
    """
    if not 0 <= share < 1:
        raise SettingsError(f"a share of {share} of the tokens is not in [0, 1)")
    return rule_of(spec).surviving(edit, share) if edit and share else 1.0


def expected_p(
    spec: WatermarkSpec,
    tokens: int,
    edit: Edit | None = None,
    share: float = 0.0,
    *,
    most: bool = False,
    refilled: float = 1.0,
) -> float:
    """The p-value that a marked text is expected to have.

    It is that of a n^b independent coins, one for each pair of a distance, or for each token: a word that is repeated
    says less again. (a, b) were fitted to texts of 32 to 256 tokens of the storyteller.

    Args:
        spec: the key's spec.
        tokens: how many tokens are written; deletion leaves fewer, insertion makes more.
        edit: what happens to them; see `surviving`.
        share: to how many.
        most: of 95 % of the texts, instead of the median text.
        refilled: share of the tokens that carry the mark, where the others were there before.
    """
    rule = rule_of(spec)
    marked = surviving(spec, edit, share)
    if refilled < 1:  # each token of the others leaves its pairs as a replaced token would
        marked *= 1 - surviving(spec, "substitution", refilled)
    match = spec.chance + (spec.typical_match - spec.chance) * marked
    length = tokens * {"deletion": 1 - share, "insertion": 1 + share}.get(edit or "", 1.0)
    factor, power = rule.coins_of
    coins = int(sum(min(max(0.0, length - distance), factor * length**power) for distance in rule.distances))
    matched = coins * match - most * DEVIATIONS_OF_95_PERCENT * sqrt(coins * match * (1 - match))
    modulus = round(1 / spec.chance)
    null = MatchNull(np.eye(1, modulus, modulus - 1, dtype=np.int64), np.array([coins]), 0)
    return adjusted_p(null.tail(int(matched)), rule.whole_share)


@lru_cache(maxsize=256)
def tokens_needed(
    spec: WatermarkSpec, fpr: float, edit: Edit | None = None, share: float = 0.0, *, most: bool = False
) -> int | None:
    """How many tokens must be written for an expected p-value of at most `fpr`; None if 100,000 are too few.

    Args:
        spec: the key's spec.
        fpr: the false-positive rate.
        edit: what happens to the tokens; see `surviving`.
        share: to how many.
        most: in 95 % of the texts, instead of the median text.
    """

    def found(tokens: int) -> bool:
        return expected_p(spec, tokens, edit, share, most=most) <= fpr

    return 1 + bisect_left(range(1, MAX_TOKENS), True, key=found) if found(MAX_TOKENS) else None
