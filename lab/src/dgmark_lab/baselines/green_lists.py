"""The tests of rules with green lists: a keyed hash makes some (context, token) pairs green.

Over random keys the distinct pairs of a text are independent, and each is green with probability gamma. So given the
text, the number of green ones among them is binomial. Repeats say nothing new of the key, so the exact test counts each
pair once, whatever the published one does.
"""

import math
from abc import abstractmethod
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.stats import norm

from dgmark.detection.statistics.p_values import MIN_P
from dgmark.watermark.hashes import Words
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.prf import HashKey, states, threshold, uniform_bits
from dgmark_lab.baselines.published import Ids, PublishedTest, Score, binomial_p
from dgmark_lab.baselines.specs import MAX_OFFSET, GloaguenSpec, GreenListSpec, UnigramSpec

Published = Literal["z-test", "z-test with repeats", "exact"]
# of each kind of pairs, the hash key that makes them green, the contexts and the tokens
Kinds = list[tuple[HashKey, Int[np.ndarray, " _"], Int[np.ndarray, " _"]]]


def is_green(hash_key: HashKey, contexts: Words, tokens: Words, gamma: float) -> Words:
    """Return whether each token is on the green list of its context; arrays or tensors, which are broadcast."""
    green: Words = uniform_bits(states(hash_key, contexts), tokens) < threshold(gamma)
    return green


class GreenTest(PublishedTest):
    """The test of a rule by which some (context, token) pairs are green: a subclass says which pairs a text holds.

    Attributes:
        published: the test whose p-value is the published one; a z-test takes pairs as independent.
        steered: the share of the pairs that the mark can turn green.
    """

    published: Published = "z-test with repeats"
    steered = 1.0

    @classmethod
    @abstractmethod
    def pairs(cls, key: WatermarkKey, ids: Ids, positions: Ids) -> Kinds:
        """All pairs of a text, repeats included."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Compare the number of distinct green pairs with its exact null, a binomial."""
        gamma = gamma_of(key)
        distinct = []  # of each kind, how often each pair occurs, and whether it is green
        for hash_key, contexts, tokens in cls.pairs(key, ids, positions):
            pairs, times = np.unique(np.stack([contexts, tokens]), axis=1, return_counts=True)
            distinct.append((times, is_green(hash_key, pairs[0], pairs[1], gamma)))
        counts, green = (np.concatenate(part) for part in zip(*distinct, strict=True))
        scored, matched = len(green), int(green.sum())
        once, repeats = _z_score(np.ones_like(counts), green, gamma), _z_score(counts, green, gamma)
        p_value = binomial_p(matched, scored, gamma)
        # a typical mark turns half of the pairs green that it can steer and that would not be green by chance
        typical = math.ceil(scored * (gamma + (1 - gamma) * cls.steered / 2))
        z = repeats if cls.published == "z-test with repeats" else once
        p_normal = max(MIN_P, float(norm.sf(z))) if scored else 1.0
        return Score(
            scored=scored,
            matched=matched,
            z_score=once,
            p_value=p_value,
            p_published=p_value if cls.published == "exact" else p_normal,
            detectable=p_value <= fpr or binomial_p(typical, scored, gamma) <= fpr,
        )


def gamma_of(key: WatermarkKey) -> float:
    """The share of green pairs of a key of such a rule."""
    assert isinstance(key.spec, GreenListSpec)
    return key.spec.gamma


def _z_score(counts: Int[np.ndarray, " pairs"], green: Bool[np.ndarray, " pairs"], gamma: float) -> float:
    total = int(counts.sum())
    return (int(counts[green].sum()) - gamma * total) / math.sqrt(total * gamma * (1 - gamma)) if total else 0.0


class KgwTest(GreenTest):
    """KGW's pairs are the left neighbours with their tokens; the published test is lm-watermarking's default."""

    published: Published = "z-test"

    @classmethod
    def pairs(cls, key: WatermarkKey, ids: Ids, positions: Ids) -> Kinds:
        """The left and the right tokens of adjacent pairs (with no special token between)."""
        adjacent = np.diff(positions) == 1
        return [(HashKey.of(key, key.spec.rule), ids[:-1][adjacent], ids[1:][adjacent])]


class DMarkTest(KgwTest):
    """DMark's pairs are those of KGW; the published test counts repeats."""

    published = "z-test with repeats"


class UnigramTest(GreenTest):
    """Unigram's tokens have no context; the published test takes all of them as independent."""

    @classmethod
    def pairs(cls, key: WatermarkKey, ids: Ids, positions: Ids) -> Kinds:  # noqa: ARG003
        """The tokens."""
        return [(HashKey.of(key, "unigram"), np.zeros_like(ids), ids)]


class LrDwmTest(GreenTest):
    """LR-DWM scores tokens that have both neighbours by how many of their two lists they are on.

    Of the two lists that two adjacent tokens have for each other, only that of the later one was known when it was
    drawn; so a mark steers half of the pairs. The published z-test has here the deviation of independent entries.
    """

    steered = 0.5

    @classmethod
    def pairs(cls, key: WatermarkKey, ids: Ids, positions: Ids) -> Kinds:
        """The entries in the lists of the left and of the right neighbours."""
        adjacent = np.diff(positions) == 1
        inner = (adjacent[:-1] & adjacent[1:]).nonzero()[0] + 1
        return [(hash_key, ids[inner + side], ids[inner]) for side, hash_key in sides_of(key)]


def sides_of(key: WatermarkKey) -> list[tuple[int, HashKey]]:
    """The two neighbours of LR-DWM, as offsets, with the hash key of each one's green lists."""
    return [(-1, HashKey.of(key, "lr-dwm/left")), (1, HashKey.of(key, "lr-dwm/right"))]


class GloaguenTest(GreenTest):
    """Gloaguen et al.'s pairs are the hashes of contexts with their tokens; their test is the exact one."""

    published = "exact"

    @classmethod
    def pairs(cls, key: WatermarkKey, ids: Ids, positions: Ids) -> Kinds:
        """The sums of the neighbours' ids, where all are known, and the tokens."""
        placed = np.full(int(positions.max()) + 1 + 2 * MAX_OFFSET, -1)
        placed[positions + MAX_OFFSET] = ids
        offsets = spec_as(GloaguenSpec, key).offsets
        around = np.stack([placed[positions + MAX_OFFSET + offset] for offset in offsets])
        complete = (around >= 0).all(axis=0)
        return [(HashKey.of(key, "gloaguen"), around[:, complete].sum(axis=0), ids[complete])]


def unigram_biases(key: WatermarkKey) -> Float[np.ndarray, "1 vocab"]:
    """The bias of each token under Unigram."""
    spec = spec_as(UnigramSpec, key)
    every = np.arange(spec.table_size)
    green = is_green(HashKey.of(key, "unigram"), np.zeros_like(every), every, spec.gamma)
    return green[None] * spec.delta
