"""PATTERN-MARK: parts of the vocabulary alternate along the positions; the detector counts alternating windows.

Chen et al., ICLR 2025: a watermark for order-agnostic language models.
"""

import hashlib
import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from jaxtyping import Float, Int, UInt8
from scipy.stats import norm

from dgmark.detection.statistics.p_values import MIN_P
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.prf import HashKey, states, uniform_bits
from dgmark_lab.baselines.published import Ids, PublishedTest, Score, binomial_p
from dgmark_lab.baselines.specs import PatternMarkSpec

# tokens up to which the distribution of the window count is computed (a second)
_MAX_EXACT_TOKENS = 4096
# least and most keys to re-draw, and the largest draws x tokens (about a second)
_MIN_DRAWS, _MAX_DRAWS, _MAX_WORK = 1000, 100_000, 10**8
# exceedances of the observed value after which drawing stops (Besag and Clifford 1991)
ENOUGH = 10
_FIRST_BATCH, _MAX_BATCH = 63, 2048

# number of the first key, number of keys -> the statistic of a text under each of these random keys
Draw = Callable[[int, int], Int[np.ndarray, " keys"]]


class PatternMarkTest(PublishedTest):
    """The test of PATTERN-MARK."""

    @classmethod
    def scored(cls, key: WatermarkKey, ids: Ids, positions: Ids, fpr: float) -> Score:
        """Count alternating windows. Published: their exact distribution under independent fair bits."""
        length = spec_as(PatternMarkSpec, key).pattern_length
        distinct, place = np.unique(ids, return_inverse=True)
        matched = int(count_alternating(parts_of(key, ids)[:, None], length)[0])
        typical = math.ceil((len(ids) - length + 1) * (0.75**length + 0.25**length))  # where 3 of 4 tokens match
        # a text of d distinct tokens has 2^(d - 1) partitions that count differently
        chance = max(published_tail(len(ids), length, typical), 0.5 ** (len(distinct) - 1))
        random = RandomParts("redraw/v1", ids, positions, key.secret)
        p_value, _ = redrawn_p(
            matched,
            lambda _first, keys: count_alternating(random.draw(len(distinct), keys)[place], length),
            most=max_draws(fpr, len(ids)),
        )
        return Score(
            scored=max(len(ids) - length + 1, 0),
            matched=matched,
            z_score=_standard_score(len(ids), length, matched),
            p_value=p_value,
            p_published=published_tail(len(ids), length, matched),
            detectable=p_value <= fpr or chance <= fpr,
        )


def parts_of(key: WatermarkKey, tokens: Ids) -> UInt8[np.ndarray, " n"]:
    """Return the part of the vocabulary, 0 or 1, of each token."""
    bits = uniform_bits(states(HashKey.of(key, "pattern-mark"), np.zeros(1, dtype=np.int64)), tokens)
    return (bits & 1).astype(np.uint8)


def pattern_mark_biases(key: WatermarkKey) -> Float[np.ndarray, "2 vocab"]:
    """The bias of each token at even and at odd positions: position i is biased to part (i + start) mod 2."""
    spec, start = spec_as(PatternMarkSpec, key), first_part(key)
    part = parts_of(key, np.arange(spec.table_size))
    biases: Float[np.ndarray, "2 vocab"] = (part == np.array([[start], [1 - start]])) * spec.delta
    return biases


def first_part(key: WatermarkKey) -> int:
    """Return the part that position 0 is biased to."""
    return HashKey.of(key, "pattern-mark/start").first & 1


# --- the p-value by re-drawn keys ---


