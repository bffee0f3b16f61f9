"""DMark: a green relation between neighbours, whichever is committed first (Wu et al. 2025)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Int

from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.baseline import Baseline
from dgmark_lab.baselines.green import check_delta, check_gamma
from dgmark_lab.baselines.kgw import score_bigrams
from dgmark_lab.baselines.score import Score

if TYPE_CHECKING:
    from dgmark.decode.steering import Steering
    from dgmark.models.denoiser import Denoiser

Form = Literal["normal", "predictive", "bidirectional", "predictive-bidirectional"]


@dataclass(frozen=True)
class DMark(Baseline):
    """DMark: some (left, right) pairs of tokens are green, and a position is biased by its known neighbours.

    Attributes:
        gamma: share of green pairs.
        delta: bias on the logits of tokens that make a pair green, added once for each side.
        form: "normal" uses the left neighbour if it is committed; "predictive" predicts its likeliest token where it
            is masked; "bidirectional" uses the committed neighbours on both sides; "predictive-bidirectional" also
            predicts the left one where neither is committed.
    """

    gamma: float = 0.5
    delta: float = 2.0
    form: Form = "predictive-bidirectional"

    name: ClassVar[str] = "dmark"

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_delta(self.delta)
        if self.form not in get_args(Form):
            raise SettingsError(f"form {self.form!r} is not one of: {', '.join(get_args(Form))}")

    def steering(self, key: WatermarkKey, model: "Denoiser") -> "Steering":
        """A bias by the relation's row for a left neighbour, and by its column for a right one."""
        from dgmark_lab.baselines.embed.neighbours import bigram_steering

        return bigram_steering(
            self.subkey(key),
            model,
            gamma=self.gamma,
            delta=self.delta,
            predicts=self.form.startswith("predictive"),
            both_sides=self.form.endswith("bidirectional"),
        )

    def score(
        self, key: WatermarkKey, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], fpr: float
    ) -> Score:
        """Score all (left, right) pairs, repeated ones included. Published: the z-test, which assumes independence."""
        return score_bigrams(self.subkey(key), ids, positions, self.gamma, fpr, dedup=False)
