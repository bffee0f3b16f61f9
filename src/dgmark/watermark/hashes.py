"""Two hashes of 64-bit words: SipHash-2-4, a keyed pseudo-random function, and SplitMix64, which is not cryptographic.

Of int64 arrays, which wrap around; SplitMix64 of tensors of torch, too. The SipHash of tensors is in the decode side
(`decode/marks/siphash.py`). (Aumasson and Bernstein 2012; Steele, Lea and Flood 2014.)
"""

from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Words = TypeVar("Words", bound=Any)

# of SplitMix64, as signed 64-bit integers
STEP = 0x9E3779B97F4A7C15 - 2**64
_FIRST_FACTOR = 0xBF58476D1CE4E5B9 - 2**64
_SECOND_FACTOR = 0x94D049BB133111EB - 2**64
KEY_BYTES: Final = 16
# "somepseudorandomlygeneratedbytes"
INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
# the last block of a message of eight bytes
LENGTH = 8 << 56
# words that are hashed at once: fewer cost more each, and more do not fit a core's cache
_WORDS_AT_ONCE = 2**14
# Shifts to the left and right that rotate; numpy takes arrays faster than its own scalars or Python's.
_SHIFTS = {bits: (np.array(bits, np.uint64), np.array(64 - bits, np.uint64)) for bits in (13, 16, 17, 21, 32)}


class SipHashKey(NamedTuple):
    """The two halves of a key, as signed 64-bit integers."""

    first: int
    second: int

    @classmethod
    def of(cls, key: bytes) -> "SipHashKey":
        """The key of 16 bytes."""
        return cls(*(int.from_bytes(key[at : at + 8], "little", signed=True) for at in (0, 8)))


def siphash(words: Words, key: SipHashKey | tuple[Words, Words]) -> Words:
    """The hash of each word of an int64 array, taken as a message of eight bytes, little endian, as signed 64-bit
    integers.

    The key is that of all words, or two arrays with the halves of each word's key.
    """
    first, second = (np.asarray(half, np.int64).view(np.uint64) for half in key)  # unsigned, so that no sign moves in
    return _in_blocks(words.view(np.uint64), first, second).view(np.int64)  # type: ignore[return-value]


def _in_blocks(words: NDArray[np.uint64], first: Any, second: Any) -> NDArray[np.uint64]:
    """The hashes of an array of numpy, in blocks that stay in a core's cache."""
    hashes = np.empty(words.shape, np.uint64)
    flat, out = words.reshape(-1), hashes.reshape(-1)
    halves = [half if not half.ndim else np.broadcast_to(half, words.shape).reshape(-1) for half in (first, second)]
    for begin in range(0, len(flat), _WORDS_AT_ONCE):
        some = slice(begin, begin + _WORDS_AT_ONCE)
        own = [half[some] if half.ndim else half for half in halves]
        *last, spare = np.empty((4, len(out[some])), np.uint64)
        state = [out[some], *last]  # the first of these becomes the hashes
        for v, half, constant in zip(state, own * 2, INITIAL, strict=True):
            v[:] = half ^ np.uint64(constant)
        _hashed(spare, flat[some], *state)
    return hashes


def _hashed(spare: Any, words: Any, v0: Any, v1: Any, v2: Any, v3: Any) -> None:
    """Write the hashes of words over the first part of the state of each."""

    def rotated(words: Any, bits: int) -> Any:
        left, right = _SHIFTS[bits]
        np.left_shift(words, left, out=spare)
        np.right_shift(words, right, out=words)
        return np.bitwise_or(words, spare, out=words)

    for block, rounds in ((words, 2), (LENGTH, 2), (None, 4)):
        if block is None:
            v2 ^= 0xFF
        else:
            v3 ^= block
        for _ in range(rounds):
            v0 += v1
            v2 += v3
            v1, v3 = rotated(v1, 13), rotated(v3, 16)
            v1 ^= v0
            v3 ^= v2
            v0 = rotated(v0, 32)
            v0 += v3
            v2 += v1
            v1, v3 = rotated(v1, 17), rotated(v3, 21)
            v1 ^= v2
            v3 ^= v0
            v2 = rotated(v2, 32)
        if block is not None:
            v0 ^= block
    v0 ^= v1
    v0 ^= v2
    v0 ^= v3


def mix(words: Words) -> Words:
    """The finaliser of SplitMix64; one output of its stream is `mix(state + STEP)`."""
    words = (words ^ shifted(words, 30)) * _FIRST_FACTOR
    words = (words ^ shifted(words, 27)) * _SECOND_FACTOR
    last: Words = words ^ shifted(words, 31)
    return last


def shifted(words: Words, bits: int) -> Words:
    """A logical shift to the right: the sign does not move in."""
    moved: Words = (words >> bits) & ((1 << (64 - bits)) - 1)
    return moved
