"""The expected-green-list watermark for diffusion models (Gloaguen, Staab, Jovanović, Vechev 2025)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, get_args

import numpy as np
from jaxtyping import Int

from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark_lab.baselines.baseline import Baseline
from dgmark_lab.baselines.green import Pairs, binomial_p, check_delta, check_gamma, is_green, score_pairs
from dgmark_lab.baselines.prf import states, uniform_bits
from dgmark_lab.baselines.score import Score

if TYPE_CHECKING:
    from dgmark.decode.steering import Steering
    from dgmark.models.denoiser import Denoiser

HashName = Literal["sum", "min"]
FARTHEST = 16


@dataclass(frozen=True)
class Gloaguen(Baseline):
    """KGW in expectation over the neighbours that are still masked: the energy's gradient tilts the logits.

    Attributes:
        gamma: share of green tokens.
        delta: strength of the tilt; with enforce_kl, the divergence KL(q || p) in nats.
        offsets: the neighbours whose tokens make the context.
        hash: how a context is hashed: "sum" of its tokens, or "min" of their ranks in a keyed order (SumHash, MinHash).
        top_k: how many tokens and how many contexts of a position the expectation runs over.
        boost: whether a position prefers tokens that its expected context makes green (the expectation boost).
        predict: whether a position prefers tokens that make its neighbours green (the predictive bias).
        enforce_kl: tilt every position until the divergence is `delta`, instead of by delta / (offsets + 1).
    """

    gamma: float = 0.5
    delta: float = 2.0
    offsets: tuple[int, ...] = (-1,)
    hash: HashName = "sum"
    top_k: int = 50
    boost: bool = True
    predict: bool = True
    enforce_kl: bool = False

    name: ClassVar[str] = "gloaguen"

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        check_delta(self.delta)
        if not self.offsets or len(set(self.offsets)) < len(self.offsets):
            raise SettingsError(f"offsets {self.offsets} are not distinct neighbours; give some, such as -1 or -1,1")
        if 0 in self.offsets or max(map(abs, self.offsets)) > FARTHEST:
            raise SettingsError(f"offsets {self.offsets} must be neighbours at most {FARTHEST} away, and not 0")
        if self.hash not in get_args(HashName):
            raise SettingsError(f"hash {self.hash!r} is not one of: {', '.join(get_args(HashName))}")
        if self.top_k < 1:
            raise SettingsError(f"top-k {self.top_k} leaves no token; give at least 1")
        if not (self.boost or self.predict):
            raise SettingsError("boost and predict are both off, so there is no mark; switch on at least one")

    def steering(self, key: WatermarkKey, model: "Denoiser") -> "Steering":
        """A tilt by the energy's gradient; see `embed.energy`."""
        import torch

        from dgmark.decode.steering import Steering
        from dgmark.models.denoiser import traits_of
        from dgmark_lab.baselines.embed.energy import Energy, EnergyBias

        ranks = torch.from_numpy(self.ranks(key, model.vocab_size)) if self.hash == "min" else None
        energy = Energy(
            subkey=self.subkey(key),
            gamma=self.gamma,
            offsets=self.offsets,
            ranks=ranks.to(traits_of(model).device) if ranks is not None else None,
            top_k=self.top_k,
            boost=self.boost,
            predict=self.predict,
        )
        return Steering(bias=EnergyBias(energy, self.delta, self.enforce_kl))

    def ranks(self, key: WatermarkKey, vocab: int) -> Int[np.ndarray, " vocab"]:
        """Return each token's rank in MinHash's keyed order."""
        bits = uniform_bits(states(self.subkey(key, "order"), np.zeros(1, dtype=np.int64)), np.arange(vocab))
        ranks = np.empty(vocab, dtype=np.int64)
        ranks[np.argsort(bits, kind="stable")] = np.arange(vocab)
        return ranks

    def score(
        self, key: WatermarkKey, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], fpr: float
    ) -> Score:
        """Score the distinct (context's hash, token) pairs. Published: the exact binomial test on them."""
        placed = np.full(int(positions.max(initial=0)) + 1 + 2 * FARTHEST, -1)
        placed[positions + FARTHEST] = ids
        around = np.stack([placed[positions + FARTHEST + offset] for offset in self.offsets])
        complete = (around >= 0).all(axis=0)
        around = around[:, complete]
        if self.hash == "min":
            around = self.ranks(key, key.spec.table_size)[around]
        hashes = around.min(axis=0, initial=2**31) if self.hash == "min" else around.sum(axis=0)
        pairs = Pairs.of(hashes, ids[complete], dedup=True)
        green = is_green(self.subkey(key), pairs.contexts, pairs.tokens, self.gamma)
        return score_pairs(pairs, green, self.gamma, fpr, binomial_p(self.gamma))
