"""Unigram: one green list for all positions (Zhao et al., ICLR 2024)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Int

from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.baseline import Baseline
from dgmark_lab.baselines.green import Pairs, check_delta, check_gamma, is_green, normal_p, score_pairs
from dgmark_lab.baselines.score import Score

if TYPE_CHECKING:
    from dgmark.decode.steering import Steering
    from dgmark.models.denoiser import Denoiser


@dataclass(frozen=True)
class Unigram(Baseline):
    """Unigram: tokens on the key's one green list are biased everywhere.

    Attributes:
        gamma: share of green tokens.
        delta: bias on the logits of green tokens.
    """

    gamma: float = 0.5
    delta: float = 2.0

    name: ClassVar[str] = "unigram"

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_delta(self.delta)

    def steering(self, key: WatermarkKey, model: "Denoiser") -> "Steering":
        """The same bias at every position."""
        from dgmark_lab.baselines.embed.tables import table_steering

        every = np.arange(model.vocab_size)
        green = is_green(self.subkey(key), np.zeros_like(every), every, self.gamma)
        return table_steering(green[None] * self.delta, np.zeros(1, dtype=np.int64), model)

    def score(
        self,
        key: WatermarkKey,
        ids: Int[np.ndarray, " n"],
        positions: Int[np.ndarray, " n"],  # noqa: ARG002
        fpr: float,
    ) -> Score:
        """Score every token. Published: the z-test, which assumes independent tokens."""
        pairs = Pairs.of(np.zeros_like(ids), ids, dedup=False)
        green = is_green(self.subkey(key), pairs.contexts, pairs.tokens, self.gamma)
        return score_pairs(pairs, green, self.gamma, fpr, normal_p(self.gamma))
