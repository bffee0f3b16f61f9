"""Two sets of texts over the same prompts: differences with bootstrap intervals, and the sign test.

Pairs are resampled, so that the variation between prompts cancels out. A difference is always second minus first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Float

from dgmark.errors import InputError
from dgmark_lab.evaluate.intervals import Bootstrap, Interval

# One figure per text: in the order of the texts, or by id.
Figures = Sequence[float] | np.ndarray | Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """A comparison of one figure over paired texts.

    Attributes:
        pairs: number of pairs.
        first: mean of the first set.
        second: mean of the second set.
        difference: difference of the means, second minus first.
        larger: number of pairs whose second figure is larger; pairs in neither count are ties.
        smaller: number of pairs whose second figure is smaller.
        sign_p_value: two-sided exact sign test: the probability of a split at least this uneven if both were equally
            likely. Ties are left out; 1.0 if all pairs are ties.
    """

    pairs: int
    first: Interval
    second: Interval
    difference: Interval
    larger: int
    smaller: int
    sign_p_value: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def compare_paired(
    first: Figures,
    second: Figures,
    bootstrap: Bootstrap | None = None,
) -> Comparison:
    """Compare two sets of one figure each, pair by pair.

    Args:
        first: figures in the order of the prompts, or by id.
        second: the figures of the other set. Figures by id are compared where both sets have the id.
        bootstrap: how to compute intervals.

    Raises:
        InputError: there is no pair, the sets differ in length, or a figure is not finite.
    """
    bootstrap = bootstrap or Bootstrap()
    one, two = aligned(first, second)
    larger, smaller = int((two > one).sum()), int((two < one).sum())
    return Comparison(
        pairs=len(one),
        first=bootstrap.mean(one),
        second=bootstrap.mean(two),
        difference=bootstrap.mean(two - one),
        larger=larger,
        smaller=smaller,
        sign_p_value=sign_test(larger, smaller),
    )


def aligned(first: Figures, second: Figures) -> tuple[Float[np.ndarray, " pairs"], Float[np.ndarray, " pairs"]]:
    """Return two sets as arrays, pair by pair.

    Raises:
        InputError: see `compare_paired`.
    """
    if isinstance(first, Mapping) != isinstance(second, Mapping):
        raise InputError("one set has ids and the other has none: give both as mappings, or both as sequences")
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        shared = [name for name in first if name in second]
        first, second = [first[name] for name in shared], [second[name] for name in shared]
    one, two = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if one.shape != two.shape or one.ndim != 1:
        raise InputError(f"the sets hold {len(one)} and {len(two)} figures: each pair needs one of both")
    if not len(one):
        raise InputError("the two sets share no text: compare rows with the same ids")
    if not (np.isfinite(one).all() and np.isfinite(two).all()):
        raise InputError("a figure is not finite: leave texts without a figure out of both sets")
    return one, two


def compare_ratios(
    first: tuple[Figures, Figures],
    second: tuple[Figures, Figures],
    bootstrap: Bootstrap | None = None,
) -> Interval:
    """Compute the difference of two ratios of sums over paired texts, such as nats per token; second minus first.

    Args:
        first: numerators and denominators (nats, tokens), text by text.
        second: the numerators and denominators of the other set.
        bootstrap: how to compute the interval; pairs are resampled.

    Raises:
        InputError: see `compare_paired`.
    """
    above, other_above = aligned(first[0], second[0])
    below, other_below = aligned(first[1], second[1])
    if len(above) != len(below):
        raise InputError(f"{len(above)} numerators and {len(below)} denominators: each text needs one of both")

    def difference(drawn: Any) -> Any:
        return other_above[drawn].sum(1) / other_below[drawn].sum(1) - above[drawn].sum(1) / below[drawn].sum(1)

    return (bootstrap or Bootstrap()).interval(difference, len(above))


def sign_test(larger: int, smaller: int) -> float:
    """Return the two-sided exact p-value of a split under fair coins."""
    n, extreme = larger + smaller, min(larger, smaller)
    if n == 0:
        return 1.0
    return float(min(1.0, 2 * sum(comb(n, i) for i in range(extreme + 1)) / int(2**n)))
