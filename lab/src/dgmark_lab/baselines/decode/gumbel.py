"""The decode side of Gumbel-max: the key's uniforms take the place of random draws."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.keyed_side import OneKeySide
from dgmark.decode.marks.rules import Step
from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey
from dgmark.watermark.spec import spec_as
from dgmark_lab.baselines.prf import BITS, HashKey, states, uniform_bits
from dgmark_lab.baselines.specs import GumbelSpec


class GumbelSide(OneKeySide):
    """The key's Gumbel noise in place of random draws; needs a temperature above 0."""

    # the positions of the last window and their noise, which every step of a block asks for
    _last: tuple[Tensor, Tensor] | None = None

    @classmethod
    def check_config(cls, config: DecodeConfig) -> None:
        """Refuse what takes the draw away, or the noise, too."""
        super().check_config(config)
        if config.greedy:
            raise SettingsError(
                "0 draws nothing, and this watermark draws by keyed noise: use more", field="temperature"
            )
        if config.noise == "fixed":
            raise SettingsError("is fixed by this watermark anyway: leave it out", field="noise")

    def noise(self, step: Step) -> Float[Tensor, "k vocab"]:
        """The key's noise at each place."""
        positions = step.window.positions[0]
        if self._last is None or not torch.equal(self._last[0], positions):
            self._last = positions, gumbel_noise(self.key, positions)
        return self._last[1][step.places.column]


def gumbel_noise(key: WatermarkKey, positions: Int[Tensor, " window"]) -> Float[Tensor, "window vocab"]:
    """-ln(-ln u) for each position and token, with the key's uniforms of (position mod period, token), in float64."""
    spec = spec_as(GumbelSpec, key)
    state = states(HashKey.of(key, "gumbel"), positions % spec.period)
    bits = uniform_bits(state[:, None], torch.arange(spec.table_size, device=positions.device))
    uniform = ((bits >> 1).to(torch.float64) + 0.5) / 2 ** (BITS - 1)
    return -torch.log(-torch.log(uniform))
