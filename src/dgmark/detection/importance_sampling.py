"""Importance sampling of keys: the statistic of a key, and random keys that fit a text, with their exact weights.

The proposal takes the text for marked. It reads the tokens in order, and where a token stands for the first time it
draws the token's group by the phases that are likely after all tokens before (a forward filter). The likelihood ratio
of a key is the chance that the proposal draws its groups, over the chance of a random key. So each drawn key has an
exact weight. Tokens that return are not drawn, but tell the phase, and count in the statistic. Knows the hidden Markov
model only. Ours; after Harrison (2012) on importance sampling and the forward algorithm.
"""

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, UInt8

from dgmark.detection.hidden_markov import INTACT, MIXTURE, ForwardFilter, HiddenMarkovModel, TwoPhaseFilter

# Shares of the proposal. Keys drawn at random keep every weight below 1 / UNIFORM, which makes large p-values as exact
# as plain ranks.
UNIFORM, ON_INTACT = 0.1, 0.2
# How much a token that returns counts in the statistic, next to one that is new: less than 1, since its group was seen.
RETURNING = 0.75
# Statistics this far below the key's count as exceeding it: rounding, which differs between machines, may separate
# statistics that are equal, and near ties count against the mark.
TOLERANCE = 1e-4

_RESCALED_EVERY = 8


