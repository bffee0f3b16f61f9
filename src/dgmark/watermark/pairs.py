"""The groups of a key with 2^24 or 2^32 sub-keys: each is a pair of numbers, one for each of two classes of tokens.

A keyed hash of its id puts each token into a class, whatever its position, so no edit moves it to the other. Its group
is the one that the number of its class gives it as a sub-key (`subkeys.py`). So a detector ranks the numbers of one
class at a time, and not all pairs. Knows nothing of who draws the sub-key of a text. Ours.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from math import isqrt

import numpy as np
from jaxtyping import Int, UInt8

from dgmark.watermark.subkeys import PAIR_PRF, Subkeys, domain, squeezes


@dataclass(eq=False)
class PairedSubkeys(Subkeys):
    """The groups of all sub-keys of one key whose sub-keys are pairs: `low + high * numbers`, for class 0 and 1."""

    @property
    def numbers(self) -> int:
        """How many numbers each class has."""
        return isqrt(self.spec.subkeys)

    @cached_property
    def single(self) -> Subkeys:
        """The groups of every token under each number, whatever its class."""
        return Subkeys(replace(self.spec, subkeys=self.numbers), self.secret)

    def classes(self, ids: Int[np.ndarray, " n"]) -> UInt8[np.ndarray, " n"]:
        """The class of each token, 0 or 1: the lowest bit of a squeeze over its id; repeat none."""
        classes: UInt8[np.ndarray, " n"] = squeezes(domain("class", PAIR_PRF), ids, self.secret, 1)[:, 0] & 1
        return classes

    def places(self, ids: Int[np.ndarray, " n"]) -> list[Int[np.ndarray, " _"]]:
        """The places of the tokens of each class."""
        distinct, row = np.unique(ids, return_inverse=True)
        classes = self.classes(distinct)[row]
        return [np.flatnonzero(classes == of_class) for of_class in (0, 1)]

    def halves(self, subkeys: Int[np.ndarray, " n"]) -> tuple[Int[np.ndarray, " n"], Int[np.ndarray, " n"]]:
        """The numbers of each class."""
        high, low = np.divmod(subkeys, self.numbers)
        return low, high

    def sharing(self, subkey: int, subkeys: Int[np.ndarray, " n"]) -> Int[np.ndarray, " some"]:
        """Those of some sub-keys that share a number with one of them."""
        low, high = self.halves(subkeys)
        own_high, own_low = divmod(subkey, self.numbers)
        sharing: Int[np.ndarray, " some"] = subkeys[(low == own_low) | (high == own_high)]
        return sharing

    def _made(self, subkey: int, segment: int) -> UInt8[np.ndarray, " vocab"]:
        high, low = divmod(subkey, self.numbers)
        columns = self.single.column(low, segment), self.single.column(high, segment)
        return np.where(self._all_classes == 0, *columns)

    def _squeezed(self, ids: Int[np.ndarray, " n"], subkey: int, segment: int) -> UInt8[np.ndarray, " n"]:
        groups = np.empty(len(ids), dtype=np.uint8)
        for at, number in zip(self.places(ids), reversed(divmod(subkey, self.numbers)), strict=True):
            groups[at] = self.single.groups(ids[at], number, segment)
        return groups

    @cached_property
    def _all_classes(self) -> UInt8[np.ndarray, " vocab"]:
        return self.classes(np.arange(self.spec.table_size))
