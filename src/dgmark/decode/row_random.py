"""The random numbers of one row: another stream for each seed of 64 bits, the same on every machine.

A generator of torch on a CPU reads 32 bits of its seed. Larger seeds, and negative ones, are therefore the key of a
Philox generator of numpy.
"""

import hashlib
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float64
from torch import Tensor

from dgmark.arguments import shown
from dgmark.errors import SettingsError

_SMALL_SEEDS = 2**32


@runtime_checkable
class RowRandom(Protocol):
    """A stream of random numbers."""

    def uniforms(self, *shape: int) -> Float64[Tensor, "..."]:
        """Numbers of 53 bits in [0, 1), on the CPU."""
        ...

    def seed(self) -> int:
        """The seed of a stream of its own."""
        ...


def check_seed(seed: Any) -> int:
    """A seed, if it is one.

    Raises:
        SettingsError: the seed is no whole number of 64 bits.
    """
    if type(seed) is not int or not -(2**63) <= seed < 2**64:
        raise SettingsError(f"seed {shown(seed)} is not a whole number from -2^63 to 2^64 - 1")
    return seed


def random_of(seed: int) -> RowRandom:
    """The stream of a seed.

    Raises:
        SettingsError: the seed is no whole number of 64 bits.
    """
    check_seed(seed)
    return _Torch(seed) if 0 <= seed < _SMALL_SEEDS else _Philox(seed)


class _Torch(RowRandom):
    """The stream of a seed of 32 bits."""

    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def uniforms(self, *shape: int) -> Float64[Tensor, "..."]:
        return torch.rand(shape, generator=self._generator, dtype=torch.float64)

    def seed(self) -> int:
        """A seed of 32 bits, as many as this stream's own."""
        return int(torch.randint(2**62, (), generator=self._generator)) % _SMALL_SEEDS


class _Philox(RowRandom):
    """The stream of any other seed. numpy promises that its raw numbers never change."""

    def __init__(self, seed: int) -> None:
        key = hashlib.sha256(f"dgmark/seed/v1/{seed}".encode()).digest()[:16]
        self._bits = np.random.Philox(key=int.from_bytes(key, "little"))

    def uniforms(self, *shape: int) -> Float64[Tensor, "..."]:
        raw = np.asarray(self._bits.random_raw(shape), dtype=np.uint64)
        return torch.from_numpy((raw >> np.uint64(11)) * 2.0**-53)

    def seed(self) -> int:
        return int(self._bits.random_raw())
