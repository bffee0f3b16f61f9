"""A key's test on many texts together, such as those of a model that may have learned from marked text."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from dgmark.arguments.contents import ids_of
from dgmark.detection.reading.reader import ScoredIds
from dgmark.detection.statistics.match_null import MatchNull
from dgmark.detection.statistics.pairs import DistinctPairs
from dgmark.watermark.bigram import BigramSpec, matching_pairs, pair_key
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as

Counts = Int[np.ndarray, " pairs"]


def pooled_p(key: WatermarkKey, texts: Sequence[Sequence[int]]) -> float:
    """P(as many matches over random keys), given the texts: the law of the sum of n_v B_v, B_v fair coins.

    A pair v counts in each of the n_v texts that hold it, once in each; it matches in all of them or in none.

    Args:
        key: a key of rule "bigram".
        texts: token ids.
    """
    pairs, counts = pairs_in(key, texts)
    matched = int(counts[matching_pairs(pairs, pair_key(key))].sum())
    return MatchNull.of(np.stack([counts, np.zeros_like(counts)], axis=1)).tail(matched)


def pairs_in(key: WatermarkKey, texts: Sequence[Sequence[int]]) -> tuple[Counts, Counts]:
    """The distinct pairs of texts of token ids, and how many texts hold each."""
    spec = spec_as(BigramSpec, key)
    found = [DistinctPairs(spec, ScoredIds(ids, np.arange(len(ids)))).words for ids in map(ids_of, texts)]
    pairs, counts = np.unique(np.concatenate(found), return_counts=True)
    return pairs, counts
