"""The decode side of Gumbel-max: the key's uniforms take the place of random draws."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.keyed_side import OneKeySide
from dgmark.decode.rules import Step
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.prf import BITS, HashKey, states, uniform_bits
from dgmark_lab.baselines.specs import GumbelSpec


class GumbelSide(OneKeySide):
    """The key's Gumbel noise in place of random draws; needs a temperature above 0."""

    def __init__(self, key: WatermarkKey, slots: int, device: torch.device | str) -> None:
        super().__init__(key, slots, device)
        spec = spec_as(GumbelSpec, key)
        self._noise = GumbelNoise(HashKey.of(key, "gumbel"), spec.period, spec.table_size, self.device)

    @classmethod
    def check(cls, config: DecodeConfig) -> None:
        """Refuse what takes the draw away, or the noise, too."""
        super().check(config)
        if config.greedy:
            raise SettingsError(
                "0 draws nothing, and this watermark draws by keyed noise: use more", field="temperature"
            )
        if config.noise == "fixed":
            raise SettingsError("is fixed by this watermark anyway: leave it out", field="noise")

    def noise(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The key's noise at each place."""
        return self._noise(step.window.positions[0])[step.places.column]


class GumbelNoise:
    """Gumbel noise from the key's uniforms of (position mod period, token).

    The noise of the last window is cached, since every step of a block asks for it.
    """

    def __init__(self, hash_key: HashKey, period: int, vocab: int, device: torch.device) -> None:
        self._hash_key = hash_key
        self._period = period
        self._vocabulary = torch.arange(vocab, device=device)
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, positions: Int[Tensor, " window"]) -> Float[Tensor, "window vocab"]:
        """Return -ln(-ln u) for each position and token, in double precision."""
        if self._last is None or not torch.equal(self._last[0], positions):
            state = states(self._hash_key, positions % self._period)
            bits = uniform_bits(state[:, None], self._vocabulary)
            uniform = ((bits >> 1).to(torch.float64) + 0.5) / 2 ** (BITS - 1)
            self._last = positions, -torch.log(-torch.log(uniform))
        return self._last[1]
