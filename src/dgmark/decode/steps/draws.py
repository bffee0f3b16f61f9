"""The random numbers of draws: each follows from a row's seed, the number of a forward, and a place alone.

No generator keeps a state, so that the numbers are computed where the logits are, and are the same on every device, in
any batch. A number takes one mix of SplitMix64: two products and three shifts of int64, which torch computes alike on
every device. Philox, the usual generator of this kind, takes ten rounds of two products for two numbers; neither is
meant to hide anything. Knows no model and no watermark.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.arguments.checks import shown, whole
from dgmark.errors import SettingsError
from dgmark.watermark.hashes import STEP, mix, shifted

_MANTISSA = 53
# the number of a forward that none has: kept noise is drawn under it
_NO_FORWARD = -1
# how many forwards the numbers are made for at once, and how many numbers
_MOST_CALLS, _MOST_NUMBERS = 32, 2**20


def check_seed(seed: Any) -> int:
    """A seed as a plain number; anything but a whole number of 64 bits is a SettingsError."""
    with suppress(SettingsError):
        if -(2**63) <= (number := whole("seed", seed)) < 2**64:
            return number
    raise SettingsError(f"seed {shown(seed)} is not a whole number from -2^63 to 2^64 - 1")


def seeds_within(seed: int) -> Iterator[int]:
    """Seeds of 64 bits for the parts of what one seed decides, one after the other."""
    return (_hashed(f"{seed}/{number}") for number in count())


def _word_of(seed: int) -> int:
    """64 bits as a signed number: those of the seed, or of its hash if it is negative, so that -1 is not 2^64 - 1."""
    word = seed if seed >= 0 else _hashed(str(seed))
    return (word + 2**63) % 2**64 - 2**63


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(f"dgmark/seed/v1/{text}".encode()).digest()[:8], "little")


def uniform_draws(
    seeds: Int[Tensor, " batch"], steps: Int[Tensor, " batch"], positions: Int[Tensor, "batch block"]
) -> Float[Tensor, "batch block 2"]:
    """Two numbers in [0, 1) for each place, which follow from seed, step and position alone.

    Every rank of a tensor-parallel engine computes the same ones, and neither batch nor device changes them.

    Args:
        seeds: 64 random bits for each row.
        steps: the number of forwards that the row has had, or any other number that never repeats at a position.
        positions: the places' positions.
    """
    return _numbers(_streams(_mixed(seeds), steps)[:, None, None], _pairs(positions))


def _pairs(positions: Int[Tensor, "*places"]) -> Int[Tensor, "*places 2"]:
    """Two numbers for each place, mixed."""
    return _mixed(2 * positions[..., None] + torch.arange(2, device=positions.device))


def _streams(seeds: Tensor, steps: Tensor | int) -> Tensor:
    """What the numbers of a forward have in common, from mixed seeds."""
    return _mixed(seeds + steps)


def _numbers(streams: Tensor, places: Tensor) -> Float[Tensor, "*places"]:
    """A number in [0, 1) for each mixed place."""
    return shifted(_mixed(streams + places), 64 - _MANTISSA).to(torch.float64).mul_(2.0**-_MANTISSA)


def _mixed(state: Tensor) -> Tensor:
    """One output of SplitMix64 for each state."""
    return mix(state + STEP)


class Draws:
    """The draws of one decode: the n-th forward of a row has the numbers of `uniform_draws` for its seed and step n.

    The numbers of a window are made for several forwards at once, in as many operations as those of one.

    Args:
        seeds: one for each row, of those that `check_seed` lets through.
        positions: the position of each place of the region, on the device of the draws.
        canvases: how many canvases a row has at most in one forward.
    """

    def __init__(self, seeds: Sequence[int], positions: Int[Tensor, " region"], canvases: int = 1) -> None:
        self._positions, self._canvases = positions, canvases
        self._seeds = _mixed(torch.tensor([_word_of(seed) for seed in seeds], dtype=torch.long).to(positions.device))
        self._places = _pairs(positions)
        self._forwards = torch.zeros_like(self._seeds)
        # the window whose numbers are known, for how many more calls, and (rows, forwards, width, 2) of them; and how
        # many of these forwards each row has had
        self._window, self._calls, self._known = (0, 0), 0, torch.zeros(0)
        self._had = torch.zeros_like(self._seeds)
        self._ones = torch.ones_like(self._seeds).repeat(canvases)

    def uniforms(self, rows: Int[Tensor, " canvases"], low: int, width: int) -> Float[Tensor, "canvases width 2"]:
        """Two numbers in [0, 1) for each place of a window of several canvases; each canvas counts as a forward.

        Args:
            rows: the row that each canvas comes from, ascending.
            low: the window's first place in the region.
            width: the number of its places.
        """
        if not self._calls or self._window != (low, width):
            self._look_ahead(low, width)
        self._calls -= 1
        had = self._had[rows]
        if self._canvases > 1:  # and the earlier canvases of the same row: 0 0 1 2 for the rows 4 7 7 7
            had = had + (torch.arange(len(rows), device=rows.device) - torch.searchsorted(rows, rows))
        self._had.index_add_(0, rows, self._ones[: len(rows)])
        return self._known[rows, had]

    def _look_ahead(self, low: int, width: int) -> None:
        """Make the numbers of a window for the next forwards of each row."""
        each = 2 * width * self._canvases * len(self._seeds)
        self._window, self._calls = (low, width), max(1, min(_MOST_CALLS, _MOST_NUMBERS // max(1, each)))
        self._forwards += self._had
        self._had.zero_()
        steps = self._forwards[:, None] + torch.arange(self._calls * self._canvases, device=self._seeds.device)
        streams = _streams(self._seeds[:, None], steps)
        self._known = _numbers(streams[:, :, None, None], self._places[low : low + width])

    def gumbel(self, row: Int[Tensor, ""], low: int, width: int, vocab: int) -> Float[Tensor, "width vocab"]:
        """Gumbel noise of one row for each token at each place of a window: the same whenever it is asked for."""
        tokens = torch.arange(vocab, device=row.device)
        places = _mixed(self._positions[low : low + width, None] * vocab + tokens)
        uniforms = _numbers(_streams(self._seeds[row], _NO_FORWARD), places)
        return uniforms.log_().neg_().log_().neg_().to(torch.float32)
