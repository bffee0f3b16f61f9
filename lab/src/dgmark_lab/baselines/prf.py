"""The keyed integer hash of the baselines: one code for numpy arrays and torch tensors, so both give the same bits.

Each baseline's hash key comes from the key's secret by SHAKE-256; the hash of (context, token) is splitmix64's stream
from a state that depends on the context and the hash key. It is fast and mixes well, but is not cryptographic: whoever
sees many outputs might find the hash key (never the secret). dgMARK's own groups do not use it.
"""

import hashlib
from dataclasses import dataclass

from dgmark.watermark.hashes import STEP, Words, mix, shifted
from dgmark.watermark.key import WatermarkKey

PRF_VERSION = "splitmix64-v1"

BITS = 53


@dataclass(frozen=True, repr=False)
class HashKey:
    """The two secret 64-bit words of one baseline."""

    first: int
    second: int

    @classmethod
    def of(cls, key: WatermarkKey, domain: str) -> "HashKey":
        """Derive the hash key of a key for one domain: the rule's name, and a use if the rule needs several."""
        assert key.secret is not None  # keys of published watermarks have one
        message = b"dgmark/baseline/" + PRF_VERSION.encode() + b"\0" + domain.encode() + b"\0" + key.secret
        digest = hashlib.shake_256(message).digest(16)
        first, second = (int.from_bytes(half, "little", signed=True) for half in (digest[:8], digest[8:]))
        return cls(first, second)


def states(hash_key: HashKey, contexts: Words) -> Words:
    """Return the hash state of each context."""
    state: Words = mix(mix(contexts + hash_key.first) ^ hash_key.second)
    return state


def uniform_bits(state: Words, tokens: Words) -> Words:
    """Return 53 bits, uniform on 0..2**53 - 1 over keys, for each (context's state, token); broadcasts."""
    bits: Words = shifted(mix(state + (tokens + 1) * STEP), 64 - BITS)
    return bits


def threshold(share: float) -> int:
    """The bound below which a given share of `uniform_bits` falls."""
    return round(share * float(2**BITS))
