"""p-values by re-drawing keys: the text stays, its tokens get random groups, and any statistic has its true null.

The rank of the real key's statistic among those of B random keys is uniform whatever the text and the statistic. Knows
nothing of what the statistic is.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8

# draws that reach the observed value after which no more are drawn (Besag and Clifford 1991)
ENOUGH = 10
FIRST_DRAWS = 63
_LARGEST_BATCH = 2048
# statistics of equal keys may differ by rounding; near ties count against the mark
TOLERANCE = 1e-4

# (rows, keys) groups -> one value a key; the mark makes it larger
Statistic = Callable[[UInt8[np.ndarray, "rows keys"]], Float[np.ndarray, " keys"]]


@dataclass(frozen=True)
class RedrawnP:
    """A p-value by rank.

    Attributes:
        p_value: reached / draws if drawing stopped early, else (1 + reached) / (1 + draws).
        draws: keys drawn.
        reached: those whose statistic is at least the observed one.
    """

    p_value: float
    draws: int
    reached: int


class GroupDraws:
    """A stream of random groups that depends on a text and a secret only: same text, same key, same draws.

    The stream is Philox's raw output (the same in every version of numpy) under a SHA-256 of the secret and the text,
    apart from the group table's domain: the draws are as good as independent of the key's groups, and nobody without
    the secret can look for a text whose draws are lucky.
    """

    def __init__(self, secret: bytes | None, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> None:
        header = b"dgmark/redraw/v1\0" + len(ids).to_bytes(8, "little")
        text = ids.astype("<i8").tobytes() + positions.astype("<i8").tobytes()
        seed = hashlib.sha256(header + text + (secret or b"")).digest()
        self._words = np.random.Philox(key=int.from_bytes(seed[:16], "little"))

    def groups(self, rows: int, keys: int, modulus: int) -> UInt8[np.ndarray, "rows keys"]:
        """Groups of `keys` random keys, independent and uniform on 0..modulus-1 (up to a bias of 1e-8)."""
        count = rows * keys
        if modulus == 2:
            octets = self._words.random_raw(-(-count // 64)).astype("<u8").view(np.uint8)
            return np.unpackbits(octets, count=count).reshape(rows, keys)
        halves = self._words.random_raw(-(-count // 2)).astype("<u8").view("<u4")[:count].astype(np.uint64)
        return (halves * np.uint64(modulus) >> np.uint64(32)).astype(np.uint8).reshape(rows, keys)


def redrawn_p(
    statistic: Statistic,
    observed: UInt8[np.ndarray, " rows"],
    draws: GroupDraws,
    modulus: int,
    *,
    most: int,
    previous: RedrawnP | None = None,
) -> RedrawnP:
    """The p-value of the real key's statistic, with as few draws as tell.

    Args:
        statistic: of many keys' groups.
        observed: the real key's groups.
        draws: where random keys come from; to go on after `previous`, the same object.
        modulus: m.
        most: draws after which to stop in any case.
        previous: the result to go on from, if it did not stop for having reached enough.
    """
    drawn, reached = (previous.draws, previous.reached) if previous else (0, 0)
    size = FIRST_DRAWS
    while drawn < most:
        size = min(size, most - drawn)
        # the observed key is scored in each batch, beside the others and with the same rounding
        groups = np.concatenate([observed[:, None], draws.groups(len(observed), size, modulus)], axis=1)
        values = statistic(groups)
        above = values[1:] >= values[0] - TOLERANCE
        if reached + np.count_nonzero(above) >= ENOUGH:
            last = int(np.flatnonzero(above)[ENOUGH - reached - 1])
            return RedrawnP(ENOUGH / (drawn + last + 1), drawn + last + 1, ENOUGH)
        reached += int(np.count_nonzero(above))
        drawn += size
        size = min(4 * (size + 1), _LARGEST_BATCH)
    return RedrawnP((1 + reached) / (1 + drawn), drawn, reached)


def draws_needed(level: float) -> int:
    """Fewest draws with which a p-value by rank can be at most `level`."""
    return max(1, math.ceil(1 / level) - 1)
