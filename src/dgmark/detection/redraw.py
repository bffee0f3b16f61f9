"""p-values by re-drawing keys: the text stays, its tokens get random groups, and any statistic gets its true null.

The rank of the real key's statistic among those of B random keys is uniform for any text and any statistic. Knows
nothing of what the statistic is. Ours; the paper leaves the threshold of its window statistic open.
"""

import hashlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8

# exceedances of the observed value after which drawing stops (Besag and Clifford 1991)
ENOUGH = 10
FIRST_DRAWS = 63
_LARGEST_BATCH = 2048
# rounding may separate statistics that are equal; near ties count against the mark
TOLERANCE = 1e-4

# groups (rows, keys) -> one value a key, which is larger if the mark is present
Statistic = Callable[[UInt8[np.ndarray, "rows keys"]], Float[np.ndarray, " keys"]]


@dataclass(frozen=True)
class RedrawnP:
    """A p-value by rank.

    Attributes:
        p_value: exceedances / draws if drawing stopped early, else (1 + exceedances) / (1 + draws).
        draws: number of keys drawn.
        exceedances: number of these keys whose statistic is at least the observed one.
    """

    p_value: float
    draws: int
    exceedances: int


class GroupDraws:
    """A stream of random groups that depends on a text and a secret only: same text, same key, same draws.

    The stream is Philox's raw output (the same in every version of numpy), keyed by a SHA-256 of the secret and the
    text. Its domain differs from the group table's, so the draws are as good as independent of the key's groups, and
    nobody without the secret can search for a text with lucky draws.
    """

    def __init__(self, secret: bytes | None, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> None:
        header = b"dgmark/redraw/v1\0" + len(ids).to_bytes(8, "little")
        text = ids.astype("<i8").tobytes() + positions.astype("<i8").tobytes()
        seed = hashlib.sha256(header + text + (secret or b"")).digest()
        self._words = np.random.Philox(key=int.from_bytes(seed[:16], "little"))

    def groups(self, rows: int, keys: int, modulus: int) -> UInt8[np.ndarray, "rows keys"]:
        """Draw the groups of `keys` random keys, independent and uniform on 0..modulus-1 (up to a bias of 1e-8)."""
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
    """The p-value of the real key's statistic, from as few draws as are needed.

    Args:
        statistic: computes the statistic from the groups of many keys.
        observed: the real key's groups.
        draws: the source of random keys; to continue after `previous`, the same object.
        modulus: number of groups m.
        most: number of draws after which to stop in any case.
        previous: a result to continue from, if it has fewer than `ENOUGH` exceedances.
    """
    drawn, exceedances = (previous.draws, previous.exceedances) if previous else (0, 0)
    size = FIRST_DRAWS
    while drawn < most:
        size = min(size, most - drawn)
        # each batch also scores the observed key, with the same rounding
        groups = np.concatenate([observed[:, None], draws.groups(len(observed), size, modulus)], axis=1)
        values = statistic(groups)
        above = values[1:] >= values[0] - TOLERANCE
        if exceedances + np.count_nonzero(above) >= ENOUGH:
            last = int(np.flatnonzero(above)[ENOUGH - exceedances - 1])
            return RedrawnP(ENOUGH / (drawn + last + 1), drawn + last + 1, ENOUGH)
        exceedances += int(np.count_nonzero(above))
        drawn += size
        size = min(4 * (size + 1), _LARGEST_BATCH)
    return RedrawnP((1 + exceedances) / (1 + drawn), drawn, exceedances)


def draws_needed(level: float) -> int:
    """The smallest number of draws with which a p-value by rank can be at most `level`."""
    return max(1, math.ceil(1 / level) - 1)
