"""p-values by re-drawing keys: the text stays, its tokens get random groups, and any statistic gets its true null.

The rank of the real key's statistic among those of B random keys is uniform for any text and any statistic. Knows
nothing of what the statistic is. Ours; the paper leaves the threshold of its window statistic open.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from dgmark.detection.importance_sampling import DeterministicDraws

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


def redrawn_p(
    statistic: Statistic,
    observed: UInt8[np.ndarray, " rows"],
    draws: DeterministicDraws,
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
