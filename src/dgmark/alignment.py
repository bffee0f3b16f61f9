"""The alignment statistic: how well a text follows a key if tokens may have been cut out or put in.

The phase of each token is hidden; it mostly persists and sometimes jumps. The statistic is the likelihood ratio of
that model, averaged over a few strengths and jump rates, against fair coins. Knows tokens and residues only, and
nothing of error rates: those come from `redraw.py` and `evalue.py`. Ours; the paper's answer to edits is the sliding
window (`windows.py`).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int, UInt8

from dgmark.watermark import GroupTables

# (strength, jump rate): share of the tokens that chance would miss and the mark makes match (at m = 2 match rates of
# .7 to .8), and the chance that the phase changes between two tokens; equal weights. The last part stands for mixed
# text: between two tokens it may leave the mark, and come back to it.
MIXTURE = ((0.4, 0.01), (0.5, 0.06), (0.6, 0.2), (0.6, 0.03))
LEAVE, ENTER = 1 / 50, 1 / 200
OUTSIDE = LEAVE / (ENTER + LEAVE)  # of it, in the long run
# of the jumps: to the phase before or after (one token put in or cut out), and to any phase
NEAR, FAR = 0.75, 0.25
# with rotation the hidden state is the shift itself, from -REACH to REACH
REACH = 32

_RESCALED_EVERY = 16
_BLOCK = 2**16


@dataclass(frozen=True)
class Alignment:
    """The hidden-phase model of one text.

    A state is a phase (without rotation: 0..period-1) or a shift (with rotation: -REACH..REACH).

    Attributes:
        items: (n, 1 or states) row in the group arrays of token i's group, for all states or in each.
        wanted: (n, states) residue that token i's position wants in each state.
        modulus: number of groups m.
        first: distribution of the first token's state.
        distinct: (rows, 2) token id and segment of each row of the group arrays.
    """

    items: Int[np.ndarray, "n width"]
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
            positions: where they stand, counted from the first token that is there.
            tables: the key's groups and position code.
            phase: "start" if the first token is taken to stand at position 0, "any" if its phase is unknown.
        """
        spec = tables.spec
        shifts = np.arange(-REACH, REACH + 1) if spec.rotation else np.arange(spec.period)
        at = np.maximum(positions[:, None] + shifts, 0).ravel()
        pairs = spec.segment(at) * spec.table_size + np.repeat(ids, len(shifts)) if spec.rotation else ids
        values, rows = np.unique(pairs, return_inverse=True)
        start, anywhere = (shifts == 0).astype(np.float64), np.full(len(shifts), 1 / len(shifts))
        if spec.rotation:
            anywhere = (start + anywhere) / 2
        return cls(
            items=rows.reshape(len(ids), len(shifts) if spec.rotation else 1),
            wanted=tables.residues(at).reshape(len(ids), len(shifts)),
            modulus=spec.modulus,
            first=start if phase == "start" else anywhere,
            distinct=np.stack([values % spec.table_size, values // spec.table_size], axis=1),
        )

    @property
    def states(self) -> int:
        """Number of hidden states."""
        return int(self.wanted.shape[1])

    def groups(self, tables: GroupTables) -> UInt8[np.ndarray, " rows"]:
        """The key's own groups of the rows of `distinct`."""
        groups = np.empty(len(self.distinct), dtype=np.uint8)
        for segment in np.unique(self.distinct[:, 1]).tolist():
            of_segment = self.distinct[:, 1] == segment
            groups[of_segment] = tables.table(segment)[self.distinct[of_segment, 0]]
        return groups

    def log_ratios(
        self, groups: UInt8[np.ndarray, "rows keys"], dtype: type[np.floating[Any]] = np.float64
    ) -> Float[np.ndarray, " keys"]:
        """Natural logarithm of the likelihood ratio under each of several keys, by the forward algorithm.

        Args:
            groups: each key's group of each row of `distinct`.
            dtype: float64, or float32 to rank many keys in half of the time.
        """
        prior = _Prior.of(self.states, dtype)
        missed, gain = emissions(self.modulus, dtype)
        alpha = np.empty((len(MIXTURE), self.states, groups.shape[1]), dtype=dtype)
        alpha[:] = self.first[:, None]
        mixed, outside = alpha[-1:], np.full((1, 1, groups.shape[1]), OUTSIDE, dtype=dtype)
        mixed *= 1 - OUTSIDE
        logs = np.zeros((len(MIXTURE), groups.shape[1]))
        last = len(self.wanted) - 1
        block = max(1, _BLOCK // max(1, alpha.size))
        for begin in range(0, len(self.wanted), block):
            part = slice(begin, begin + block)
            matched = groups[self.items[part]] == self.wanted[part, :, None]
            for i, factor in enumerate(missed + gain * matched[:, None], begin):
                if i:
                    alpha = prior.step(alpha)
                    mixed = alpha[-1:]
                    left = mixed.sum(axis=1, keepdims=True) * dtype(LEAVE)
                    mixed *= dtype(1 - LEAVE)
                    mixed += outside * dtype(ENTER / self.states)
                    outside = outside * dtype(1 - ENTER) + left
                alpha *= factor
                if i % _RESCALED_EVERY == 0 or i == last:
                    total = alpha.sum(axis=1, keepdims=True)
                    total[-1:] += outside
                    alpha /= total
                    outside /= total[-1:]
                    logs += np.log(total[:, 0])
        ratios: Float[np.ndarray, " keys"] = np.logaddexp.reduce(logs, axis=0) - np.log(len(MIXTURE))
        return ratios

    def posterior(self, groups: UInt8[np.ndarray, " rows"], known: np.ndarray | None = None) -> "Posterior":
        """What one key says of each token's state if the mark is there throughout, by forward-backward.

        Args:
            groups: the key's group of each row of `distinct`.
            known: (rows,) which groups to use; all by default.
        """
        missed, gain = emissions(self.modulus, np.float64)
        factors = (missed + gain * (groups[self.items] == self.wanted)[:, None, :, None])[..., 0]
        if known is not None:
            factors = np.where(known[self.items][:, None], factors, 1.0)
        return forward_backward(factors, self.first)


def emissions(
    modulus: int, dtype: type[np.floating[Any]] = np.float64
) -> tuple[Float[np.ndarray, "mixture 1 1"], Float[np.ndarray, "mixture 1 1"]]:
    """Likelihood ratio of a token that does not match, and what a match adds to it, for each part of the mixture."""
    rates = (1 + (modulus - 1) * np.array(MIXTURE)[:, 0, None, None]) / modulus
    missed = modulus * (1 - rates) / (modulus - 1)
    return missed.astype(dtype), (modulus * rates - missed).astype(dtype)


@dataclass(frozen=True)
class Posterior:
    """Where each token is taken to stand, given that the mark is there.

    Attributes:
        states: (n, states) probability of each state for each token.
        jumps: (n,) probability that the state has changed since the token before; 0 for the first.
    """

    states: Float[np.ndarray, "n states"]
    jumps: Float[np.ndarray, " n"]


def forward_backward(factors: Float[np.ndarray, "n mixture states"], first: Float[np.ndarray, " states"]) -> Posterior:
    """Posterior of the states from each token's likelihood in each state, both directions in one pass.

    Args:
        factors: likelihood ratio of token i in each state, for each part of the mixture.
        first: distribution of the first token's state.
    """
    n, mixture, states = factors.shape
    if not n:
        return Posterior(np.empty((0, states)), np.empty(0))
    prior = _Prior.of(states, np.float64)
    both = np.stack([factors, factors[::-1]], axis=-1)
    predicted = np.empty_like(both)
    alpha = np.empty((mixture, states, 2))
    alpha[..., 0], alpha[..., 1] = first, 1 / states
    evidence = np.zeros(mixture)
    for i, factor in enumerate(both):
        predicted[i] = alpha
        alpha = alpha * factor
        if i % _RESCALED_EVERY == 0 or i == n - 1:
            total = alpha.sum(axis=1, keepdims=True)
            alpha /= total
            evidence += np.log(total[:, 0, 0])
        alpha = prior.step(alpha)
    weights = np.exp(evidence - evidence.max())
    weights /= weights.sum()

    ahead, behind = predicted[..., 0], predicted[::-1, ..., 1]
    joint = ahead * factors * behind
    joint /= joint.sum(axis=2, keepdims=True)
    here, there = (ahead * factors)[:-1], (behind * factors)[1:]
    moved = np.ones((n, mixture))
    stepped = prior.step(here.transpose(1, 2, 0)).transpose(2, 0, 1)
    moved[1:] = (here * there).sum(axis=2) * prior.same / (stepped * there).sum(axis=2)
    return Posterior(weights @ joint, (1 - moved) @ weights)


@dataclass(frozen=True)
class _Prior:
    """How the state moves from one token to the next, for each part of the mixture: symmetric in the states."""

    stay: Float[np.ndarray, "mixture 1 1"]
    near: Float[np.ndarray, "mixture 1 1"]
    far: Float[np.ndarray, "mixture 1 1"]
    states: int

    @classmethod
    def of(cls, states: int, dtype: type[np.floating[Any]]) -> "_Prior":
        rates = np.array(MIXTURE, dtype=dtype)[:, 1, None, None]
        return cls(1 - rates, rates * dtype(NEAR / 2), rates * dtype(FAR / states), states)

    @cached_property
    def flip(self) -> Float[np.ndarray, "mixture 1 1"]:
        """Of two states: chance to be in the other one at the next token."""
        flip: Float[np.ndarray, "mixture 1 1"] = 2 * self.near + self.far
        return flip

    @cached_property
    def keep(self) -> Float[np.ndarray, "mixture 1 1"]:
        """Of two states: 1 less twice `flip`."""
        return 1 - 2 * self.flip

    @property
    def same(self) -> Float[np.ndarray, " mixture"]:
        """Chance to be in the same state at the next token."""
        return np.asarray(np.ravel(1 - self.flip if self.states == 2 else self.stay + self.far))

    def step(self, alpha: Float[np.ndarray, "mixture states keys"]) -> Float[np.ndarray, "mixture states keys"]:
        """One step of the state, without what the next token says."""
        if self.states == 2:  # the state before and the one after are the same
            both = alpha[:, :1] + alpha[:, 1:]
            both *= self.flip
            kept: Float[np.ndarray, "mixture states keys"] = alpha * self.keep
            kept += both
            return kept
        moved: Float[np.ndarray, "mixture states keys"] = self.stay * alpha + self.far * alpha.sum(
            axis=1, keepdims=True
        )
        moved[:, 1:] += self.near * alpha[:, :-1]
        moved[:, :-1] += self.near * alpha[:, 1:]
        moved[:, 0] += self.near[:, 0] * alpha[:, -1]
        moved[:, -1] += self.near[:, 0] * alpha[:, 0]
        return moved
