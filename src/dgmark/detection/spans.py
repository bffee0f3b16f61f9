"""Which stretches of a text carry the mark, with the family-wise error controlled over all stretches.

The alignment model for mixed text proposes stretches: each token is at some phase of the mark, or outside it. Each
proposal is then tested by itself, exactly and by its e-value, and pays for every stretch that might have been tested.
So whatever the proposals, the chance to report a stretch without marked text is at most the false-positive rate. Knows
tokens and their positions only. Ours; the paper tests whole texts.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Int

from dgmark.detection.alignment import Alignment, states_of
from dgmark.detection.evalue import log_e_value
from dgmark.detection.intact import IntactTest
from dgmark.detection.shares import STRETCH_INTACT, adjusted_p, bonferroni_p
from dgmark.errors import SettingsError
from dgmark.watermark.groups import WatermarkSpec

# A tested stretch begins and ends at multiples of a grid g = 1, 2, 4, ... and is UNITS of g long. These are about
# 11 n / g stretches for each g, far fewer than the n^2 / 2 of all stretches.
UNITS = range(7, 18)
# tokens x hidden states of one text: about 1 GB of memory
LARGEST = 2**21


@dataclass(frozen=True)
class Stretch:
    """Scored tokens [first, last) that carry the mark.

    The p-value tests the part on the grid and pays for all stretches.
    """

    first: int
    last: int
    p_value: float


def check_length(spec: WatermarkSpec, scored: int) -> None:
    """Refuse a text whose spans would need too much memory.

    Raises:
        SettingsError: the text has too many tokens for this key's number of hidden states.
    """
    most = LARGEST // states_of(spec)
    if scored > most:
        raise SettingsError(
            f"{scored} tokens are too many to find spans with this key: cut the text to {most} tokens at most"
        )


def find_stretches(
    test: IntactTest, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], fpr: float
) -> list[Stretch]:
    """Find the stretches of scored `ids` that carry the mark, in order; the family-wise error is at most `fpr`.

    Args:
        test: the exact test of the key.
        ids: scored token ids.
        positions: their positions, counted from the first token of the text.
        fpr: the largest chance to report any stretch without marked text.
    """
    model = Alignment.of(ids, positions, test.tables)
    inside = model.posterior(model.groups(test.tables)).mixed > 0.5
    edges = np.flatnonzero(np.diff(inside, prepend=False, append=False)).tolist()
    stretches = []
    for first, last in list(pairwise(edges))[::2]:
        grid = _grid(last - first)
        begin, end = -(-first // grid), last // grid
        if end - begin in UNITS:
            part = slice(begin * grid, end * grid)
            p = bonferroni_p(_p_value(test, ids[part], positions[part]), _tested(len(ids), grid))
            if p <= fpr:
                stretches.append(Stretch(first, last, p))
    return stretches


def _grid(length: int) -> int:
    """The grid of a proposal of this length: at least 7 whole units fit into it."""
    return 1 << max(0, (length // (UNITS.start + 2)).bit_length() - 1)


def _tested(n: int, grid: int) -> int:
    """The number of tests that a stretch on this grid pays for: the stretches on the grid times the number of grids."""
    return len(UNITS) * (n // grid + 1) * max(1, _grid(n).bit_length())


def _p_value(test: IntactTest, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> float:
    """The p-value of one stretch by itself, from the exact test and the e-value, each with half of the rate."""
    exact = min(hypothesis.p_value for hypothesis in test.hypotheses(ids, positions))
    model = Alignment.of(ids, positions, test.tables)
    winnings = log_e_value(model, model.groups(test.tables))
    from_bets = float(np.exp(min(0.0, -winnings)))
    return min(adjusted_p(exact, STRETCH_INTACT), adjusted_p(from_bets, 1 - STRETCH_INTACT))
