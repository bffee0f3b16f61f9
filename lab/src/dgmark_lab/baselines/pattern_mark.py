"""PATTERN-MARK: parts of the vocabulary alternate along the positions; the detector counts alternating windows.

Chen et al., ICLR 2025: a watermark for order-agnostic language models.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.detection.alpha_spending import SMALLEST_P
from dgmark.detection.importance_sampling import DeterministicDraws
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.baseline import Baseline
from dgmark_lab.baselines.green import check_delta, green_null, normal_tail
from dgmark_lab.baselines.prf import states, uniform_bits
from dgmark_lab.baselines.redraw import draws_needed, redrawn_p
from dgmark_lab.baselines.score import Score

if TYPE_CHECKING:
    from dgmark.decode.steering import Steering
    from dgmark.models.denoiser import Denoiser

LONGEST_PATTERN = 16
# tokens up to which the distribution of the window count is computed (a second)
_LONGEST_LAW = 4096
# least and most keys to re-draw, and the largest draws x tokens (about a second)
_FEWEST_DRAWS, _MOST_DRAWS, _MOST_WORK = 1000, 100_000, 10**8


@dataclass(frozen=True)
class PatternMark(Baseline):
    """PATTERN-MARK with two alternating parts of the vocabulary: position i is biased to part (i + start) mod 2.

    Attributes:
        delta: bias on the logits of the position's part.
        pattern_length: m, the length in tokens of the target patterns, 0101... and 1010...
    """

    delta: float = 2.0
    pattern_length: int = 2

    name: ClassVar[str] = "pattern-mark"

    def __post_init__(self) -> None:
        check_delta(self.delta)
        if not 2 <= self.pattern_length <= LONGEST_PATTERN:
            raise SettingsError(f"pattern length {self.pattern_length} is not in 2..{LONGEST_PATTERN}")

    def steering(self, key: WatermarkKey, model: "Denoiser") -> "Steering":
        """A bias that alternates with the position; the key draws which part comes first."""
        from dgmark_lab.baselines.embed.tables import table_steering

        part = self.parts(key, np.arange(model.vocab_size))
        start = self.subkey(key, "start").first & 1
        order = np.array([start, 1 - start])
        return table_steering((part == np.arange(2)[:, None]) * self.delta, order, model)

    def parts(self, key: WatermarkKey, tokens: Int[np.ndarray, " n"]) -> UInt8[np.ndarray, " n"]:
        """Return the part, 0 or 1, of each token."""
        bits = uniform_bits(states(self.subkey(key), np.zeros(1, dtype=np.int64)), tokens)
        part: UInt8[np.ndarray, " n"] = (bits & 1).astype(np.uint8)
        return part

    def score(
        self,
        key: WatermarkKey,
        ids: Int[np.ndarray, " n"],
        positions: Int[np.ndarray, " n"],
        fpr: float,
    ) -> Score:
        """Count alternating windows. Published: their exact distribution under independent fair bits."""
        distinct, place = np.unique(ids, return_inverse=True)
        observed = self.parts(key, distinct)
        windows = max(len(ids) - self.pattern_length + 1, 0)
        matched = int(count_alternating(observed[place][:, None], self.pattern_length)[0])
        published = published_tail(len(ids), self.pattern_length, matched)
        most = max(_FEWEST_DRAWS, draws_needed(fpr))
        if most > min(_MOST_DRAWS, _MOST_WORK // max(len(ids), 1)):
            most = _FEWEST_DRAWS
        if windows:
            rank = redrawn_p(
                lambda parts: count_alternating(parts[place], self.pattern_length).astype(np.float64),
                observed,
                DeterministicDraws("redraw/v1", ids, positions, key.secret),
                2,
                most=most,
            )
        p_value, draws = (rank.p_value, rank.draws) if windows else (1.0, 0)
        return Score(
            scored=windows,
            matched=matched,
            z_score=_standard_score(len(ids), self.pattern_length, matched),
            p_value=p_value,
            p_published=published,
            tells=p_value <= fpr or self._tells(len(ids), len(distinct), fpr),
            draws=draws,
        )

    def _tells(self, tokens: int, distinct: int, fpr: float) -> bool:
        """Return whether a typical mark (3 of 4 tokens match) would be detected, and enough keys count differently."""
        expected = (tokens - self.pattern_length + 1) * (0.75**self.pattern_length + 0.25**self.pattern_length)
        # a text of d distinct tokens has 2^(d - 1) partitions that count differently
        return 0.5 ** (distinct - 1) <= fpr and (
            published_tail(tokens, self.pattern_length, math.ceil(expected)) <= fpr
        )


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
        return green_null(np.ones(windows, dtype=np.int64), 0.5).tail(matched)
    if tokens > _LONGEST_LAW:
        return normal_tail(_standard_score(tokens, length, matched - 0.5))
    return max(SMALLEST_P, float(_law(tokens, length)[matched:].sum()))


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
