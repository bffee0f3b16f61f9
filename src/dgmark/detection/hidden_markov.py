"""The hidden Markov model of a marked text that was edited: tokens may have been deleted or inserted.

The phase of each token is hidden; it mostly persists and sometimes jumps. Here are the strengths of the mark and the
jump rates, the model of one text, the forward filter under many keys, and the posterior of the phases under one key.
Knows tokens and residues only. Its p-value comes from `edit_test.py`. Ours; the paper's answer to edits is the sliding
window.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int, UInt8

from dgmark.detection.exact_test import balance_of
from dgmark.detection.result import Phase
from dgmark.watermark.groups import GroupTables, WatermarkSpec

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
# with rotation, the hidden state is the shift itself, from -REACH to REACH
REACH = 32

_RESCALED_EVERY = 16
_EVEN = 2.0**-20


def emissions(modulus: int) -> tuple[Float[np.ndarray, "mixture 1 1"], Float[np.ndarray, "mixture 1 1"]]:
    """Likelihood ratio of a token without a match, and the amount a match adds, for each part of the mixture."""
    strengths = np.array(MIXTURE)[:, 0, None, None]
    return 1 - strengths, modulus * strengths


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


def initial_states(first: Float[np.ndarray, " states"]) -> Float[np.ndarray, "mixture states+1"]:
    """Distribution of the first token's state in each part of the mixture."""
    start = np.zeros((len(MIXTURE), len(first) + 1))
    start[:, :-1] = first
    start[-1, :-1] *= 1 - OUTSIDE
    start[-1, -1] = OUTSIDE
    return start


def states_of(spec: WatermarkSpec) -> int:
    """Number of hidden states of a key's model."""
    return 2 * REACH + 1 if spec.rotation else spec.period


@dataclass(frozen=True)
class HiddenMarkovModel:
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
        phase: Phase = "any",
    ) -> "HiddenMarkovModel":
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

    def balance(self, spec: WatermarkSpec) -> float:
        """What p-values of this text pay for the balance of a key's group tables."""
        return balance_of(spec, np.unique(self.distinct[:, 1], return_counts=True)[1].tolist())

    def groups(self, tables: GroupTables) -> UInt8[np.ndarray, " rows"]:
        """The key's group of each row of `distinct`."""
        groups = np.empty(len(self.distinct), dtype=np.uint8)
        for segment in np.unique(self.distinct[:, 1]).tolist():
            of_segment = self.distinct[:, 1] == segment
            groups[of_segment] = tables.groups_in(self.distinct[of_segment, 0], segment)
        return groups

    def posterior(self, groups: UInt8[np.ndarray, " rows"]) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """The posterior of the hidden states under one key if the mark is present; see `forward_backward`.

        Args:
            groups: the key's group of each row of `distinct`.
        """
        missed, gain = emissions(self.modulus)
        factors = np.ones((len(self.wanted), len(MIXTURE), self.states + 1))
        factors[..., :-1] = (missed + gain * (groups[self.items] == self.wanted)[:, None, :, None])[..., 0]
        return forward_backward(factors, self.first)


