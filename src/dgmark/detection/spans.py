"""Which stretches of a text carry the mark, with the family-wise error controlled over all stretches.

Every stretch has a statistic (`scan.py`). Its p-value is the chance that under a random key any stretch of this text
has one as large, from keys drawn by bets that one stretch or another is marked (importance sampling, as in
`aligned.py`). So whatever is chosen by looking, the chance to report a stretch without marked text is at most the
false-positive rate. Knows tokens and their positions only. Ours; the paper tests whole texts.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from dgmark.detection.aligned import SCREEN, SCREEN_DRAWS, TOLERANCE
from dgmark.detection.alignment import Alignment, states_of
from dgmark.detection.bets import UNBET, Bets
from dgmark.detection.blocks import SHORTEST
from dgmark.detection.match_null import SMALLEST_P
from dgmark.detection.public_numbers import PublicNumbers
from dgmark.detection.scan import grids_of, scan
from dgmark.detection.shares import balance_of, bonferroni_p
from dgmark.errors import SettingsError
from dgmark.watermark.groups import GroupTables, WatermarkSpec

# tokens x hidden states of one text: about 1 GB of memory
LARGEST = 2**21
# keys drawn for one text: as many as the work (keys x tokens x states) allows
MOST_DRAWS, FEWEST_DRAWS, WORK = 500, 63, 2**25
# stretches x keys, and matches, in memory at once
_AT_ONCE = 2**23


@dataclass(frozen=True)
class Stretch:
    """Scored tokens [first, last) that carry the mark.

    The p-value tests the best part on the grids and pays for all stretches.
    """

    first: int
    last: int
    p_value: float


def check_length(spec: WatermarkSpec, scored: int) -> None:
    """Refuse a text whose spans would need too much memory.

    Raises:
        SettingsError: the text has too many tokens for this key's number of hidden states.
    """
    most = LARGEST // states_of(spec)
    if scored > most:
        raise SettingsError(
            f"{scored} tokens are too many to find spans with this key: cut the text to {most} tokens at most"
        )


def find_stretches(
    tables: GroupTables, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], fpr: float
) -> list[Stretch]:
    """Find the stretches of scored `ids` that carry the mark, in order; the family-wise error is at most `fpr`.

    Args:
        tables: the key's groups and position code.
        ids: scored token ids.
        positions: their positions, counted from the first token of the text.
        fpr: the largest chance to report any stretch without marked text.
    """
    if len(ids) < SHORTEST:
        return []
    return sorted(Search(tables, ids, positions).stretches(fpr), key=lambda stretch: stretch.first)


@dataclass(frozen=True)
class _Drawn:
    """Keys drawn for one text.

    Attributes:
        best: the statistic of each drawn key's best stretch.
        weights: chance of each drawn key over its chance of being drawn.
        windows: the windows that bets are on.
        winnings: the real key's winnings on each window.
    """

    best: Float[np.ndarray, " draws"]
    weights: Float[np.ndarray, " draws"]
    windows: list[slice]
    winnings: Float[np.ndarray, " windows"]


class Search:
    """The stretches of one text under one key."""

    def __init__(self, tables: GroupTables, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> None:
        self.tables, self.ids, self.positions = tables, ids, positions
        self.model = Alignment.of(ids, positions, tables)
        self.key = self.model.groups(tables)[:, None]
        self.grids = grids_of(len(ids))
        self.first = np.concatenate([grid.first * grid.unit for grid in self.grids])
        self.last = np.concatenate([grid.last * grid.unit for grid in self.grids])
        self.statistics = scan(self.model, self.grids, self.key)[:, 0]
        segments = np.unique(self.model.distinct[:, 1], return_counts=True)[1].tolist()
        self.balance = balance_of(tables.spec, segments)

    def stretches(self, fpr: float) -> list[Stretch]:
        """The stretches to report, the best first.

        A stretch on a grid that passes stands for the run of tokens around it that are probably inside the mark, if it,
        or another one that passes and overlaps it, lies within this run; else for itself.
        """
        if self.p_value(int(self.statistics.argmax())) > fpr:
            return []
        inside = self.model.posterior(self.key[:, 0]).mixed > 0.5
        edges = np.flatnonzero(np.diff(inside, prepend=False, append=False))
        runs = edges.reshape(-1, 2).tolist()
        free = np.ones(len(self.statistics), dtype=bool)
        found: list[Stretch] = []
        while free.any():
            place = self._best_of(free)
            best = Stretch(int(self.first[place]), int(self.last[place]), self.p_value(place))
            if best.p_value > fpr:
                break
            for first, last in runs:
                within = free & (self.first >= first) & (self.last <= last)
                within &= (self.first < best.last) & (self.last > best.first)
                if within.any() and (p_value := self.p_value(self._best_of(within))) <= fpr:
                    best = Stretch(first, last, p_value)
                    break
            found.append(best)
            free &= (self.last <= best.first) | (self.first >= best.last)
        return found

    def part(self, first: int, last: int, fpr: float) -> Stretch | None:
        """The tokens [first, last) as a stretch to report; None if no stretch inside them passes."""
        within = (self.first >= first) & (self.last <= last)
        p_value = self.p_value(self._best_of(within)) if within.any() else 1.0
        return Stretch(first, last, p_value) if p_value <= fpr else None

    def _best_of(self, some: Bool[np.ndarray, " stretches"]) -> int:
        return int(np.where(some, self.statistics, -np.inf).argmax())

    def p_value(self, place: int) -> float:
        """The p-value of a stretch: the chance that any stretch is as good under a random key."""
        statistic = float(self.statistics[place])
        rank = (1 + int(np.count_nonzero(self._at_random >= statistic - TOLERANCE))) / (1 + SCREEN_DRAWS)
        if rank > SCREEN:
            return bonferroni_p(rank, self.balance)
        drawn = self._drawn
        # the key's own weight, by the bets near this stretch alone: a marked passage elsewhere proves nothing here
        near = [w.start < self.last[place] and w.stop > self.first[place] for w in drawn.windows]
        own = 1 / (UNBET + drawn.winnings[near].sum())
        p = (own + drawn.weights[drawn.best >= statistic - TOLERANCE].sum()) / (1 + len(drawn.best))
        return max(SMALLEST_P, bonferroni_p(float(p), self.balance))

    @cached_property
    def _at_random(self) -> Float[np.ndarray, " keys"]:
        """The statistic of the best stretch under each of a few random keys."""
        numbers = PublicNumbers("spans-screen/v3", self.ids, self.positions)
        return self._best(numbers.groups(len(self.key), SCREEN_DRAWS, self.model.modulus))

    def _best(self, groups: UInt8[np.ndarray, "rows keys"]) -> Float[np.ndarray, " keys"]:
        """The statistic of the best stretch under each key."""
        step = max(1, _AT_ONCE // max(self.model.wanted.size, len(self.statistics)))
        return np.concatenate(
            [
                scan(self.model, self.grids, groups[:, begin : begin + step]).max(axis=0)
                for begin in range(0, groups.shape[1], step)
            ]
        )

    @cached_property
    def _drawn(self) -> "_Drawn":
        """Keys drawn by bets on one window or another."""
        draws = max(FEWEST_DRAWS, min(MOST_DRAWS, WORK // self.model.wanted.size))
        numbers = PublicNumbers("spans/v3", self.ids, self.positions)
        windows, stakes = windows_of(len(self.ids))
        chosen = np.minimum(np.searchsorted(np.cumsum(stakes), numbers.uniform(draws)), len(windows) - 1)
        bet = numbers.uniform(draws) >= UNBET
        groups = numbers.groups(len(self.key), draws, self.model.modulus)
        bets = [self._bets_on(window) for window in windows]
        for number, (rows, on_window) in enumerate(bets):
            ours = np.flatnonzero(bet & (chosen == number))
            if len(ours):
                groups[np.ix_(rows, ours)] = on_window.drawn_intact(len(ours), numbers)
        everyone = np.concatenate([self.key, groups], axis=1)
        winnings = np.stack([np.exp(on_window.log_intact(everyone[rows])) for rows, on_window in bets])
        winnings *= (1 - UNBET) * stakes[:, None]
        return _Drawn(self._best(groups), 1 / (UNBET + winnings[:, 1:].sum(axis=0)), windows, winnings[:, 0])

    def _bets_on(self, window: slice) -> tuple[Int[np.ndarray, " some"], Bets]:
        """The bets on one window, and the rows of the whole text's model that they are on."""
        model = Alignment.of(self.ids[window], self.positions[window], self.tables)
        size = self.tables.spec.table_size
        ours, all_rows = (d[:, 1] * size + d[:, 0] for d in (model.distinct, self.model.distinct))
        return np.searchsorted(all_rows, ours), Bets(model)


def windows_of(n: int) -> tuple[list[slice], Float[np.ndarray, " windows"]]:
    """The windows that bets are on, and their shares of the stake: 2, 4, 8, ... blocks each, half overlapping."""
    windows: list[slice] = []
    sizes: list[int] = []
    length = 2 * SHORTEST
    while length <= n:
        starts = range(0, n - length + 1, length // 2)
        windows += [slice(start, start + length) for start in starts]
        sizes += [len(starts)] * len(starts)
        length *= 2
    if not windows:
        return [slice(0, n)], np.ones(1)
    shares = 1 / np.array(sizes)
    return windows, shares / shares.sum()
