"""Which stretches of a text carry the mark, with the family-wise error held over all stretches there are.

The alignment model for mixed text proposes stretches: each token stands at some phase of the mark, or outside it. Each
proposal is then tested by itself, exactly and by its e-value, and pays for every stretch that might have been proposed;
so however the proposals are found, the chance to report a stretch without marked text is at most the false-positive
rate.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from dgmark.alignment import Alignment
from dgmark.evalue import log_e_value
from dgmark.intact import IntactTest
from dgmark.statistics import SMALLEST_P

# fewer tokens than this cannot reach a p-value of .01, paid for
SHORTEST = 8


@dataclass(frozen=True)
class Stretch:
    """Scored tokens [first, last) that carry the mark, with the p-value that pays for all stretches."""

    first: int
    last: int
    p_value: float


def find_stretches(
    test: IntactTest, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], fpr: float
) -> list[Stretch]:
    """The stretches of scored `ids` that carry the mark, in order; family-wise error at most `fpr`.

    Args:
        test: the exact test of the key.
        ids: scored token ids.
        positions: where they stand, counted from the first token that is there.
        fpr: chance to report any stretch that holds no marked text.
    """
    model = Alignment.of(ids, positions, test.tables)
    inside = model.posterior(model.groups(test.tables)).mixed > 0.5
    edges = np.flatnonzero(np.diff(inside, prepend=False, append=False)).tolist()
    found = []
    for first, last in list(pairwise(edges))[::2]:
        if last - first >= SHORTEST:
            p = _p_value(test, ids[first:last], positions[first:last])
            p = min(1.0, p * len(ids) * (len(ids) + 1) / 2)
            if p <= fpr:
                found.append(Stretch(first, last, p))
    return found


def _p_value(test: IntactTest, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> float:
    """The p-value of one stretch by itself: the exact test and the e-value, half of the rate each."""
    exact = min(hypothesis.p_value for hypothesis in test.hypotheses(ids, positions))
    model = Alignment.of(ids, positions, test.tables)
    winnings = log_e_value(model, model.groups(test.tables))
    return max(SMALLEST_P, 2 * min(exact, float(np.exp(min(0.0, -winnings)))))