class DeterministicDraws:
    """A stream of random numbers that depends on a text and a purpose only: the same for every key, on every machine.

    It is Philox's raw output (the same in every version of numpy), keyed by a SHA-256 of the purpose, the token ids and
    their positions. So whoever checks a p-value draws the same keys.
    """

    def __init__(
        self,
        purpose: str,
        ids: Int[np.ndarray, " n"],
        positions: Int[np.ndarray, " n"],
        secret: bytes | None = None,
    ) -> None:
        """Begin the stream.

        Args:
            purpose: what the numbers are for; two purposes have independent streams.
            ids: the scored token ids.
            positions: their positions.
            secret: more to key the stream with, for numbers that are not public.
        """
        header = f"dgmark/{purpose}".encode() + b"\0" + len(ids).to_bytes(8, "little")
        text = ids.astype("<i8").tobytes() + positions.astype("<i8").tobytes()
        seed = hashlib.sha256(header + text + (secret or b"")).digest()
        self._words = np.random.Philox(key=int.from_bytes(seed[:16], "little"))

    def groups(self, rows: int, keys: int, modulus: int) -> UInt8[np.ndarray, "rows keys"]:
        """Draw the groups of `keys` random keys, independent and uniform on 0..modulus-1 (up to a bias of 1e-8)."""
        count = rows * keys
        if modulus == 2:
            octets = self._words.random_raw(-(-count // 64)).astype("<u8").view(np.uint8)
            return np.unpackbits(octets, count=count).reshape(rows, keys)
        halves = self._halves(count).astype(np.uint64)
        return (halves * np.uint64(modulus) >> np.uint64(32)).astype(np.uint8).reshape(rows, keys)

    def uniform(self, *shape: int) -> Float32[np.ndarray, "..."]:
        """Draw multiples of 2^-24 from [0, 1)."""
        halves = self._halves(math.prod(shape))
        return ((halves >> np.uint32(8)).astype(np.float32) * np.float32(2**-24)).reshape(shape)

    def _halves(self, count: int) -> np.ndarray:
        return np.asarray(self._words.random_raw(-(-count // 2)).astype("<u8").view("<u4")[:count])


@dataclass(frozen=True)
class ImportanceSample:
    """Several keys, given or drawn, under one proposal.

    Attributes:
        groups: each key's group of each row of the model's `distinct`.
        statistics: logarithm of each key's statistic; larger if the mark is present.
        log_ratios: logarithm of each key's likelihood ratio times the proposal's share that is not uniform.
        weights: importance weight of each key: its chance at random over its chance of being drawn; at most
            1 / UNIFORM.
    """

    groups: UInt8[np.ndarray, "rows keys"]
    statistics: Float64[np.ndarray, " keys"]
    log_ratios: Float64[np.ndarray, " keys"]
    weights: Float64[np.ndarray, " keys"]


def weighted_rank(statistics: Float[np.ndarray, " keys"], weights: Float[np.ndarray, " keys"]) -> float:
    """The p-value of the first key: its weight, and those of the drawn keys that do as well, over their number.

    Args:
        statistics: statistic of the key and of each drawn key.
        weights: their importance weights.
    """
    as_well = statistics >= statistics[0] - TOLERANCE
    as_well[0] = True
    return float(min(1.0, weights[as_well].sum() / len(weights)))


@dataclass(frozen=True)
class Proposal:
    """The distribution of keys that fit one text: a mixture of intact, edited and unmarked text.

    Attributes:
        model: the hidden Markov model of the text.
        intact: whether text that nobody edited is part of the mixture.
    """

    model: HiddenMarkovModel
    intact: bool = True

    @cached_property
    def shares(self) -> tuple[float, float]:
        """The mixture's shares of intact and of edited text; the rest is uniform."""
        on_intact = ON_INTACT if self.intact else 0.0
        return on_intact, 1 - UNIFORM - on_intact

    def sample(
        self,
        keys: UInt8[np.ndarray, "rows given"],
        draws: int = 0,
        random: DeterministicDraws | None = None,
    ) -> ImportanceSample:
        """Evaluate `keys`, and as many keys as `draws` says, drawn from the proposal and independent of `keys`.

        Args:
            keys: groups of the keys given, one column a key.
            draws: number of keys to draw.
            random: random numbers for the draws, if there are any.

        Returns:
            The keys given first, then those drawn.
        """
        on_intact, on_edited = self.shares
        known, rest = keys, None
        if draws and random is not None:
            choices = random.uniform(draws)
            uniform = int(np.count_nonzero(choices < UNIFORM))
            whole = int(np.count_nonzero(choices < UNIFORM + on_intact)) - uniform
            free = random.groups(len(keys), uniform, self.model.modulus)
            known = np.concatenate([keys, free, self.draw_intact(whole, random)], axis=1)
            rest = random.uniform(len(keys), draws - uniform - whole)
        groups, edited, returning = self._filter(known, rest)
        edited += np.log(on_edited / len(MIXTURE))
        intact = np.full(groups.shape[1], -np.inf)
        if on_intact:
            intact = self.log_ratio_intact(groups) + np.log(on_intact)
        ratios = np.logaddexp(np.logaddexp.reduce(edited, axis=0), intact)
        statistics = np.logaddexp(np.logaddexp.reduce(edited + RETURNING * returning, axis=0), intact)
        return ImportanceSample(groups, statistics, ratios, np.exp(-np.logaddexp(np.log(UNIFORM), ratios)))

    # --- text that nobody edited -----------------------------------------------------------------

    @cached_property
    def _wanted_counts(self) -> Int[np.ndarray, "rows states modulus"]:
        """How many tokens of each row want each residue, in each state."""
        model = self.model
        shape = (len(model.distinct), model.states, model.modulus)
        places = (model.items * model.states + np.arange(model.states)) * model.modulus + model.wanted
        counts: Int[np.ndarray, "rows states modulus"] = np.bincount(places.ravel(), minlength=int(np.prod(shape)))
        return counts.reshape(shape)

    def _log_odds(self, strength: float) -> Float[np.ndarray, "rows states modulus"]:
        """Logarithm of m times the chance of each group, if the text is intact and in this state."""
        step = np.log1p((self.model.modulus - 1) * strength) - np.log1p(-strength)
        logs = self._wanted_counts * step
        logs -= logs.max(axis=2, keepdims=True)
        odds: Float[np.ndarray, "rows states modulus"] = logs - np.log(np.exp(logs).mean(axis=2, keepdims=True))
        return odds

    def log_ratio_intact(self, groups: UInt8[np.ndarray, "rows keys"]) -> Float[np.ndarray, " keys"]:
        """Logarithm of the likelihood ratio of each key if nobody edited the text; the mean ratio is 1."""
        with np.errstate(divide="ignore"):
            first = np.log(self.model.first)[:, None]
        others = [(groups == group).astype(np.float64) for group in range(1, self.model.modulus)]
        logs = []
        for strength in INTACT:
            odds = self._log_odds(strength)
            ratio = odds[:, :, 0].sum(axis=0)[:, None] + np.zeros(groups.shape[1])
            for group, has in enumerate(others, 1):
                ratio += (odds[:, :, group] - odds[:, :, 0]).T @ has
            logs.append(np.logaddexp.reduce(ratio + first, axis=0))
        total: Float[np.ndarray, " keys"] = np.logaddexp.reduce(logs, axis=0) - np.log(len(INTACT))
        return total

    def draw_intact(self, draws: int, random: DeterministicDraws) -> UInt8[np.ndarray, "rows draws"]:
        """Draw keys that fit a text that nobody edited."""
        parts = (random.uniform(draws) * np.float32(len(INTACT))).astype(np.int64)
        cumulated = np.cumsum(self.model.first)
        states = np.minimum(np.searchsorted(cumulated, random.uniform(draws), side="right"), len(cumulated) - 1)
        uniform = random.uniform(len(self.model.distinct), draws)
        groups = np.zeros(uniform.shape, dtype=np.uint8)
        for part, strength in enumerate(INTACT):
            ours = parts == part
            below = np.cumsum(np.exp(self._log_odds(strength)) / self.model.modulus, axis=2)[:, :, :-1]
            for bound in np.moveaxis(below, 2, 0):
                groups[:, ours] += uniform[:, ours] >= bound[:, states[ours]]
        return groups

    # --- edited text -----------------------------------------------------------------------------

    @cached_property
    def _reading(self) -> list[list[tuple[int, slice, bool]]]:
        """For each token: its rows, the states in which it is in this row, and whether the row is new."""
        rows_of = self.model.items
        whole = slice(0, self.model.states)
        seen: set[int] = set()
        reading = []
        for rows in rows_of.tolist():
            # the states of a row are next to each other, as shifts of one segment are
            edges = [s for s in range(1, len(rows)) if rows[s] != rows[s - 1]]
            pieces = [slice(a, b) for a, b in zip([0, *edges], [*edges, len(rows)], strict=True)]
            steps = [(rows[piece.start], piece if len(rows) > 1 else whole) for piece in pieces]
            # rows seen before come first: they tell the phase before the new ones are drawn
            steps.sort(key=lambda step: step[0] not in seen)
            reading.append([(row, piece, row not in seen) for row, piece in steps])
            seen.update(row for row, _ in steps)
        return reading

    def _filter(
        self, known: UInt8[np.ndarray, "rows given"], uniform: Float32[np.ndarray, "rows drawn"] | None
    ) -> tuple[
        UInt8[np.ndarray, "rows keys"], Float64[np.ndarray, "mixture keys"], Float64[np.ndarray, "mixture keys"]
    ]:
        """Run the forward filter under every key, and draw the groups of some keys on the way.

        Only sums, products and quotients of single precision decide a draw, so every machine draws the same keys.

        Returns:
            The groups; the logarithm of each part's likelihood ratio by new tokens, and by tokens that return.
        """
        model = self.model
        given = known.shape[1]
        drawn = 0 if uniform is None else uniform.shape[1]
        groups = np.empty((len(model.distinct), given + drawn), dtype=np.uint8)
        groups[:, :given] = known
        state = (TwoPhaseFilter if model.mirrored else ForwardFilter)(model, given + drawn)
        for token, steps in enumerate(self._reading):
            if token:
                state.move()
            for row, states, new in steps:
                wanted = model.wanted[token, states]
                if new and uniform is not None and drawn:
                    groups[row, given:] = state.draw(states, wanted, uniform[row], given)
                state.update(states, groups[row], wanted, new=new)
            if token % _RESCALED_EVERY == _RESCALED_EVERY - 1:
                state.rescale()
        state.rescale()
        return groups, state.log_scales + np.log(state.ratios), state.log_returning