class RandomParts:
    """A stream of random parts of the vocabulary that depends on a text and a secret only, on every machine.

    It is Philox's raw output (the same in every version of numpy), keyed by a SHA-256 of the purpose, the token ids,
    their positions and the secret. So a text always has the same p-value.
    """

    def __init__(self, purpose: str, ids: Ids, positions: Ids, secret: bytes | None = None) -> None:
        header = f"dgmark/{purpose}".encode() + b"\0" + len(ids).to_bytes(8, "little")
        text = ids.astype("<i8").tobytes() + positions.astype("<i8").tobytes()
        seed = hashlib.sha256(header + text + (secret or b"")).digest()
        self._words = np.random.Philox(key=int.from_bytes(seed[:16], "little"))

    def draw(self, tokens: int, keys: int) -> UInt8[np.ndarray, "tokens keys"]:
        """Draw the part, 0 or 1, of each token under each key: fair and independent coins."""
        count = tokens * keys
        octets = self._words.random_raw(-(-count // 64)).astype("<u8").view(np.uint8)
        return np.unpackbits(octets, count=count).reshape(tokens, keys)


def redrawn_p(value: int, draw: Draw, *, most: int) -> tuple[float, int]:
    """Return the p-value of the real key's statistic by its rank among random keys, and how many keys were drawn.

    The text stays, and its distinct tokens get random groups, so the p-value is valid for any text and any statistic:
    exceedances / draws if drawing stopped early, else (1 + exceedances) / (1 + draws).

    Args:
        value: the statistic under the real key; larger if the mark is present.
        draw: computes it under random keys; called for one key after the other.
        most: number of draws after which to stop in any case.
    """
    drawn, exceedances, size = 0, 0, _FIRST_BATCH
    while drawn < most:
        size = min(size, most - drawn)
        above = np.flatnonzero(draw(drawn, size) >= value)
        if exceedances + len(above) >= ENOUGH:
            drawn += int(above[ENOUGH - exceedances - 1]) + 1
            return ENOUGH / drawn, drawn
        exceedances += len(above)
        drawn += size
        size = min(4 * (size + 1), _MAX_BATCH)
    return (1 + exceedances) / (1 + drawn), drawn


def max_draws(fpr: float, tokens: int) -> int:
    """As many draws as a p-value of at most `fpr` needs; the fewest where these would take too long."""
    needed = max(_MIN_DRAWS, math.ceil(1 / fpr) - 1)
    return needed if needed <= min(_MAX_DRAWS, _MAX_WORK // max(tokens, 1)) else _MIN_DRAWS


# --- the window count and its published law ---


def count_alternating(parts: UInt8[np.ndarray, "n keys"], length: int) -> Int[np.ndarray, " keys"]:
    """Count, for each key, the windows of `length` rows in which all neighbours differ."""
    differs = parts[1:] != parts[:-1]
    windows = len(parts) - length + 1
    if windows < 1:
        return np.zeros(parts.shape[1], dtype=np.int64)
    hits = differs[:windows].copy()
    for offset in range(1, length - 1):
        hits &= differs[offset : offset + windows]
    counts: Int[np.ndarray, " keys"] = np.count_nonzero(hits, axis=0)
    return counts


def published_tail(tokens: int, length: int, matched: int) -> float:
    """P(at least `matched` alternating windows) in `tokens` independent fair bits.

    Exact, except for m > 2 and more than 4,096 tokens: there it is the normal approximation.
    """
    windows = tokens - length + 1
    if matched <= 0 or windows < 1:
        return 1.0
    if length == 2:
        return binomial_p(matched, windows, 0.5)
    if tokens > _MAX_EXACT_TOKENS:
        tail = norm.sf(_standard_score(tokens, length, matched - 0.5))
    else:
        tail = _law(tokens, length)[matched:].sum()
    return max(MIN_P, float(tail))


@lru_cache(maxsize=64)
def _law(tokens: int, length: int) -> Float[np.ndarray, " windows"]:
    """P(exactly c alternating windows) in `tokens` fair bits, by dynamic programming.

    The state is the count and the length of the current run of differing neighbours, up to length - 1, a full window.
    """
    full = length - 1
    law = np.zeros((full + 1, tokens - length + 2))
    law[0, 0] = 1.0
    for _ in range(tokens - 1):
        new = np.zeros_like(law)
        new[0] = law.sum(axis=0) / 2
        new[1:full] = law[: full - 1] / 2
        new[full, 1:] = (law[full - 1, :-1] + law[full, :-1]) / 2
        law = new
    law.flags.writeable = False
    counts: Float[np.ndarray, " windows"] = law.sum(axis=0)
    return counts


def _standard_score(tokens: int, length: int, matched: float) -> float:
    """(count - mean) / standard deviation under fair bits; 0 if there is no window.

    Two windows that overlap in o >= 1 differences both alternate with probability 2^-(2(m-1) - o).
    """
    windows = tokens - length + 1
    if windows < 1:
        return 0.0
    chance = 0.5 ** (length - 1)
    variance = windows * chance * (1 - chance)
    for lag in range(1, min(length - 1, windows)):
        variance += 2 * (windows - lag) * (0.5 ** (length - 1 + lag) - chance**2)
    return (matched - windows * chance) / math.sqrt(variance)
