"""Which spans of a text carry the mark, with the family-wise error controlled over all spans and all sub-keys.

Every span has a statistic (`scan_statistic.py`). Its p-value is the chance that under a random key any span of this
text has one as large, from keys drawn as if one window or another were marked (importance sampling, as in
`edit_test.py`). So whatever is chosen by looking, the chance to report a span without marked text is at most the
false-positive rate. A text may be pasted together from several marked ones, each with a sub-key of its own: the
sub-keys whose best spans rank first are searched one after another, each at its share of the rate, until one shows
nothing. Knows tokens and their positions only. Ours; the paper tests whole texts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from dgmark.detection.edit_test import MIN_BLOCK, SCREEN, SCREEN_DRAWS
from dgmark.detection.exact_test import MIN_P, bonferroni_p
from dgmark.detection.hidden_markov import HiddenMarkovModel, states_of
from dgmark.detection.importance_sampling import TOLERANCE, UNIFORM, DeterministicDraws, Proposal
from dgmark.detection.key_search import KeyCandidates, best_of, subkeys_of
from dgmark.detection.reader import ScoredIds
from dgmark.detection.scan_statistic import Grid, grids_of, scan
from dgmark.errors import SettingsError
from dgmark.watermark.groups import GroupTables
from dgmark.watermark.key import WatermarkKey

# tokens x hidden states of one text: about 1 GB of memory
MAX_CELLS = 2**21
# keys drawn for one text: as many as the work (keys x tokens x states) allows
MAX_DRAWS, MIN_DRAWS, WORK = 500, 63, 2**25
# sub-keys that are searched
_MAX_SEARCHED = 16
# spans x keys, and matches, in memory at once
_AT_ONCE = 2**23
# tokens x states x sub-keys whose spans are in memory at once
_RANKED_AT_ONCE = 2**18
# statistics that differ by less are equal: rounding, which differs between machines, chooses no span
_ROUNDED = 9


@dataclass(frozen=True)
class TokenSpan:
    """Scored tokens [first, last) that carry the mark.

    The p-value tests the best part on the grids and pays for all spans.
    """

    first: int
    last: int
    p_value: float


def find_spans(
    key: WatermarkKey, tokens: ScoredIds, fpr: float, *, constant_work: bool = False
) -> list[tuple[int | None, TokenSpan]]:
    """Find the spans that carry the mark of a key or of any of its sub-keys, each with its sub-key, in order.

    Spans do not overlap: one is cut back to its longest part that is in none with a smaller p-value, if this part
    passes by itself, and left out if not.

    Args:
        key: the key.
        tokens: the scored tokens.
        fpr: the largest chance to report any span without marked text, over all sub-keys.
        constant_work: draw keys for every text, so that the time does not tell how near one is to having a span.

    Raises:
        SettingsError: the text has too many tokens for this key's number of hidden states.
    """
    longest = MAX_CELLS // states_of(key.spec)
    if len(tokens.ids) > longest:
        raise SettingsError(
            f"{len(tokens.ids)} tokens are too many to find spans with this key: cut the text to {longest} at most"
        )
    if len(tokens.ids) < MIN_BLOCK:
        return []
    tried = key.num_subkeys
    found: list[tuple[WatermarkKey, SpanSearch, TokenSpan]] = []
    for one in [key] if tried == 1 else _likeliest(key, tokens):
        search = SpanSearch(one.tables, tokens)
        if constant_work:
            search.draw()
        spans = search.spans(fpr / tried)
        if not spans:
            break
        found += [(one, search, span) for span in spans]
    found.sort(key=lambda each: each[2].p_value)
    kept = sorted(_disjoint(found, fpr / tried, len(tokens.ids)), key=lambda each: each[1].first)
    return [(one.number, replace(span, p_value=bonferroni_p(span.p_value, tried))) for one, span in kept]


def _likeliest(key: WatermarkKey, tokens: ScoredIds) -> list[WatermarkKey]:
    """The sub-keys with the best spans, the best first."""
    model, grids = HiddenMarkovModel.of(tokens.ids, tokens.positions, key.subkey(0).tables), grids_of(len(tokens.ids))
    best = best_of(subkeys_of([key], model.distinct), lambda part: _best_statistics(model, grids, part), _MAX_SEARCHED)
    return [key.subkey(int(number)) for number in best.numbers]


def _best_statistics(model: HiddenMarkovModel, grids: list[Grid], part: KeyCandidates) -> Float[np.ndarray, " count"]:
    """The statistic of the best span under each sub-key."""
    step = 1 if part.codes is not None else max(1, _RANKED_AT_ONCE // model.wanted.size)
    best = []
    for begin in range(0, len(part.numbers), step):
        own = model if part.codes is None else replace(model, wanted=part.codes[begin][model.places])
        best.append(scan(own, grids, part.groups[:, begin : begin + step]).max(axis=0))
    return np.concatenate(best)


def _disjoint(
    found: Sequence[tuple[WatermarkKey, "SpanSearch", TokenSpan]], level: float, n: int
) -> Iterator[tuple[WatermarkKey, TokenSpan]]:
    """The spans, each cut back to its longest part that is in none before it; a part that fails is left out."""
    free: Bool[np.ndarray, " n"] = np.ones(n, dtype=bool)
    for key, search, span in found:
        runs = [(a + span.first, b + span.first) for a, b in _runs(free[span.first : span.last])]
        first, last = max(runs, key=lambda run: run[1] - run[0], default=(0, 0))
        kept = span if (first, last) == (span.first, span.last) else search.part(first, last, level)
        if kept:
            free[first:last] = False
            yield key, kept


def _runs(flags: Bool[np.ndarray, " n"]) -> list[tuple[int, int]]:
    """The runs [first, last) of true values."""
    edges = np.flatnonzero(np.diff(flags, prepend=False, append=False))
    return [(first, last) for first, last in edges.reshape(-1, 2).tolist()]


@dataclass(frozen=True)
class _Drawn:
    """Keys drawn for one text.

    Attributes:
        best: the statistic of each drawn key's best span.
        weights: importance weight of each drawn key.
        windows: the windows that are taken for marked.
        ratios: the real key's likelihood ratio on each window, times the window's share of the proposal.
    """

    best: Float[np.ndarray, " draws"]
    weights: Float[np.ndarray, " draws"]
    windows: list[slice]
    ratios: Float[np.ndarray, " windows"]


class SpanSearch:
    """The spans of one text under one key."""

    def __init__(self, tables: GroupTables, tokens: ScoredIds) -> None:
        self.tables, self.tokens = tables, tokens
        self.model = HiddenMarkovModel.of(tokens.ids, tokens.positions, tables)
        self.key = self.model.groups(tables)[:, None]
        self.grids = grids_of(len(tokens.ids))
        self.first = np.concatenate([grid.first * grid.unit for grid in self.grids])
        self.last = np.concatenate([grid.last * grid.unit for grid in self.grids])
        self.statistics = np.round(scan(self.model, self.grids, self.key)[:, 0], _ROUNDED)

    def spans(self, fpr: float) -> list[TokenSpan]:
        """The spans to report, the best first.

        A span on a grid that passes stands for the run of tokens around it that are probably inside the mark, if it,
        or another one that passes and overlaps it, lies within this run; else for itself.
        """
        if self.p_value(int(self.statistics.argmax())) > fpr:
            return []
        _, inside = self.model.posterior(self.key[:, 0])
        runs = _runs(inside > 0.5)
        free = np.ones(len(self.statistics), dtype=bool)
        found: list[TokenSpan] = []
        while free.any():
            place = self._best_of(free)
            best = TokenSpan(int(self.first[place]), int(self.last[place]), self.p_value(place))
            if best.p_value > fpr:
                break
            for first, last in runs:
                within = free & (self.first >= first) & (self.last <= last)
                within &= (self.first < best.last) & (self.last > best.first)
                if within.any() and (p_value := self.p_value(self._best_of(within))) <= fpr:
                    best = TokenSpan(first, last, p_value)
                    break
            found.append(best)
            free &= (self.last <= best.first) | (self.first >= best.last)
        return found

    def part(self, first: int, last: int, fpr: float) -> TokenSpan | None:
        """The tokens [first, last) as a span to report; None if no span inside them passes."""
        within = (self.first >= first) & (self.last <= last)
        p_value = self.p_value(self._best_of(within)) if within.any() else 1.0
        return TokenSpan(first, last, p_value) if p_value <= fpr else None

    def _best_of(self, some: Bool[np.ndarray, " spans"]) -> int:
        return int(np.where(some, self.statistics, -np.inf).argmax())

    def p_value(self, place: int) -> float:
        """The p-value of a span: the chance that any span is as good under a random key."""
        statistic = float(self.statistics[place])
        rank = (1 + int(np.count_nonzero(self._at_random >= statistic - TOLERANCE))) / (1 + SCREEN_DRAWS)
        if rank > SCREEN:
            return bonferroni_p(rank, self._balance)
        drawn = self._drawn
        # the key's own weight, by the windows near this span alone: a marked span elsewhere proves nothing here
        near = [w.start < self.last[place] and w.stop > self.first[place] for w in drawn.windows]
        own = 1 / (UNIFORM + drawn.ratios[near].sum())
        p = (own + drawn.weights[drawn.best >= statistic - TOLERANCE].sum()) / (1 + len(drawn.best))
        return max(MIN_P, bonferroni_p(float(p), self._balance))

    def draw(self) -> None:
        """Draw the keys now, and not when a span first needs them."""
        self._drawn  # noqa: B018 (cached)

    @cached_property
    def _at_random(self) -> Float[np.ndarray, " keys"]:
        """The statistic of the best span under each of a few random keys."""
        random = DeterministicDraws("spans-screen/v3", self.tokens.ids, self.tokens.positions)
        return self._best(random.groups(len(self.key), SCREEN_DRAWS, self.model.modulus))

    def _best(self, groups: UInt8[np.ndarray, "rows keys"]) -> Float[np.ndarray, " keys"]:
        """The statistic of the best span under each key."""
        step = max(1, _AT_ONCE // max(self.model.wanted.size, len(self.statistics)))
        return np.concatenate(
            [
                scan(self.model, self.grids, groups[:, begin : begin + step]).max(axis=0)
                for begin in range(0, groups.shape[1], step)
            ]
        )

    @cached_property
    def _balance(self) -> float:
        return self.model.balance(self.tables.spec)

    @cached_property
    def _drawn(self) -> _Drawn:
        """Keys drawn as if one window or another were marked."""
        ids, positions = self.tokens.ids, self.tokens.positions
        draws = max(MIN_DRAWS, min(MAX_DRAWS, WORK // self.model.wanted.size))
        random = DeterministicDraws("spans/v3", ids, positions)
        windows, shares = windows_of(len(ids))
        chosen = np.minimum(np.searchsorted(np.cumsum(shares), random.uniform(draws)), len(windows) - 1)
        proposed = random.uniform(draws) >= UNIFORM
        groups = random.groups(len(self.key), draws, self.model.modulus)
        proposals = [self._proposal(window) for window in windows]
        for number, (rows, proposal) in enumerate(proposals):
            ours = np.flatnonzero(proposed & (chosen == number))
            if len(ours):
                groups[np.ix_(rows, ours)] = proposal.draw_intact(len(ours), random)
        everyone = np.concatenate([self.key, groups], axis=1)
        ratios = np.stack([np.exp(proposal.log_ratio_intact(everyone[rows])) for rows, proposal in proposals])
        ratios *= (1 - UNIFORM) * shares[:, None]
        return _Drawn(self._best(groups), 1 / (UNIFORM + ratios[:, 1:].sum(axis=0)), windows, ratios[:, 0])

    def _proposal(self, window: slice) -> tuple[Int[np.ndarray, " some"], Proposal]:
        """The proposal of one window, and the rows of the whole text's model that it is for."""
        model = HiddenMarkovModel.of(self.tokens.ids[window], self.tokens.positions[window], self.tables)
        size = self.tables.spec.table_size
        ours, all_rows = (d[:, 1] * size + d[:, 0] for d in (model.distinct, self.model.distinct))
        return np.searchsorted(all_rows, ours), Proposal(model)


def windows_of(n: int) -> tuple[list[slice], Float[np.ndarray, " windows"]]:
    """The windows of the proposal, and their shares of it: 2, 4, 8, ... blocks each, half overlapping."""
    windows: list[slice] = []
    sizes: list[int] = []
    length = 2 * MIN_BLOCK
    while length <= n:
        starts = range(0, n - length + 1, length // 2)
        windows += [slice(start, start + length) for start in starts]
        sizes += [len(starts)] * len(starts)
        length *= 2
    if not windows:
        return [slice(0, n)], np.ones(1)
    shares = 1 / np.array(sizes)
    return windows, shares / shares.sum()
