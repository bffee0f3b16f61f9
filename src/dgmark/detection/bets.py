"""Bets on the groups of a text's tokens: the statistic of a key, and random keys that the bettor holds likely.

A bettor who takes the text for marked reads it in order. Where a token stands for the first time she bets on its group,
by the phases that she holds likely after all tokens before. Her winnings on a key are a likelihood ratio: the chance
that her bets draw these groups, over the chance of a random key. So keys can be drawn from her bets, each with the
exact ratio of the two chances. Tokens that return carry no bet, but tell the phase, and count in the statistic. Knows
the alignment model only. Ours; after Harrison (2012) on importance sampling and the forward algorithm.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Float32, Float64, Int, UInt8

from dgmark.detection.alignment import Alignment
from dgmark.detection.hidden_phase import ENTER, FAR, INTACT, LEAVE, MIXTURE, NEAR, beginning, emissions
from dgmark.detection.public_numbers import PublicNumbers

# Shares of the bettor's stake. Keys drawn without a bet keep every weight below 1 / UNBET, which makes large p-values
# as exact as plain ranks.
UNBET, ON_INTACT = 0.1, 0.2
# How much a token that returns counts in the statistic, next to one that is new: less than 1, since its group was seen.
RETURNING = 0.75

_RESCALED_EVERY = 8
_EVEN = 2.0**-20


@dataclass(frozen=True)
class Plays:
    """The bettor's games on several keys.

    Attributes:
        groups: each key's group of each row of the alignment's `distinct`.
        statistics: logarithm of each key's statistic; larger if the mark is present.
        log_winnings: logarithm of the bettor's winnings on each key, of the part of her stake that she bets.
        weights: chance of the key over the chance that the bets draw it; at most 1 / UNBET.
    """

    groups: UInt8[np.ndarray, "rows keys"]
    statistics: Float64[np.ndarray, " keys"]
    log_winnings: Float64[np.ndarray, " keys"]
    weights: Float64[np.ndarray, " keys"]


@dataclass(frozen=True)
class Bets:
    """The bets on one text.

    Attributes:
        alignment: the hidden-phase model of the text.
        intact: whether the bettor also bets on text that nobody edited.
    """

    alignment: Alignment
    intact: bool = True

    @cached_property
    def stakes(self) -> tuple[float, float]:
        """The shares of the stake on intact and on edited text."""
        on_intact = ON_INTACT if self.intact else 0.0
        return on_intact, 1 - UNBET - on_intact

    def play(
        self,
        keys: UInt8[np.ndarray, "rows given"],
        draws: int = 0,
        numbers: PublicNumbers | None = None,
    ) -> Plays:
        """Play on `keys`, and on as many keys as `draws` says, drawn from the bets and independent of `keys`.

        Args:
            keys: groups of the keys given, one column a key.
            draws: number of keys to draw.
            numbers: random numbers for the draws, if there are any.

        Returns:
            The games: the keys given first, then those drawn.
        """
        on_intact, on_edited = self.stakes
        known, rest = keys, None
        if draws and numbers is not None:
            choices = numbers.uniform(draws)
            unbet = int(np.count_nonzero(choices < UNBET))
            whole = int(np.count_nonzero(choices < UNBET + on_intact)) - unbet
            free = numbers.groups(len(keys), unbet, self.alignment.modulus)
            known = np.concatenate([keys, free, self.drawn_intact(whole, numbers)], axis=1)
            rest = numbers.uniform(len(keys), draws - unbet - whole)
        groups, won, returning = self._read(known, rest)
        won += np.log(on_edited / len(MIXTURE))
        log_intact = self.log_intact(groups) + np.log(on_intact) if on_intact else np.full(groups.shape[1], -np.inf)
        winnings = np.logaddexp(np.logaddexp.reduce(won, axis=0), log_intact)
        statistics = np.logaddexp(np.logaddexp.reduce(won + RETURNING * returning, axis=0), log_intact)
        return Plays(groups, statistics, winnings, np.exp(-np.logaddexp(np.log(UNBET), winnings)))

    # --- text that nobody edited -----------------------------------------------------------------

    @cached_property
    def _wanted_counts(self) -> Int[np.ndarray, "rows states modulus"]:
        """How many tokens of each row want each residue, in each state."""
        model = self.alignment
        shape = (len(model.distinct), model.states, model.modulus)
        places = (model.items * model.states + np.arange(model.states)) * model.modulus + model.wanted
        counts: Int[np.ndarray, "rows states modulus"] = np.bincount(places.ravel(), minlength=int(np.prod(shape)))
        return counts.reshape(shape)

    def _log_odds(self, strength: float) -> Float[np.ndarray, "rows states modulus"]:
        """Logarithm of m times the chance of each group, if the text is intact and in this state."""
        step = np.log1p((self.alignment.modulus - 1) * strength) - np.log1p(-strength)
        logs = self._wanted_counts * step
        logs -= logs.max(axis=2, keepdims=True)
        odds: Float[np.ndarray, "rows states modulus"] = logs - np.log(np.exp(logs).mean(axis=2, keepdims=True))
        return odds

    def log_intact(self, groups: UInt8[np.ndarray, "rows keys"]) -> Float[np.ndarray, " keys"]:
        """Logarithm of the winnings on each key of a bettor who knows that nobody edited the text; their mean is 1."""
        with np.errstate(divide="ignore"):
            first = np.log(self.alignment.first)[:, None]
        others = [(groups == group).astype(np.float64) for group in range(1, self.alignment.modulus)]
        logs = []
        for strength in INTACT:
            odds = self._log_odds(strength)
            won = odds[:, :, 0].sum(axis=0)[:, None] + np.zeros(groups.shape[1])
            for group, has in enumerate(others, 1):
                won += (odds[:, :, group] - odds[:, :, 0]).T @ has
            logs.append(np.logaddexp.reduce(won + first, axis=0))
        total: Float[np.ndarray, " keys"] = np.logaddexp.reduce(logs, axis=0) - np.log(len(INTACT))
        return total

    def drawn_intact(self, draws: int, numbers: PublicNumbers) -> UInt8[np.ndarray, "rows draws"]:
        """Keys that the bettor holds likely if nobody edited the text."""
        parts = (numbers.uniform(draws) * np.float32(len(INTACT))).astype(np.int64)
        cumulated = np.cumsum(self.alignment.first)
        states = np.minimum(np.searchsorted(cumulated, numbers.uniform(draws), side="right"), len(cumulated) - 1)
        uniform = numbers.uniform(len(self.alignment.distinct), draws)
        groups = np.zeros(uniform.shape, dtype=np.uint8)
        for part, strength in enumerate(INTACT):
            ours = parts == part
            below = np.cumsum(np.exp(self._log_odds(strength)) / self.alignment.modulus, axis=2)[:, :, :-1]
            for bound in np.moveaxis(below, 2, 0):
                groups[:, ours] += uniform[:, ours] >= bound[:, states[ours]]
        return groups

    # --- edited text -----------------------------------------------------------------------------

    @cached_property
    def _reading(self) -> list[list[tuple[int, slice, bool]]]:
        """For each token: its rows, the states in which it is in this row, and whether the row is new."""
        rows_of = self.alignment.items
        whole = slice(0, self.alignment.states)
        seen: set[int] = set()
        reading = []
        for rows in rows_of.tolist():
            # the states of a row are next to each other, as shifts of one segment are
            edges = [s for s in range(1, len(rows)) if rows[s] != rows[s - 1]]
            pieces = [slice(a, b) for a, b in zip([0, *edges], [*edges, len(rows)], strict=True)]
            steps = [(rows[piece.start], piece if len(rows) > 1 else whole) for piece in pieces]
            # rows seen before come first: they tell the phase before the bets on the new ones
            steps.sort(key=lambda step: step[0] not in seen)
            reading.append([(row, piece, row not in seen) for row, piece in steps])
            seen.update(row for row, _ in steps)
        return reading

    def _read(
        self, known: UInt8[np.ndarray, "rows given"], uniform: Float32[np.ndarray, "rows drawn"] | None
    ) -> tuple[
        UInt8[np.ndarray, "rows keys"], Float64[np.ndarray, "mixture keys"], Float64[np.ndarray, "mixture keys"]
    ]:
        """Read the text under every key, and draw the groups of some keys on the way.

        Only sums, products and quotients of single precision decide a draw, so every machine draws the same keys.

        Returns:
            The groups; the logarithm of each part's winnings; of the chance that each part gives the returning tokens.
        """
        model = self.alignment
        given = known.shape[1]
        drawn = 0 if uniform is None else uniform.shape[1]
        groups = np.empty((len(model.distinct), given + drawn), dtype=np.uint8)
        groups[:, :given] = known
        game = _TwoPhaseGame(model, given + drawn) if model.mirrored else _Game(model, given + drawn)
        for token, steps in enumerate(self._reading):
            if token:
                game.move()
            for row, states, new in steps:
                wanted = model.wanted[token, states]
                if new and uniform is not None and drawn:
                    groups[row, given:] = game.drawn(states, wanted, uniform[row], given)
                game.reveal(states, groups[row], wanted, new=new)
            if token % _RESCALED_EVERY == _RESCALED_EVERY - 1:
                game.rescale()
        game.rescale()
        return groups, game.logs_won + np.log(game.won), game.logs_returning


class _Game:
    """The state of the bettor on several keys while she reads a text.

    Attributes:
        phases: (mixture, states, keys) each part's winnings so far, divided among the states of the current token.
        outside: (keys,) those of the last part that lie outside the mark.
        won: (mixture, keys) each part's winnings so far; the sum of the two above.
    """

    def __init__(self, model: Alignment, keys: int) -> None:
        self.modulus, self.states = model.modulus, model.states
        start = beginning(model.first)
        self.phases = np.repeat(start[:, :-1, None], keys, axis=2).astype(np.float32)
        self.neighbours = np.empty_like(self.phases)  # room for the sums of each phase's two neighbours
        self.outside = np.full(keys, start[-1, -1], dtype=np.float32)
        self.won = np.ones((len(MIXTURE), keys), dtype=np.float32)
        self.returning = np.ones((len(MIXTURE), keys), dtype=np.float32)
        self.logs_won, self.logs_returning = np.zeros((1, keys)), np.zeros((len(MIXTURE), keys))
        self.missed, self.gain = emissions(model.modulus, np.float32)
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
        if self.states == 2:
            other = phases[:, ::-1] * self.there
            phases *= self.here
            phases += other
        else:
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

    def drawn(
        self,
        states: slice,
        wanted: UInt8[np.ndarray, " some"],
        uniform: Float32[np.ndarray, " drawn"],
        given: int,
    ) -> UInt8[np.ndarray, " drawn"]:
        """Draw a row's group for the keys from number `given` on, by the bets of all parts together."""
        total = self.won[:, given:].sum(axis=0)
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

    def reveal(
        self, states: slice, groups: UInt8[np.ndarray, " keys"], wanted: UInt8[np.ndarray, " some"], *, new: bool
    ) -> None:
        """Show a row's group: it wins or loses if it is new, and tells the phase in any case."""
        factors = self.gain * (groups == wanted[:, None]).astype(np.float32)
        factors += self.missed
        self.phases[:, states] *= factors
        self._settle(self.phases.sum(axis=1), new=new)

    def _settle(self, now: Float32[np.ndarray, "mixture keys"], *, new: bool) -> None:
        """Take what lies inside the mark now as won, or as told by a token that returned, which wins nothing."""
        now[-1] += self.outside
        if new:
            self.won = now
        else:
            now /= self.won
            self.returning *= now
            self.scale(1 / now)

    def rescale(self) -> None:
        """Keep the numbers in the range of single precision: scale them, and let no part's winnings vanish.

        To this end the parts give a millionth of their money to all parts alike, which no bet forbids.
        """
        total = self.won.sum(axis=0)
        factors = (np.float32(_EVEN / len(MIXTURE)) * total / self.won + np.float32(1 - _EVEN)) / total
        self.scale(factors)
        self.won *= factors
        self.logs_won += np.log(total, dtype=np.float64)
        self.logs_returning += np.log(self.returning, dtype=np.float64)
        self.returning[:] = 1

    def scale(self, factors: Float32[np.ndarray, "mixture keys"]) -> None:
        """Multiply each part's division of its money among the states."""
        self.phases *= factors[:, None]
        self.outside *= factors[-1]


