"""The alignment test: a p-value that allows for edits, as small as the evidence, from about a thousand drawn keys.

The statistic is the winnings of a bettor who takes the text for marked (`bets.py`). Keys are drawn from her bets and
not at random, so that many of them do as well as the real key, and each counts by the ratio of its chance at random
to its chance by the bets (importance sampling). With the real key among them, the sum is a valid p-value for any
number of draws (Harrison 2012). The draws depend on the text only. Knows tokens and their positions only.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from dgmark.detection.alignment import Alignment, states_of
from dgmark.detection.bets import Bets
from dgmark.detection.blocks import block_statistics
from dgmark.detection.intact import Phase
from dgmark.detection.match_null import SMALLEST_P
from dgmark.detection.public_numbers import PublicNumbers
from dgmark.detection.shares import balance_of, bonferroni_p
from dgmark.watermark.groups import GroupTables, WatermarkSpec

# Keys drawn for one text: as many as the work (keys x tokens x states) allows.
MOST_DRAWS, FEWEST_DRAWS, WORK = 1000, 100, 2**22
# A text whose quick p-value, by the rank of its block statistic among a few random keys, is above SCREEN keeps it.
SCREEN, SCREEN_DRAWS = 0.2, 63
# Only the first scored tokens of a text are aligned: at most LONGEST tokens, and at most LARGEST tokens x states.
LONGEST, LARGEST = 16_384, 2**18
# rounding may separate statistics that are equal; near ties count against the mark
TOLERANCE = 1e-4


@dataclass(frozen=True)
class AlignedResult:
    """The alignment test's result for one text.

    Attributes:
        p_value: chance that a random key aligns as well with this very text; in (0, 1].
        draws: number of drawn keys.
    """

    p_value: float
    draws: int


def aligned_tokens(spec: WatermarkSpec) -> int:
    """How many scored tokens at the front of a text are aligned: the more hidden states, the fewer tokens."""
    return min(LONGEST, LARGEST // states_of(spec))


def draws_of(model: Alignment) -> int:
    """How many keys are drawn for a text. It depends on its length and the key's spec alone."""
    return max(FEWEST_DRAWS, min(MOST_DRAWS, WORK // max(1, model.wanted.size)))


def front_model(
    tables: GroupTables, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], phase: Phase
) -> Alignment:
    """The alignment of the first `aligned_tokens` of a text."""
    longest = aligned_tokens(tables.spec)
    return Alignment.of(ids[:longest], positions[:longest], tables, phase)


def aligned_test(
    tables: GroupTables,
    ids: Int[np.ndarray, " n"],
    positions: Int[np.ndarray, " n"],
    phase: Phase,
    *,
    intact: bool = True,
) -> AlignedResult:
    """Test scored `ids` at `positions`, allowing for edits.

    Two p-values are at hand, each valid by itself: a quick rank, which is reported if it is above `SCREEN`, and
    otherwise the one from drawn keys. This adds no error: for a level at or below `SCREEN` only the second counts, and
    for one above it, whatever is reported at or below the level has a rank at or below it.

    Args:
        tables: the key's groups and position code.
        ids: scored token ids; only the first `aligned_tokens` are used.
        positions: their positions, counted from the first token of the text.
        phase: "start" if the text is taken to begin at position 0.
        intact: whether the bettor also bets on text that nobody edited.
    """
    if not len(ids):
        return AlignedResult(1.0, 0)
    model = front_model(tables, ids, positions, phase)
    key = model.groups(tables)[:, None]
    bets = Bets(model, intact)
    segments = np.unique(model.distinct[:, 1], return_counts=True)[1].tolist()
    balance = balance_of(tables.spec, segments)
    random = PublicNumbers("screen/v3", ids, positions).groups(len(key), SCREEN_DRAWS, model.modulus)
    quick = block_statistics(model, np.concatenate([key, random], axis=1))
    rank = (1 + int(np.count_nonzero(quick[1:] >= quick[0] - TOLERANCE))) / (1 + SCREEN_DRAWS)
    if rank > SCREEN:
        return AlignedResult(bonferroni_p(rank, balance), SCREEN_DRAWS)
    draws = draws_of(model)
    plays = bets.play(key, draws, PublicNumbers("draws/v3", ids, positions))
    p_value = weighted_rank(plays.statistics, plays.weights)
    return AlignedResult(max(SMALLEST_P, bonferroni_p(p_value, balance)), draws)


def weighted_rank(statistics: np.ndarray, weights: np.ndarray) -> float:
    """The p-value of the first key: its weight, and those of the drawn keys that do as well, over their number.

    Args:
        statistics: (1 + draws,) statistic of the key and of each drawn key.
        weights: (1 + draws,) chance at random over chance of being drawn.
    """
    as_well = statistics >= statistics[0] - TOLERANCE
    as_well[0] = True
    return float(min(1.0, weights[as_well].sum() / len(weights)))


def edited_fraction(
    tables: GroupTables, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], phase: Phase
) -> float:
    """Expected jumps of the phase per token if the mark is present: tokens inserted or deleted."""
    model = front_model(tables, ids, positions, phase)
    return float(model.posterior(model.groups(tables)).jumps.mean())
