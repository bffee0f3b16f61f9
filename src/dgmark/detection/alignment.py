"""The alignment of a text with a key if tokens may have been deleted or inserted.

The phase of each token is hidden; it mostly persists and sometimes jumps. Here are the rows of groups and the wanted
residues that such a model of one text needs, and the posterior of the phases under one key. Knows tokens and residues
only. Its p-value comes from `aligned.py`. Ours; the paper's answer to edits is the sliding window (`windows.py`).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.detection.hidden_phase import MIXTURE, beginning, emissions, transitions
from dgmark.watermark.groups import GroupTables, WatermarkSpec

# with rotation, the hidden state is the shift itself, from -REACH to REACH
REACH = 32

_RESCALED_EVERY = 16


def states_of(spec: WatermarkSpec) -> int:
    """Number of hidden states of a key's alignment model."""
    return 2 * REACH + 1 if spec.rotation else spec.period


@dataclass(frozen=True)
class Alignment:
    """The hidden-phase model of one text.

    A state is a phase (without rotation: 0..period-1) or a shift (with rotation: -REACH..REACH).

    Attributes:
        items: (n, 1 or states) row of the group arrays that holds token i's group: one for all states, or one a state.
        places: (n, states) place of token i's position in the code's period, in each state.
        wanted: (n, states) residue that this position wants.
        modulus: number of groups m.
        first: distribution of the first token's state.
        distinct: (rows, 2) token id and segment of each row of the group arrays.
    """

    items: Int[np.ndarray, "n width"]
    places: UInt8[np.ndarray, "n states"]
    wanted: UInt8[np.ndarray, "n states"]
    modulus: int
    first: Float[np.ndarray, " states"]
    distinct: Int[np.ndarray, "rows 2"]

    @classmethod
    def of(
        cls,
        ids: Int[np.ndarray, " n"],
        positions: Int[np.ndarray, " n"],
        tables: GroupTables,
        phase: Literal["any", "start"] = "any",
    ) -> "Alignment":
        """The model of `ids` at `positions` (0-based, ascending, gaps allowed).

        Args:
            ids: scored token ids.
            positions: their positions, counted from the first token of the text.
            tables: the key's groups and position code.
            phase: "start" if the text is taken to begin at position 0, "any" if its phase is unknown.
        """
        spec = tables.spec
        shifts = np.arange(-REACH, REACH + 1) if spec.rotation else np.arange(spec.period)
        at = np.maximum(positions[:, None] + shifts, 0).ravel()
        places = (at % spec.period).astype(np.uint8).reshape(len(ids), len(shifts))
        pairs = spec.segment(at) * spec.table_size + np.repeat(ids, len(shifts)) if spec.rotation else ids
        values, rows = np.unique(pairs, return_inverse=True)
        start, anywhere = (shifts == 0).astype(np.float64), np.full(len(shifts), 1 / len(shifts))
        if spec.rotation:
            anywhere = (start + anywhere) / 2
        return cls(
            items=rows.reshape(len(ids), len(shifts) if spec.rotation else 1),
            places=places,
            wanted=tables.code[places],
            modulus=spec.modulus,
            first=start if phase == "start" else anywhere,
            distinct=np.stack([values % spec.table_size, values // spec.table_size], axis=1),
        )

    @property
    def states(self) -> int:
        """Number of hidden states."""
        return int(self.wanted.shape[1])

    @property
    def mirrored(self) -> bool:
        """Whether a token matches in exactly one of two phases: m = 2, no rotation."""
        return self.modulus == self.states == 2 and self.items.shape[1] == 1

    @property
    def unshifted(self) -> int:
        """The column of `items` and the state of a text that begins at position 0."""
        return REACH if self.items.shape[1] > 1 else 0

    def groups(self, tables: GroupTables) -> UInt8[np.ndarray, " rows"]:
        """The key's group of each row of `distinct`."""
        groups = np.empty(len(self.distinct), dtype=np.uint8)
        for segment in np.unique(self.distinct[:, 1]).tolist():
            of_segment = self.distinct[:, 1] == segment
            groups[of_segment] = tables.groups_in(self.distinct[of_segment, 0], segment)
        return groups

    def posterior(self, groups: UInt8[np.ndarray, " rows"]) -> "Posterior":
        """The posterior of each token's state under one key if the mark is present, by forward-backward.

        Args:
            groups: the key's group of each row of `distinct`.
        """
        missed, gain = emissions(self.modulus, np.float64)
        factors = np.ones((len(self.wanted), len(MIXTURE), self.states + 1))
        factors[..., :-1] = (missed + gain * (groups[self.items] == self.wanted)[:, None, :, None])[..., 0]
        return forward_backward(factors, self.first)


@dataclass(frozen=True)
class Posterior:
    """The posterior of each token's state, given that the mark is present.

    Attributes:
        states: (n, states) probability of each state for each token; the rest to 1 is the state outside the mark.
        jumps: (n,) probability that the state has changed since the previous token; 0 for the first.
        mixed: (n,) probability that the token is inside the mark, by the mixture's part for mixed text alone.
    """

    states: Float[np.ndarray, "n states"]
    jumps: Float[np.ndarray, " n"]
    mixed: Float[np.ndarray, " n"]


def forward_backward(factors: Float[np.ndarray, "n mixture all"], first: Float[np.ndarray, " states"]) -> Posterior:
    """Posterior of the states from each token's likelihood in each state. Both directions run in one pass.

    Args:
        factors: likelihood ratio of token i in each part of the mixture and each state; the last is outside the mark.
        first: distribution of the first token's state.
    """
    n, mixture, states = factors.shape
    if not n:
        return Posterior(np.empty((0, states - 1)), np.empty(0), np.empty(0))
    forth = transitions(states - 1)
    moves = np.concatenate([forth.swapaxes(1, 2), forth])
    both = np.concatenate([factors, factors[::-1]], axis=1)[..., None]
    predicted = np.empty_like(both)
    last = np.ones((mixture, states))
    last[:-1, -1] = 0  # only the last part is ever outside the mark; elsewhere this state would outgrow all others
    alpha = np.concatenate([beginning(first), last])[..., None]
    evidence = np.zeros(mixture)
    for i, factor in enumerate(both):
        predicted[i] = alpha
        alpha = alpha * factor
        if i % _RESCALED_EVERY == 0 or i == n - 1:
            total = alpha.sum(axis=1, keepdims=True)
            alpha /= total
            evidence += np.log(total[:mixture, 0, 0])
        alpha = np.matmul(moves, alpha)
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()

    ahead, behind = predicted[:, :mixture, :, 0], predicted[::-1, mixture:, :, 0]
    joint = ahead * factors * behind
    joint /= joint.sum(axis=2, keepdims=True)
    here, there = (ahead * factors)[:-1], (behind * factors)[1:]
    arrived = np.einsum("nks,kst->nkt", here, forth)
    same = np.ones((n, mixture))
    same[1:] = (here * np.einsum("kss->ks", forth) * there).sum(axis=2) / (arrived * there).sum(axis=2)
    return Posterior(weights @ joint[..., :-1], (1 - same) @ weights, 1 - joint[:, -1, -1])
