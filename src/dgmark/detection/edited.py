"""The test for edited text: a p-value of the alignment statistic, from an e-value if small and from a rank if not.

The rank of the likelihood ratio among re-drawn keys and 1/e-value share the false-positive rate. The e-value is
computed only if the first draws leave the mark possible, and if it decides, no more keys are drawn. Neither rule makes
the p-value too small: leaving one of the two out can only make their minimum larger. Knows tokens and their positions
only. Ours; the paper's test for edited text is in `windows.py`.
"""

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from dgmark.detection.alignment import Alignment, states_of
from dgmark.detection.evalue import log_e_value
from dgmark.detection.intact import Phase
from dgmark.detection.redraw import ENOUGH, FIRST_DRAWS, GroupDraws, draws_needed, redrawn_p
from dgmark.detection.shares import E_VALUE, RANK, adjusted_p
from dgmark.watermark.groups import WatermarkSpec
from dgmark.watermark.key import WatermarkKey

# If a rank needs more than MOST_DRAWS to decide (half a second for 256 tokens), the e-value alone can decide, and
# FEW_DRAWS are enough for a p-value to report.
MOST_DRAWS, FEW_DRAWS = 100_000, 1000
# Affordable draws x tokens x states (seconds). The limit depends on the text's length and the spec alone, never on
# the key's groups, so that the p-value stays valid.
MOST_WORK = 2 * 10**8
# Only the first scored tokens of a text are aligned: at most LONGEST tokens, and at most LARGEST tokens x states.
LONGEST, LARGEST = 16_384, 2**18


@dataclass(frozen=True)
class EditedResult:
    """The alignment test's result for one text.

    Attributes:
        p_value: chance that a random key aligns as well with this very text; in (0, 1].
        draws: number of re-drawn keys.
        edited_fraction: expected jumps of the phase per token if the mark is present: tokens inserted or deleted.
    """

    p_value: float
    draws: int
    edited_fraction: float


def aligned_tokens(spec: WatermarkSpec) -> int:
    """How many scored tokens at the front of a text are aligned: the more hidden states, the fewer tokens."""
    return min(LONGEST, LARGEST // states_of(spec))


def deciding_share(spec: WatermarkSpec, scored: int, level: float) -> float:
    """The share of the edited test's rate that its deciding part has: the rank if it can decide, else the e-value.

    Args:
        spec: the key's spec.
        scored: number of scored tokens.
        level: the p-value at which the test decides.
    """
    _, decides = _most_draws(spec, min(scored, aligned_tokens(spec)), level)
    return RANK if decides else E_VALUE


def _most_draws(spec: WatermarkSpec, tokens: int, level: float) -> tuple[int, bool]:
    """The largest number of keys to re-draw for this many aligned tokens, and whether a rank among them can decide."""
    needed = draws_needed(RANK * level)
    affordable = max(FIRST_DRAWS, min(MOST_DRAWS, MOST_WORK // max(1, tokens * states_of(spec))))
    return (needed, True) if needed <= affordable else (min(FEW_DRAWS, affordable), False)


def edited_test(
    key: WatermarkKey, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], phase: Phase, level: float
) -> EditedResult:
    """Test scored `ids` at `positions`, allowing for edits.

    Args:
        key: the key.
        ids: scored token ids; only the first `aligned_tokens` are used.
        positions: their positions, counted from the first token of the text.
        phase: "start" if the text is taken to begin at position 0.
        level: the p-value at which the test decides; it draws no more keys than this level needs.
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
    p = adjusted_p(rank.p_value, RANK)
    if rank.exceedances < ENOUGH:
        p = adjusted_p(math.exp(min(0.0, -log_e_value(model, observed))), E_VALUE)
        if p > level:
            rank = redrawn_p(statistic, observed, draws, modulus, most=most, previous=rank)
            p = min(p, adjusted_p(rank.p_value, RANK))
    jumps = float(model.posterior(observed).jumps.sum()) if p <= level else 0.0
    return EditedResult(p, rank.draws, jumps / len(ids))
