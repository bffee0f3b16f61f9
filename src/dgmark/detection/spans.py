"""Which stretches of a text carry the mark, with the family-wise error held over all stretches there are.

The alignment model for mixed text proposes stretches: each token stands at some phase of the mark, or outside it. Each
proposal is then tested by itself, exactly and by its e-value, and pays for every stretch that might have been tested.
So however the proposals are found, the chance to report a stretch without marked text is at most the false-positive
rate.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from dgmark.detection.alignment import Alignment, states_of
from dgmark.detection.evalue import log_e_value
from dgmark.detection.intact import IntactTest
from dgmark.detection.shares import STRETCH_INTACT, paid, paid_for_all
from dgmark.errors import SettingsError
from dgmark.watermark.groups import WatermarkSpec

# Stretches are tested at ends that are multiples of g = 1, 2, 4, ..., where they are UNITS of g long: about 11 n / g of
# them for each g, far fewer than the n^2 / 2 of all stretches.
UNITS = range(7, 18)
# tokens x hidden states of one text: about 1 GB of memory
LARGEST = 2**21


@dataclass(frozen=True)
class Stretch:
    """Scored tokens [first, last) that carry the mark; the p-value is of the part on the grid and pays for all such."""

    first: int
    last: int
    p_value: float


def check_length(spec: WatermarkSpec, scored: int) -> None:
    """Refuse a text whose spans would take more memory than a machine has.

    Raises:
        SettingsError: too many tokens for this key's number of hidden states.
    """
    most = LARGEST // (states_of(spec))
    if scored > most:
        raise SettingsError(f"spans of {scored} tokens are too many with this key: cut the text to {most} at most")


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
        grid = _grid(last - first)
        begin, end = -(-first // grid), last // grid
        if end - begin in UNITS:
            part = slice(begin * grid, end * grid)
            p = paid_for_all(_p_value(test, ids[part], positions[part]), _tested(len(ids), grid))
            if p <= fpr:
                found.append(Stretch(first, last, p))
    return found


def _grid(length: int) -> int:
    """The grid for a proposal: at least 7 whole units of it lie within."""
    return 1 << max(0, (length // (UNITS.start + 2)).bit_length() - 1)


def _tested(n: int, grid: int) -> int:
    """What a stretch on this grid pays: the stretches on it, times the number of grids."""
    return len(UNITS) * (n // grid + 1) * max(1, _grid(n).bit_length())


def _p_value(test: IntactTest, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> float:
    """The p-value of one stretch by itself: the exact test and the e-value, half of the rate each."""
    exact = min(hypothesis.p_value for hypothesis in test.hypotheses(ids, positions))
    model = Alignment.of(ids, positions, test.tables)
    winnings = log_e_value(model, model.groups(test.tables))
    from_bets = float(np.exp(min(0.0, -winnings)))
    return min(paid(exact, STRETCH_INTACT), paid(from_bets, 1 - STRETCH_INTACT))