def forward_backward(
    factors: Float[np.ndarray, "n mixture all"], first: Float[np.ndarray, " states"]
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """Posterior of the states from each token's likelihood in each state. Both directions run in one pass.

    Args:
        factors: likelihood ratio of token i in each part of the mixture and each state; the last is outside the mark.
        first: distribution of the first token's state.

    Returns:
        The probability that the state has changed since the previous token (0 for the first token), and the
        probability that the token is inside the mark, by the mixture's part for mixed text alone.
    """
    n, mixture, states = factors.shape
    if not n:
        return np.empty(0), np.empty(0)
    forth = transitions(states - 1)
    moves = np.concatenate([forth.swapaxes(1, 2), forth])
    both = np.concatenate([factors, factors[::-1]], axis=1)[..., None]
    predicted = np.empty_like(both)
    last = np.ones((mixture, states))
    last[:-1, -1] = 0  # only the last part is ever outside the mark; elsewhere this state would outgrow all others
    alpha = np.concatenate([initial_states(first), last])[..., None]
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
    mixed = ahead[:, -1] * factors[:, -1] * behind[:, -1]
    here, there = (ahead * factors)[:-1], (behind * factors)[1:]
    arrived = np.einsum("nks,kst->nkt", here, forth)
    same = np.ones((n, mixture))
    same[1:] = (here * np.einsum("kss->ks", forth) * there).sum(axis=2) / (arrived * there).sum(axis=2)
    return (1 - same) @ weights, 1 - mixed[:, -1] / mixed.sum(axis=1)


class ForwardFilter:
    """The forward algorithm on one text under several keys at once, in single precision.

    Attributes:
        phases: (mixture, states, keys) each part's likelihood ratio so far, divided among the current token's states.
        outside: (keys,) what of the last part's lies outside the mark.
        ratios: (mixture, keys) each part's likelihood ratio so far, by new tokens; the sum of the two above.
    """

    def __init__(self, model: HiddenMarkovModel, keys: int) -> None:
        self.modulus, self.states = model.modulus, model.states
        start = initial_states(model.first)
        self.phases = np.repeat(start[:, :-1, None], keys, axis=2).astype(np.float32)
        self.neighbours = np.empty_like(self.phases)  # room for the sums of each phase's two neighbours
        self.outside = np.full(keys, start[-1, -1], dtype=np.float32)
        self.ratios = np.ones((len(MIXTURE), keys), dtype=np.float32)
        self.returning = np.ones((len(MIXTURE), keys), dtype=np.float32)
        self.log_scales, self.log_returning = np.zeros((1, keys)), np.zeros((len(MIXTURE), keys))
        self.missed, self.gain = (values.astype(np.float32) for values in emissions(model.modulus))
        rates = np.array([rate for _, rate in MIXTURE])[:, None, None]
        keep = np.ones(rates.shape)
        keep[-1] = 1 - LEAVE
        far = keep * rates * FAR / self.states
        near = keep * rates * NEAR / 2
        self.stay = (keep * (1 - rates)).astype(np.float32)
        self.near, self.far = near.astype(np.float32), far.astype(np.float32)
        # with two states both neighbours are the other state
        self.here, self.there = (keep * (1 - rates) + far).astype(np.float32), (2 * near + far).astype(np.float32)

    def move(self) -> None:
        """Go to the next token: the phase may jump, and the last part may leave the mark or return."""
        phases, outside = self.phases, self.outside
        inside = phases[-1].sum(axis=0)
        everywhere = phases.sum(axis=1, keepdims=True) * self.far
        other = self.neighbours
        np.add(phases[:, :-2], phases[:, 2:], out=other[:, 1:-1])
        np.add(phases[:, -1], phases[:, 1], out=other[:, 0])
        np.add(phases[:, -2], phases[:, 0], out=other[:, -1])
        other *= self.near
        other += everywhere
        phases *= self.stay
        phases += other
        phases[-1] += outside * np.float32(ENTER / self.states)
        outside *= np.float32(1 - ENTER)
        outside += inside * np.float32(LEAVE)

    def draw(
        self,
        states: slice,
        wanted: UInt8[np.ndarray, " some"],
        uniform: Float32[np.ndarray, " drawn"],
        given: int,
    ) -> UInt8[np.ndarray, " drawn"]:
        """Draw a row's group for the keys from number `given` on, as all parts together predict it."""
        total = self.ratios[:, given:].sum(axis=0)
        phases = self.phases[:, states, given:]
        bound = uniform * total * np.float32(self.modulus)
        reached = np.zeros_like(total)
        groups = np.zeros(len(uniform), dtype=np.uint8)
        for group in range(self.modulus - 1):
            factors = (self.missed - 1) + self.gain * (wanted == group).astype(np.float32)[:, None]
            gained = phases * factors
            reached += total
            reached += gained.reshape(-1, gained.shape[2]).sum(axis=0)
            groups += bound >= reached
        return groups

    def update(
        self, states: slice, groups: UInt8[np.ndarray, " keys"], wanted: UInt8[np.ndarray, " some"], *, new: bool
    ) -> None:
        """Condition on a row's group, which counts in the likelihood ratio if it is new, and tells the phase anyway."""
        factors = self.gain * (groups == wanted[:, None]).astype(np.float32)
        factors += self.missed
        self.phases[:, states] *= factors
        self._settle(self.phases.sum(axis=1), new=new)

    def _settle(self, now: Float32[np.ndarray, "mixture keys"], *, new: bool) -> None:
        """Take the sum of the states as the likelihood ratio, or that of a token that returns apart from it."""
        now[-1] += self.outside
        if new:
            self.ratios = now
        else:
            now /= self.ratios
            self.returning *= now
            self.scale(1 / now)

    def rescale(self) -> None:
        """Keep the numbers in the range of single precision: scale them, and let no part's ratio vanish.

        To this end a millionth of each part is mixed with all parts alike, which keeps the proposal a distribution.
        """
        total = self.ratios.sum(axis=0)
        factors = (np.float32(_EVEN / len(MIXTURE)) * total / self.ratios + np.float32(1 - _EVEN)) / total
        self.scale(factors)
        self.ratios *= factors
        self.log_scales += np.log(total, dtype=np.float64)
        self.log_returning += np.log(self.returning, dtype=np.float64)
        self.returning[:] = 1

    def scale(self, factors: Float32[np.ndarray, "mixture keys"]) -> None:
        """Multiply each part's states."""
        self.phases *= factors[:, None]
        self.outside *= factors[-1]


class TwoPhaseFilter(ForwardFilter):
    """The same filter with two phases, in a third of the time, from the sum and the difference of the two phases.

    A match in the first phase multiplies its part by 1 + a and that of the second by 1 - a, and the reverse.

    Attributes:
        inside: (mixture, keys) each part's likelihood ratio so far that lies inside the mark.
        lead: (mixture, keys) how much more of it lies in the first phase than in the second.
    """

    def __init__(self, model: HiddenMarkovModel, keys: int) -> None:
        super().__init__(model, keys)
        self.inside = self.phases.sum(axis=1)
        self.lead = self.phases[:, 0] - self.phases[:, 1]
        self.kept = (self.here - self.there)[:, 0]
        self.strengths = self.gain[:, 0] / np.float32(2)

    def move(self) -> None:
        """Go to the next token; the sum of the two phases changes in the last part alone."""
        self.lead *= self.kept
        left = self.inside[-1] * np.float32(LEAVE)
        left -= self.outside * np.float32(ENTER)
        self.inside[-1] -= left
        self.outside += left

    def draw(
        self,
        states: slice,  # noqa: ARG002 (without rotation, a token is in one row in all states)
        wanted: UInt8[np.ndarray, " some"],
        uniform: Float32[np.ndarray, " drawn"],
        given: int,
    ) -> UInt8[np.ndarray, " drawn"]:
        """Draw a row's group, which is one of two, from the lead of the first phase alone."""
        total = self.ratios[:, given:].sum(axis=0)
        gained = (self.lead[:, given:] * self.strengths).sum(axis=0)
        bound = uniform * np.float32(2)
        bound *= total
        bound -= total
        drawn: UInt8[np.ndarray, " drawn"] = (bound >= (-gained if wanted[0] else gained)).view(np.uint8)
        return drawn

    def update(
        self,
        states: slice,  # noqa: ARG002
        groups: UInt8[np.ndarray, " keys"],
        wanted: UInt8[np.ndarray, " some"],
        *,
        new: bool,
    ) -> None:
        """Condition on a row's group, by what it adds to the lead of the first phase."""
        signed = self.strengths * _SIGNS[wanted[0]][groups]
        gained = self.lead * signed
        signed *= self.inside
        self.lead += signed
        self.inside += gained
        self._settle(self.inside.copy(), new=new)

    def scale(self, factors: Float32[np.ndarray, "mixture keys"]) -> None:
        """Multiply each part's sum and difference."""
        self.inside *= factors
        self.lead *= factors
        self.outside *= factors[-1]


# for the residue that the first phase wants, the sign of each group: 1 if it matches in the first phase
_SIGNS = np.array([[1, -1], [-1, 1]], dtype=np.float32)
