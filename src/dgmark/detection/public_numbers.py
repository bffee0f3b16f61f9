"""Random numbers by a public rule: every text has its own, the same for every key and on every machine.

The stream is Philox's raw output (the same in every version of numpy), keyed by a SHA-256 of a purpose, the token ids
and their positions. So whoever checks a p-value draws the same keys. Knows nothing of what is drawn.
"""

import hashlib
import math

import numpy as np
from jaxtyping import Float32, Int, UInt8


class PublicNumbers:
    """A stream of random numbers that depends on a text and a purpose only."""

    def __init__(
        self,
        purpose: str,
        ids: Int[np.ndarray, " n"],
        positions: Int[np.ndarray, " n"],
        secret: bytes | None = None,
    ) -> None:
        """Begin the stream.

        Args:
            purpose: what the numbers are for; two purposes have independent streams.
            ids: the scored token ids.
            positions: their positions.
            secret: more to key the stream with, for numbers that are not public.
        """
        header = f"dgmark/{purpose}".encode() + b"\0" + len(ids).to_bytes(8, "little")
        text = ids.astype("<i8").tobytes() + positions.astype("<i8").tobytes()
        seed = hashlib.sha256(header + text + (secret or b"")).digest()
        self._words = np.random.Philox(key=int.from_bytes(seed[:16], "little"))

    def groups(self, rows: int, keys: int, modulus: int) -> UInt8[np.ndarray, "rows keys"]:
        """Draw the groups of `keys` random keys, independent and uniform on 0..modulus-1 (up to a bias of 1e-8)."""
        count = rows * keys
        if modulus == 2:
            octets = self._words.random_raw(-(-count // 64)).astype("<u8").view(np.uint8)
            return np.unpackbits(octets, count=count).reshape(rows, keys)
        halves = self._halves(count).astype(np.uint64)
        return (halves * np.uint64(modulus) >> np.uint64(32)).astype(np.uint8).reshape(rows, keys)

    def uniform(self, *shape: int) -> Float32[np.ndarray, "..."]:
        """Draw multiples of 2^-24 from [0, 1)."""
        halves = self._halves(math.prod(shape))
        return ((halves >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)).reshape(shape)

    def _halves(self, count: int) -> np.ndarray:
        return np.asarray(self._words.random_raw(-(-count // 2)).astype("<u8").view("<u4")[:count])
