"""The test of the expected-green-list watermark (Gloaguen, Staab, Jovanović, Vechev 2025)."""

import numpy as np

from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.green_lists import Pairs, score_pairs
from dgmark_lab.baselines.prf import HashKey
from dgmark_lab.baselines.published import Ids, PublishedTest, Score
from dgmark_lab.baselines.specs import MAX_OFFSET, GloaguenSpec


class GloaguenTest(PublishedTest):
    """The test of Gloaguen et al."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Score the distinct (context's hash, token) pairs. Published: the exact binomial test on them."""
        spec = spec_as(GloaguenSpec, key)
        placed = np.full(int(positions.max(initial=0)) + 1 + 2 * MAX_OFFSET, -1)
        placed[positions + MAX_OFFSET] = ids
        around = np.stack([placed[positions + MAX_OFFSET + offset] for offset in spec.offsets])
        complete = (around >= 0).all(axis=0)
        hashes = around[:, complete].sum(axis=0)
        pairs = Pairs.of(HashKey.of(key, "gloaguen"), hashes, ids[complete], spec.gamma)
        return score_pairs(pairs, spec.gamma, fpr, published="exact")
