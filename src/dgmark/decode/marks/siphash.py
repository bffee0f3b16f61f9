"""SipHash-2-4 of tensors; Triton compiles its rounds, too.

`watermark.hashes.siphash` defines the hash, and is the test of this one.
"""

from typing import Any

from torch import Tensor

from dgmark.watermark.hashes import INITIAL, LENGTH


def siphash_of_tensors(words: Tensor, key: tuple[Tensor, Tensor]) -> Tensor:
    """The hash of each word, under one key for all or one for each word."""
    v0, v1, v2, v3 = (half ^ constant for half, constant in zip(key * 2, INITIAL, strict=True))
    hashes: Tensor = siphash_rounds(words, v0, v1, v2, v3, LENGTH)
    return hashes


def siphash_rounds(words: "Any", v0: "Any", v1: "Any", v2: "Any", v3: "Any", length: "Any") -> "Any":
    """The hashes of words, from the four parts of the state, all signed. Triton sees no imports."""
    for part in range(4):  # of two rounds each: the word, its length, and twice the end
        block = words * (part == 0) + length * (part == 1)
        v3 = v3 ^ block
        v2 = v2 ^ 0xFF * (part == 2)
        for _ in range(2):
            v0 = v0 + v1
            v2 = v2 + v3
            v1 = (v1 << 13 | v1 >> 51 & 0x1FFF) ^ v0
            v3 = (v3 << 16 | v3 >> 48 & 0xFFFF) ^ v2
            v0 = (v0 << 32 | v0 >> 32 & 0xFFFFFFFF) + v3
            v2 = v2 + v1
            v3 = (v3 << 21 | v3 >> 43 & 0x1FFFFF) ^ v0
            v1 = (v1 << 17 | v1 >> 47 & 0x1FFFF) ^ v2
            v2 = v2 << 32 | v2 >> 32 & 0xFFFFFFFF
        v0 = v0 ^ block
    return v0 ^ v1 ^ v2 ^ v3