class _TwoPhaseGame(_Game):
    """The same game with two phases, in a third of the time, from the sum and the difference of the two phases.

    A match in the first phase multiplies its part by 1 + a and that of the second by 1 - a, and the reverse.

    Attributes:
        inside: (mixture, keys) each part's winnings so far that lie inside the mark.
        lead: (mixture, keys) how much more of them lies in the first phase than in the second.
    """

    def __init__(self, model: Alignment, keys: int) -> None:
        super().__init__(model, keys)
        self.inside = self.phases.sum(axis=1)
        self.lead = self.phases[:, 0] - self.phases[:, 1]
        self.kept = (self.here - self.there)[:, 0]
        self.strengths = self.gain[:, 0] / np.float32(2)

    def move(self) -> None:
        self.lead *= self.kept
        left = self.inside[-1] * np.float32(LEAVE)
        left -= self.outside * np.float32(ENTER)
        self.inside[-1] -= left
        self.outside += left

    def drawn(
        self,
        states: slice,  # noqa: ARG002 (without rotation, a token is in one row in all states)
        wanted: UInt8[np.ndarray, " some"],
        uniform: Float32[np.ndarray, " drawn"],
        given: int,
    ) -> UInt8[np.ndarray, " drawn"]:
        """Draw a row's group, which is one of two, from the lead of the first phase alone."""
        total = self.won[:, given:].sum(axis=0)
        gained = (self.lead[:, given:] * self.strengths).sum(axis=0)
        bound = uniform * np.float32(2)
        bound *= total
        bound -= total
        drawn: UInt8[np.ndarray, " drawn"] = (bound >= (-gained if wanted[0] else gained)).view(np.uint8)
        return drawn

    def reveal(
        self,
        states: slice,  # noqa: ARG002
        groups: UInt8[np.ndarray, " keys"],
        wanted: UInt8[np.ndarray, " some"],
        *,
        new: bool,
    ) -> None:
        """Show a row's group, by what it adds to the lead of the first phase."""
        signed = self.strengths * _SIGNS[wanted[0]][groups]
        gained = self.lead * signed
        signed *= self.inside
        self.lead += signed
        self.inside += gained
        self._settle(self.inside.copy(), new=new)

    def scale(self, factors: Float32[np.ndarray, "mixture keys"]) -> None:
        self.inside *= factors
        self.lead *= factors
        self.outside *= factors[-1]


# for the residue that the first phase wants, the sign of each group: 1 if it matches in the first phase
_SIGNS = np.array([[1, -1], [-1, 1]], dtype=np.float32)
