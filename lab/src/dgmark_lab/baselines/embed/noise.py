"""Gumbel noise from the key's uniforms of (position mod period, token)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark_lab.baselines.prf import BITS, SubKey, states, uniform_bits


class GumbelNoise:
    """The noise of a window of positions. The last window's is cached, since every step of a block asks for it."""

    def __init__(self, subkey: SubKey, period: int, vocab: int, device: torch.device) -> None:
        self._subkey = subkey
        self._period = period
        self._every = torch.arange(vocab, device=device)
        self._last: tuple[Tensor, Tensor] | None = None

    def __call__(self, positions: Int[Tensor, " window"]) -> Float[Tensor, "window vocab"]:
        """Return -ln(-ln u) for each position and token, in double precision."""
        if self._last is None or not torch.equal(self._last[0], positions):
            state = states(self._subkey, positions % self._period)
            bits = uniform_bits(state[:, None], self._every)
            uniform = ((bits >> 1).to(torch.float64) + 0.5) / 2 ** (BITS - 1)
            self._last = positions, -torch.log(-torch.log(uniform))
        return self._last[1]
