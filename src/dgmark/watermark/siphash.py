"""SipHash-2-4 (Aumasson and Bernstein 2012) of single 64-bit words: a keyed pseudo-random function.

The same code and bits for int64 arrays of numpy and tensors of torch with at least one axis, which wrap around. It has
no branches, so it may stand in a CUDA graph.
"""

from typing import Final, NamedTuple

from dgmark.watermark.splitmix64 import Words, shifted

KEY_BYTES: Final = 16
_WORD = 2**64
# "somepseudorandomlygeneratedbytes"
_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
# the last block of a message of eight bytes
_LENGTH = 8 << 56


class SipHashKey(NamedTuple):
    """The two halves of a key, as signed 64-bit integers."""

    first: int
    second: int

    @classmethod
    def of(cls, key: bytes) -> "SipHashKey":
        """The key of 16 bytes."""
        return cls(*(int.from_bytes(key[at : at + 8], "little", signed=True) for at in (0, 8)))


def siphash(words: Words, key: SipHashKey | tuple[Words, Words]) -> Words:
    """The hash of each word, taken as a message of eight bytes, little endian.

    Args:
        words: int64 array or tensor.
        key: the key of all words, or two arrays with the halves of each word's key.

    Returns:
        The hashes, as signed 64-bit integers.
    """
    first, second = key
    halves = zip((first, second, first, second), _INITIAL, strict=True)
    v0, v1, v2, v3 = (words * 0 + (half ^ _signed(constant)) for half, constant in halves)
    for block, rounds in ((words, 2), (_LENGTH, 2), (None, 4)):
        if block is None:
            v2 = v2 ^ 0xFF
        else:
            v3 = v3 ^ block
        for _ in range(rounds):
            v0, v1, v2, v3 = _round(v0, v1, v2, v3)
        if block is not None:
            v0 = v0 ^ block
    hashed: Words = v0 ^ v1 ^ v2 ^ v3
    return hashed


def _round(v0: Words, v1: Words, v2: Words, v3: Words) -> tuple[Words, Words, Words, Words]:
    v0, v2 = v0 + v1, v2 + v3
    v1, v3 = _rotated(v1, 13) ^ v0, _rotated(v3, 16) ^ v2
    v0, v2 = _rotated(v0, 32) + v3, v2 + v1
    v1, v3 = _rotated(v1, 17) ^ v2, _rotated(v3, 21) ^ v0
    return v0, v1, _rotated(v2, 32), v3


def _rotated(words: Words, bits: int) -> Words:
    turned: Words = (words << bits) | shifted(words, 64 - bits)
    return turned


def _signed(word: int) -> int:
    return word - _WORD if word >= _WORD // 2 else word
