"""How small a p-value by re-drawn keys would be, where drawing keys would take too long: multilevel splitting.

An estimate with a standard error, never a bound: verdicts do not rest on it. Populations of random keys climb towards
the observed statistic: the lower half of a population gives way to copies of the upper half, which then move by
re-drawing some of their groups at random, accepted where the statistic stays above the level (the groups are uniform,
so nothing needs weights). Cérou and Guyader 2007.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, UInt8

from dgmark.redraw import TOLERANCE, GroupDraws, Statistic

_MOVES = 12
_SHARES = (0.5, 0.2, 0.08, 0.03)


@dataclass(frozen=True)
class TailEstimate:
    """An estimated tail probability.

    Attributes:
        p: mean over independent runs.
        standard_error: of that mean.
        runs: how many there were.
    """

    p: float
    standard_error: float
    runs: int


def splitting_tail(
    statistic: Statistic,
    observed: UInt8[np.ndarray, " rows"],
    draws: GroupDraws,
    modulus: int,
    *,
    population: int = 400,
    runs: int = 5,
    smallest: float = 1e-15,
) -> TailEstimate:
    """Estimate P(statistic >= observed) over random keys.

    Args:
        statistic: of many keys' groups.
        observed: the real key's groups.
        draws: where random groups and moves come from.
        modulus: m.
        population: keys in each run.
        runs: independent runs, at least 2; their spread gives the standard error.
        smallest: where to give up and report this.
    """
    target = float(statistic(observed[:, None])[0]) - TOLERANCE
    shape = (len(observed), population)
    rng = np.random.default_rng(int(draws.groups(1, 64, 2)[0] @ (1 << np.arange(64, dtype=np.uint64))))
    estimates = np.array([_climb(statistic, target, shape, modulus, smallest, rng) for _ in range(runs)])
    return TailEstimate(float(estimates.mean()), float(estimates.std(ddof=1) / np.sqrt(runs)), runs)


def _climb(
    statistic: Statistic,
    target: float,
    shape: tuple[int, int],
    modulus: int,
    smallest: float,
    rng: np.random.Generator,
) -> float:
    """One run: the product of the shares that survived each level."""
    groups = rng.integers(0, modulus, shape, dtype=np.uint8)
    values = statistic(groups)
    p = 1.0
    while p > smallest:
        level = min(float(np.median(values)), target)
        alive = np.flatnonzero(values >= level)
        if level < target and values.min() >= level:  # ties fill the population: go just above them
            alive = np.flatnonzero(values > level)
            level = float(values[alive].min()) if len(alive) else level
        if not len(alive):
            return 0.0
        p *= len(alive) / shape[1]
        if level >= target:
            return p
        parents = rng.choice(alive, shape[1])
        groups, values = _move(statistic, groups[:, parents], values[parents], level, modulus, rng)
    return smallest


def _move(
    statistic: Statistic,
    groups: UInt8[np.ndarray, "rows keys"],
    values: Float[np.ndarray, " keys"],
    level: float,
    modulus: int,
    rng: np.random.Generator,
) -> tuple[UInt8[np.ndarray, "rows keys"], Float[np.ndarray, " keys"]]:
    """Re-draw some groups of each key, several times, where the statistic stays at or above `level`."""
    for step in range(_MOVES):
        share = _SHARES[step % len(_SHARES)]
        fresh = rng.integers(0, modulus, groups.shape, dtype=np.uint8)
        proposed = np.where(rng.random(groups.shape) < share, fresh, groups)
        found = statistic(proposed)
        taken = found >= level
        groups = np.where(taken, proposed, groups)
        values = np.where(taken, found, values)
    return groups, values
