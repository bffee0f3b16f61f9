"""CDMArk: a keyed spreading vector over the vocabulary is added to the logits everywhere; the detector correlates.

Huang and Wan, ACL 2026 (no. 1737). Of the paper only the abstract was read. The rule and the test are those of a
re-implementation by others (github.com/avibagchi/LLaDA, `generate.py`): m standard normal vectors over the vocabulary
are centred, made orthogonal and scaled to variance 1, one for each bit of the message; the bias is delta times their
sum, each with the sign of its bit; each bit's z is the sum of its vector over the tokens / sqrt(tokens).

To whoever knows the message, that sum is one vector again: its direction is as uniform as that of one vector, and it
is sqrt(m) times as long. So here there is one vector, and m bits of strength delta are delta * sqrt(m). Reading an
unknown message is left out.
"""

import math
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int
from scipy.special import ndtri
from scipy.stats import norm, t

from dgmark.detection.statistics.p_values import MIN_P
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.prf import BITS, HashKey, states, uniform_bits
from dgmark_lab.baselines.published import Ids, PublishedTest, Score
from dgmark_lab.baselines.specs import CdMarkSpec

# mean of the vector over the distinct tokens of a typical mark (chance: 0, with deviation 1)
_TYPICAL = 0.5


class CdMarkTest(PublishedTest):
    """The test of CDMArk."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:  # noqa: ARG003
        """Sum the vector over the distinct tokens. Published: the z-test over all tokens, which assumes independence.

        Tokens that repeat add more to the deviation over keys than to the mark: a text is found better without repeats.
        """
        vector, distinct = spreading_vector(HashKey.of(key, "cdmark"), key.spec.table_size), np.unique(ids)
        entries, weights = vector[distinct], np.bincount(distinct, minlength=len(vector))
        p_value = tail(weights, float(entries.sum()))
        return Score(
            scored=len(distinct),
            matched=int((entries > 0).sum()),
            z_score=float(entries.sum()) / math.sqrt(len(distinct)),
            p_value=p_value,
            p_published=max(MIN_P, float(norm.sf(vector[ids].sum() / math.sqrt(len(ids))))),
            detectable=p_value <= fpr or tail(weights, _TYPICAL * len(distinct)) <= fpr,
        )


def cdmark_biases(key: WatermarkKey) -> Float[np.ndarray, "1 vocab"]:
    """The bias of each token."""
    spec = spec_as(CdMarkSpec, key)
    return spec.delta * spreading_vector(HashKey.of(key, "cdmark"), spec.table_size)[None]


@lru_cache(maxsize=4)
def spreading_vector(hash_key: HashKey, size: int) -> Float[np.ndarray, " size"]:
    """Return the key's standard normal numbers of all tokens, centred and scaled to variance 1 over the vocabulary."""
    bits = uniform_bits(states(hash_key, np.zeros(1, dtype=np.int64)), np.arange(size))
    normal = ndtri(((bits >> 1) + 0.5) / 2.0 ** (BITS - 1))
    vector: Float[np.ndarray, " size"] = (normal - normal.mean()) / normal.std()
    vector.flags.writeable = False
    return vector


def tail(weights: Int[np.ndarray, " size"], total: float) -> float:
    """Return P(sum of weights * vector >= total) over random keys; never 0.

    A key's vector is sqrt(size) times a uniform direction among those that sum to 0. So the sum is sqrt(size) times the
    length of the centred weights times the cosine of an angle with one fixed direction, in size - 1 dimensions.
    """
    most = math.sqrt(len(weights)) * float(np.linalg.norm(weights - weights.mean()))
    if most <= abs(total):
        return MIN_P if most > 0 and total > 0 else 1.0
    freedom, cosine = len(weights) - 2, total / most
    return max(MIN_P, float(t.sf(cosine * math.sqrt(freedom / (1 - cosine**2)), freedom)))
