"""The expected evidence: the p-value of a marked text of so many tokens, as written or edited, and the tokens it needs.

A law, not a promise: lab/docs/results/decoding.md compares it with texts. Its texts repeat themselves as those of the
built-in storyteller do; texts that repeat themselves less need fewer tokens. P-values and verdicts do not rest on it.
"""

from bisect import bisect_left
from functools import lru_cache
from math import comb, sqrt
from statistics import mean
from typing import Literal

import numpy as np

from dgmark.detection.bigram_test import WHOLE_SHARE
from dgmark.detection.exact_test import UNCROPPED, MatchNull, adjusted_p
from dgmark.errors import SettingsError
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.strength import typical_match

Edit = Literal["deletion", "insertion", "substitution"]
# The p-value of n tokens is that of a n^b independent coins, one for each pair of a distance, or for each token: a word
# that is repeated says less again. (a, b), fitted to texts of 32 to 256 tokens of the storyteller.
DIFFERENT = {"bigram": (2.57, 0.75), "position": (3.3, 0.6)}
# standard deviations of a binomial count that 95 % of the texts stay above: more than the normal 1.64, as texts differ
# in how much they repeat themselves
MOST = 2.0
LONGEST = 100_000


def surviving(spec: WatermarkSpec, edit: Edit | None, share: float) -> float:
    """The share of an edited text's pairs (of its tokens, under the position rule) that the text had before the edits.

    A pair survives while its two tokens do and stand no farther apart than pairs may; how far does not matter else.

    Args:
        spec: the key's spec.
        edit: what happens to the tokens; None: nothing.
        share: how many of the text's tokens are deleted or replaced, or are inserted, as a share of the text.

    Raises:
        SettingsError: this is no share.
    """
    if not 0 <= share < 1:
        raise SettingsError(f"a share of {share} of the tokens is not in [0, 1)")
    if edit is None or not share:
        return 1.0
    if spec.rule == "position":
        return 1 - share if edit == "substitution" else 0.0
    return mean(_pair_survives(spec, edit, share, distance) for distance in range(spec.nearest, spec.farthest + 1))


def _pair_survives(spec: WatermarkSpec, edit: Edit, share: float, distance: int) -> float:
    """The chance that two tokens at a distance in the edited text were a pair before."""
    between = distance - 1
    if edit == "substitution":
        return (1 - share) ** 2
    if edit == "deletion":  # k tokens between them are gone, and they stood no farther apart than `farthest`
        gone = (comb(between + k, k) * share**k for k in range(spec.farthest - distance + 1))
        return float((1 - share) ** distance * sum(gone))
    # both are old, k tokens between them are new, and they stood at least `nearest` apart
    new = share / (1 + share)
    inserted = (comb(between, k) * new**k * (1 - new) ** (between - k) for k in range(distance - spec.nearest + 1))
    return float((1 - new) ** 2 * sum(inserted))


def expected_p(
    spec: WatermarkSpec, tokens: int, edit: Edit | None = None, share: float = 0.0, *, most: bool = False
) -> float:
    """The p-value that a marked text is expected to have.

    Args:
        spec: the key's spec.
        tokens: how many tokens are written; deletion leaves fewer, insertion makes more.
        edit: what happens to them; see `surviving`.
        share: to how many.
        most: of 95 % of the texts, instead of the median text.
    """
    chance = 1 / spec.modulus
    match = chance + (typical_match(spec) - chance) * surviving(spec, edit, share)
    length = tokens * {"deletion": 1 - share, "insertion": 1 + share}.get(edit or "", 1.0)
    factor, power = DIFFERENT[spec.rule]
    # a text of n tokens has n - d pairs at a distance of d
    distances = range(spec.nearest, spec.farthest + 1) if spec.rule == "bigram" else range(1)
    coins = int(sum(min(max(0.0, length - distance), factor * length**power) for distance in distances))
    matched = coins * match - most * MOST * sqrt(coins * match * (1 - match))
    null = MatchNull(np.eye(1, spec.modulus, spec.modulus - 1, dtype=np.int64), np.array([coins]), 0)
    return adjusted_p(null.tail(int(matched)), _share_of_rate(spec))


def _share_of_rate(spec: WatermarkSpec) -> float:
    """The share of the rate that the test of the whole text has."""
    if spec.rule == "bigram":
        return WHOLE_SHARE / spec.subkeys
    return UNCROPPED if spec.rotation else 1 / spec.period


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

    return 1 + bisect_left(range(1, LONGEST), True, key=found) if found(LONGEST) else None
