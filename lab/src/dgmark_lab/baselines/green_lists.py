"""The tests of KGW, Unigram, DMark and LR-DWM: a keyed hash makes some (context, token) pairs green.

Over random keys the distinct pairs of a text are independent, and each is green with probability gamma. So given the
text, the number of green ones among them is binomial. Repeats say nothing new of the key, so the exact test counts each
pair once, whatever the published one does.
"""

import math
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from scipy.stats import binom, norm

from dgmark.detection.p_values import MIN_P
from dgmark.watermark.hashes import Words
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.prf import HashKey, states, threshold, uniform_bits
from dgmark_lab.baselines.published import Ids, PublishedTest, Score
from dgmark_lab.baselines.specs import DMarkSpec, KgwSpec, LrDwmSpec, UnigramSpec


def is_green(hash_key: HashKey, contexts: Words, tokens: Words, gamma: float) -> Words:
    """Return whether each token is on the green list of its context; arrays or tensors, which are broadcast."""
    green: Words = uniform_bits(states(hash_key, contexts), tokens) < threshold(gamma)
    return green


class Pairs(NamedTuple):
    """The distinct (context, token) pairs of a text: how often each occurs, and whether it is green."""

    counts: Int[np.ndarray, " pairs"]
    green: Bool[np.ndarray, " pairs"]

    @classmethod
    def of(cls, hash_key: HashKey, contexts: Ids, tokens: Ids, gamma: float) -> "Pairs":
        """Look up the pairs of each token with its context."""
        (contexts, tokens), counts = np.unique(np.stack([contexts, tokens]), axis=1, return_counts=True)
        return cls(counts, is_green(hash_key, contexts, tokens, gamma))


def score_pairs(
    pairs: Pairs,
    gamma: float,
    fpr: float,
    *,
    published: Literal["z-test", "z-test with repeats", "exact"],
    steered: float = 1.0,
) -> Score:
    """Compare the number of distinct green pairs with its exact null, a binomial.

    Args:
        pairs: the distinct pairs of the text.
        gamma: share of green pairs.
        fpr: the false-positive rate.
        published: the test whose p-value is the published one.
        steered: the share of the pairs that the mark can turn green.
    """
    scored, matched = len(pairs.green), int(pairs.green.sum())
    once, repeats = _z_score(np.ones_like(pairs.counts), pairs.green, gamma), _z_score(*pairs, gamma)
    p_value = _tail(matched, scored, gamma)
    # a typical mark turns half of the pairs green that it can steer and that would not be green by chance
    typical = math.ceil(scored * (gamma + (1 - gamma) * steered / 2))
    p_normal = max(MIN_P, float(norm.sf(repeats if published == "z-test with repeats" else once))) if scored else 1.0
    return Score(
        scored=scored,
        matched=matched,
        z_score=once,
        p_value=p_value,
        p_published=p_value if published == "exact" else p_normal,
        detectable=p_value <= fpr or _tail(typical, scored, gamma) <= fpr,
    )


def _z_score(counts: Int[np.ndarray, " pairs"], green: Bool[np.ndarray, " pairs"], gamma: float) -> float:
    total = int(counts.sum())
    return (int(counts[green].sum()) - gamma * total) / math.sqrt(total * gamma * (1 - gamma)) if total else 0.0


def _tail(matched: int, scored: int, gamma: float) -> float:
    return max(MIN_P, float(binom.sf(matched - 1, scored, gamma)))


def bigrams(ids: Ids, positions: Ids) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Return the left and the right tokens of adjacent pairs (with no special token between)."""
    adjacent = np.diff(positions) == 1
    return ids[:-1][adjacent], ids[1:][adjacent]


class KgwTest(PublishedTest):
    """The test of KGW."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Score the distinct (left neighbour, token) pairs. Published: their z-test (lm-watermarking's default)."""
        gamma = spec_as(KgwSpec, key).gamma
        pairs = Pairs.of(HashKey.of(key, "kgw"), *bigrams(ids, positions), gamma)
        return score_pairs(pairs, gamma, fpr, published="z-test")


class UnigramTest(PublishedTest):
    """The test of Unigram."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:  # noqa: ARG003
        """Score the distinct tokens. Published: the z-test over all tokens, which assumes that they are independent."""
        gamma = spec_as(UnigramSpec, key).gamma
        pairs = Pairs.of(HashKey.of(key, "unigram"), np.zeros_like(ids), ids, gamma)
        return score_pairs(pairs, gamma, fpr, published="z-test with repeats")


class DMarkTest(PublishedTest):
    """The test of DMark."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Score the distinct (left, right) pairs. Published: the z-test over all pairs, repeats included."""
        gamma = spec_as(DMarkSpec, key).gamma
        pairs = Pairs.of(HashKey.of(key, "dmark"), *bigrams(ids, positions), gamma)
        return score_pairs(pairs, gamma, fpr, published="z-test with repeats")


class LrDwmTest(PublishedTest):
    """The test of LR-DWM."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Score tokens that have both neighbours by how many of their two lists they are on, each entry once.

        Of the two lists that two adjacent tokens have for each other, only that of the later one was known when it was
        drawn; so a mark steers half of the pairs. Published: a z-test over all tokens, repeats included, here with the
        deviation of independent entries.
        """
        gamma = spec_as(LrDwmSpec, key).gamma
        adjacent = np.diff(positions) == 1
        inner = (adjacent[:-1] & adjacent[1:]).nonzero()[0] + 1
        both = [Pairs.of(hash_key, ids[inner + side], ids[inner], gamma) for side, hash_key in sides_of(key)]
        pairs = Pairs(*(np.concatenate(part) for part in zip(*both, strict=True)))
        return score_pairs(pairs, gamma, fpr, published="z-test with repeats", steered=0.5)


def sides_of(key: WatermarkKey) -> list[tuple[int, HashKey]]:
    """The two neighbours of LR-DWM, as offsets, with the hash key of each one's green lists."""
    return [(-1, HashKey.of(key, "lr-dwm/left")), (1, HashKey.of(key, "lr-dwm/right"))]
