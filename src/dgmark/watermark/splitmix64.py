"""SplitMix64 (Steele, Lea and Flood 2014): a fast hash of 64-bit integers, which is not cryptographic.

The same code and bits for int64 arrays of numpy and tensors of torch with at least one axis, which wrap around.
"""

from typing import Any, TypeVar

Words = TypeVar("Words", bound=Any)

# the constants as signed 64-bit integers
STEP = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def mix(words: Words) -> Words:
    """The finaliser of SplitMix64; one output of its stream is `mix(state + STEP)`."""
    words = (words ^ shifted(words, 30)) * _FIRST
    words = (words ^ shifted(words, 27)) * _SECOND
    last: Words = words ^ shifted(words, 31)
    return last


def shifted(words: Words, bits: int) -> Words:
    """A logical shift to the right: the sign does not move in."""
    moved: Words = (words >> bits) & ((1 << (64 - bits)) - 1)
    return moved
