"""The test for edited text: the alignment statistic's p-value, proven where it is small, by rank where it is not.

Two p-values share the false-positive rate: the rank of the likelihood ratio among re-drawn keys, and 1/e-value. The
second is only computed if the first draws leave the mark possible, and no more keys are drawn if it decides. Neither
rule makes the p-value too small: leaving one of the two out can only make their minimum larger.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from dgmark.detection.alignment import Alignment, states_of
from dgmark.detection.evalue import log_e_value
from dgmark.detection.intact import Phase
from dgmark.detection.redraw import ENOUGH, FIRST_DRAWS, GroupDraws, draws_needed, redrawn_p
from dgmark.detection.shares import E_VALUE, RANK, paid
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.key import WatermarkKey

# where a rank needs more draws than this to decide (half a second for 256 tokens), the e-value alone can, and only as
# many are made as give a p-value to report
MOST_DRAWS, FEW_DRAWS = 100_000, 1000
# draws x tokens x states that are affordable (seconds); depends on the text's length and the spec alone, never
# on what the key makes of the text, so that the p-value stays true
MOST_WORK = 2 * 10**8
# scored tokens at the front of a text that are aligned: at most this many, and so many times the states
LONGEST, LARGEST = 16_384, 2**18


@dataclass(frozen=True)
class EditedResult:
    """What alignment says of one text.

    Attributes:
        p_value: chance that a random key aligns as well with this very text; in (0, 1].
        draws: keys re-drawn.
        edited_fraction: jumps of the phase per token, expected if the mark is there: tokens put in or cut out.
    """

    p_value: float
    draws: int
    edited_fraction: float


def aligned_tokens(spec: WatermarkSpec) -> int:
    """How many scored tokens at the front of a text are aligned: fewer, the more states each may be in."""
    return min(LONGEST, LARGEST // states_of(spec))


def deciding_share(spec: WatermarkSpec, scored: int, level: float) -> float:
    """Share of the edited test's rate that its best part has: ranks if they can decide at this level, or the e-value.

    Args:
        spec: the key's.
        scored: scored tokens.
        level: the p-value that decides.
    """
    _, decides = _most_draws(spec, min(scored, aligned_tokens(spec)), level)
    return RANK if decides else E_VALUE


def _most_draws(spec: WatermarkSpec, tokens: int, level: float) -> tuple[int, bool]:
    """How many keys may be re-drawn for so many aligned tokens, and whether a rank among them can decide."""
    needed = draws_needed(RANK * level)
    affordable = max(FIRST_DRAWS, min(MOST_DRAWS, MOST_WORK // max(1, tokens * states_of(spec))))
    return (needed, True) if needed <= affordable else (min(FEW_DRAWS, affordable), False)


def edited_test(
    key: WatermarkKey, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], phase: Phase, level: float
) -> EditedResult:
    """Test scored `ids` at `positions` with edits allowed for.

    Args:
        key: the key.
        ids: scored token ids; those after the first `aligned_tokens` are left out.
        positions: where they stand, counted from the first token that is there.
        phase: "start" if the text is taken to begin at position 0.
        level: the p-value that decides; more draws than it needs are not made.
    """
    if not len(ids):
        return EditedResult(1.0, 0, 0.0)
    longest = aligned_tokens(key.spec)
    ids, positions = ids[:longest], positions[:longest]
    model = Alignment.of(ids, positions, key.tables, phase)
    observed = model.groups(key.tables)
    draws = GroupDraws(key.secret, ids, positions)
    modulus = key.spec.modulus

    def statistic(groups: np.ndarray) -> np.ndarray:
        return model.log_ratios(groups, np.float32)

    most, _ = _most_draws(key.spec, len(ids), level)
    rank = redrawn_p(statistic, observed, draws, modulus, most=min(FIRST_DRAWS, most))
    p = paid(rank.p_value, RANK)
    if rank.reached < ENOUGH:
        p = paid(math.exp(min(0.0, -log_e_value(model, observed))), E_VALUE)
        if p > level:
            rank = redrawn_p(statistic, observed, draws, modulus, most=most, previous=rank)
            p = min(p, paid(rank.p_value, RANK))
    jumps = float(model.posterior(observed).jumps.sum()) if p <= level else 0.0
    return EditedResult(p, rank.draws, jumps / len(ids))
