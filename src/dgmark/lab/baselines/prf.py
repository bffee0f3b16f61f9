"""The keyed integer hash of the baselines: the same lines for numpy arrays and torch tensors, so the same bits.

Subkeys come from the key's secret by SHAKE-256, one a scheme; the hash of (context, token) is splitmix64's stream of a
state that the context and the subkey give. Fast and well mixed, and no cryptographic function: whoever sees many
outputs might find the subkey (never the secret). Fit for comparing schemes; dgMARK's own groups use none of this.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, TypeVar

from dgmark.errors import SettingsError
from dgmark.watermark.key import WatermarkKey

PRF_VERSION = "splitmix64-v1"

# an int64 array of numpy or tensor of torch with at least one axis: both wrap around, scalars of numpy would warn
Words = TypeVar("Words", bound=Any)

_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64
BITS = 53


@dataclass(frozen=True, repr=False)
class SubKey:
    """Two secret words of one scheme."""

    first: int
    second: int

    @classmethod
    def of(cls, key: WatermarkKey, domain: str) -> "SubKey":
        """The subkey of a key for one use.

        Raises:
            SettingsError: the key has no secret.
        """
        if key.secret is None:
            raise SettingsError(
                f"key {key.fingerprint} is keyless (token-id), and scheme {domain.partition('/')[0]} needs a secret: "
                "make a keyed one with `dgmark keygen`"
            )
        message = b"dgmark/baseline/" + PRF_VERSION.encode() + b"\0" + domain.encode() + b"\0" + key.secret
        digest = hashlib.shake_256(message).digest(16)
        first, second = (int.from_bytes(half, "little", signed=True) for half in (digest[:8], digest[8:]))
        return cls(first, second)


def mixed(words: Words) -> Words:
    """splitmix64's finaliser of int64 words, in int64 that wraps around (logical shifts)."""
    words = (words ^ ((words >> 30) & (2**34 - 1))) * _FIRST
    words = (words ^ ((words >> 27) & (2**37 - 1))) * _SECOND
    last: Words = words ^ ((words >> 31) & (2**33 - 1))
    return last


def states(subkey: SubKey, contexts: Words) -> Words:
    """The hash state of each context."""
    state: Words = mixed(mixed(contexts + subkey.first) ^ subkey.second)
    return state


def uniform_bits(state: Words, tokens: Words) -> Words:
    """53 bits, uniform on 0..2**53 - 1 over keys, of each (context's state, token); broadcasts."""
    bits: Words = (mixed(state + (tokens + 1) * _GOLDEN) >> (64 - BITS)) & (2**BITS - 1)
    return bits


def threshold(share: float) -> int:
    """`uniform_bits` below this are green: a share of all."""
    return round(share * float(2**BITS))
