"""Which stretches of a text carry the mark, with the family-wise error held over all stretches there are.

A hidden chain proposes stretches: each token stands at some phase of the mark, or in no mark at all. Each proposal is
then tested by itself, exactly and by its e-value, and pays for every stretch that might have been proposed; so however
the proposals are found, the chance to report a stretch without marked text is at most the false-positive rate.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.alignment import ENTER, FAR, LEAVE, MIXTURE, NEAR, OUTSIDE, Alignment
from dgmark.evalue import log_e_value
from dgmark.intact import IntactTest
from dgmark.statistics import SMALLEST_P

# the chain is the mixture's part for mixed text
STRENGTH, JUMP = MIXTURE[-1]
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
    inside = mark_probability(model, model.groups(test.tables)) > 0.5
    edges = np.flatnonzero(np.diff(inside, prepend=False, append=False)).tolist()
    found = []
    for first, last in list(pairwise(edges))[::2]:
        if last - first >= SHORTEST:
            p = _p_value(test, ids[first:last], positions[first:last])
            p = min(1.0, p * len(ids) * (len(ids) + 1) / 2)
            if p <= fpr:
                found.append(Stretch(first, last, p))
    return found


def mark_probability(model: Alignment, groups: UInt8[np.ndarray, " rows"]) -> Float[np.ndarray, " n"]:
    """Posterior probability of each token to stand in marked text, by forward-backward.

    Args:
        model: the text's alignment model; its states and one more, for no mark, are the chain's.
        groups: the key's group of each row of `distinct`.
    """
    n, states = model.wanted.shape
    matched = groups[model.items] == model.wanted
    factors = np.ones((n, states + 1))
    factors[:, :-1] = np.where(matched, 1 + (model.modulus - 1) * STRENGTH, 1 - STRENGTH)
    moves = _moves(states)
    forward, backward = np.empty_like(factors), np.empty_like(factors)
    alpha = np.append(np.full(states, (1 - OUTSIDE) / states), OUTSIDE)
    for i in range(n):
        forward[i] = alpha = alpha * factors[i] / (alpha @ factors[i])
        alpha = alpha @ moves
    beta = np.ones(states + 1)
    for i in range(n - 1, -1, -1):
        backward[i] = beta
        beta = moves @ (beta * factors[i])
        beta /= beta.max()
    joint = forward * backward
    return np.asarray(1 - joint[:, -1] / joint.sum(axis=1))


def _moves(states: int) -> Float[np.ndarray, "from to"]:
    """The chain's transitions; the last state is no mark."""
    within = np.full((states, states), JUMP * FAR / states)
    for state in range(states):
        within[state, state] += 1 - JUMP
        within[state, (state + 1) % states] += JUMP * NEAR / 2
        within[state, (state - 1) % states] += JUMP * NEAR / 2
    moves = np.empty((states + 1, states + 1))
    moves[:-1, :-1] = (1 - LEAVE) * within
    moves[:-1, -1] = LEAVE
    moves[-1, :-1] = ENTER / states
    moves[-1, -1] = 1 - ENTER
    return moves


def _p_value(test: IntactTest, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> float:
    """The p-value of one stretch by itself: the exact test and the e-value, half of the rate each."""
    exact = min(hypothesis.p_value for hypothesis in test.hypotheses(ids, positions))
    model = Alignment.of(ids, positions, test.tables)
    winnings = log_e_value(model, model.groups(test.tables))
    return max(SMALLEST_P, 2 * min(exact, float(np.exp(min(0.0, -winnings)))))
