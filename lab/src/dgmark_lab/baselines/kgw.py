"""KGW: green lists by the left neighbour (Kirchenbauer et al., ICML 2023, Algorithm 2, context of one token)."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Int

from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.baseline import Baseline
from dgmark_lab.baselines.green import Pairs, check_delta, check_gamma, is_green, normal_p, score_pairs
from dgmark_lab.baselines.prf import SubKey
from dgmark_lab.baselines.score import Score

if TYPE_CHECKING:
    from dgmark.decode.steering import Steering
    from dgmark.models.denoiser import Denoiser


@dataclass(frozen=True)
class Kgw(Baseline):
    """KGW: tokens on the green list of the token to their left are biased.

    By default it decodes left to right, as in dgMARK's paper. Under any other strategy a position is biased only once
    its left neighbour is committed: the naive order-agnostic form.

    Attributes:
        gamma: share of green tokens.
        delta: bias on the logits of green tokens.
    """

    gamma: float = 0.5
    delta: float = 2.0

    name: ClassVar[str] = "kgw"
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({"strategy": "left_to_right"})

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_delta(self.delta)

    def steering(self, key: WatermarkKey, model: "Denoiser") -> "Steering":
        """A bias where the left neighbour is committed; the first position's neighbour is the prompt's last token."""
        from dgmark_lab.baselines.embed.neighbours import green_list_steering

        return green_list_steering(self.subkey(key), model, gamma=self.gamma, delta=self.delta)

    def score(
        self, key: WatermarkKey, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], fpr: float
    ) -> Score:
        """Score the distinct (left neighbour, token) pairs. Published: their z-test (lm-watermarking's default)."""
        return score_bigrams(self.subkey(key), ids, positions, self.gamma, fpr, dedup=True)


def score_bigrams(
    subkey: SubKey,
    ids: Int[np.ndarray, " n"],
    positions: Int[np.ndarray, " n"],
    gamma: float,
    fpr: float,
    *,
    dedup: bool,
) -> Score:
    """Score (left neighbour, token) pairs, each counted once (`dedup`) or at every occurrence, with the z-test's p."""
    left, right = bigrams(ids, positions)
    pairs = Pairs.of(left, right, dedup=dedup)
    green = is_green(subkey, pairs.contexts, pairs.tokens, gamma)
    return score_pairs(pairs, green, gamma, fpr, normal_p(gamma))


def bigrams(
    ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]
) -> tuple[Int[np.ndarray, " pairs"], Int[np.ndarray, " pairs"]]:
    """Return the left and the right tokens of adjacent pairs (with no special token between)."""
    adjacent = np.diff(positions) == 1
    return ids[:-1][adjacent], ids[1:][adjacent]
