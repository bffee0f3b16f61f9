"""The hidden-phase model of a marked text that was edited: strengths of the mark, jump rates, transitions, emissions.

A state is a phase of the mark (or a shift); the last state is outside the mark. Knows no text and no key. Ours.
"""

from typing import Any

import numpy as np
from jaxtyping import Float

# (strength, jump rate) of each part of the mixture. Strength: of the tokens that chance misses, the share that the mark
# makes match (at m = 2, match rates of .72 to .93). Jump rate: the chance that the phase changes between two tokens.
# The last part models mixed text: between two tokens it may leave the mark or return.
MIXTURE = ((0.45, 0.02), (0.45, 0.08), (0.85, 0.02), (0.85, 0.12), (0.7, 0.25), (0.7, 0.01))
# strengths of the parts that model a text nobody edited, whose phase never changes
INTACT = (0.2, 0.45, 0.85)
LEAVE, ENTER = 1 / 40, 1 / 300
OUTSIDE = LEAVE / (ENTER + LEAVE)  # long-run share of tokens outside the mark
# shares of the jumps: to a neighbouring phase (one token inserted or deleted), and to any phase
NEAR, FAR = 0.75, 0.25


def emissions(
    modulus: int, dtype: type[np.floating[Any]] = np.float64
) -> tuple[Float[np.ndarray, "mixture 1 1"], Float[np.ndarray, "mixture 1 1"]]:
    """Likelihood ratio of a token without a match, and the amount a match adds, for each part of the mixture."""
    strengths = np.array(MIXTURE)[:, 0, None, None]
    return (1 - strengths).astype(dtype), (modulus * strengths).astype(dtype)


def transitions(states: int) -> Float[np.ndarray, "mixture from to"]:
    """Transition matrix from one token's state to the next, for each part; the last state is outside the mark."""
    moves = np.zeros((len(MIXTURE), states + 1, states + 1))
    here = np.arange(states)
    for part, (_, rate) in enumerate(MIXTURE):
        within = moves[part, :-1, :-1]
        within[:] = rate * FAR / states
        within[here, here] += 1 - rate
        within[here, (here + 1) % states] += rate * NEAR / 2
        within[here, (here - 1) % states] += rate * NEAR / 2
    moves[:-1, -1, -1] = 1
    moves[-1, :-1, :-1] *= 1 - LEAVE
    moves[-1, :-1, -1] = LEAVE
    moves[-1, -1, :-1] = ENTER / states
    moves[-1, -1, -1] = 1 - ENTER
    return moves


def beginning(first: Float[np.ndarray, " states"]) -> Float[np.ndarray, "mixture states+1"]:
    """Distribution of the first token's state in each part of the mixture."""
    start = np.zeros((len(MIXTURE), len(first) + 1))
    start[:, :-1] = first
    start[-1, :-1] *= 1 - OUTSIDE
    start[-1, -1] = OUTSIDE
    return start
