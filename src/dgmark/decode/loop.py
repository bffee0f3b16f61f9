"""The decoding loop: blocks from left to right, some commits per row and step (paper Alg. 1 and 2, and the lookahead),
and with an edit threshold edits of what the block has so far.

The loop knows token ids only: no text, no key, no watermark (a `Rule` is passed in) and no family of models. The same
lines make marked and unmarked text. A step runs the forward on the canvases it chooses among; the winner's forward is
also that of the next step, so a lookahead of k costs k forwards a step.

Its tensors are indexed by: the rows of the batch (`number`), of which some are open, that is, have something left to do
in the block; the rows that the session began the block with (`session_row`); the canvases that a step tries, one or
more for each open row; the columns of a canvas; the places of its region, which is cut into blocks; and the places of
the block.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.canvas import Canvas, Commits, Response, collect
from dgmark.decode.config import DecodeConfig
from dgmark.decode.proposals import Candidates, Proposer
from dgmark.decode.round_trip import RoundTrip
from dgmark.decode.rules import Rule
from dgmark.decode.selection import (
    MOST_EDITING_STEPS,
    Choice,
    alternatives,
    blocks_to_fill,
    choose,
    order_of,
    quotas,
    select_positions,
    surviving_edits,
)
from dgmark.models.denoiser import Denoiser, check_logits, open_session, traits_of
from dgmark.models.logits_watch import LogitsWatch


def decode(
    model: Denoiser,
    prompts: Int[Tensor, "batch prompt"],
    config: DecodeConfig,
    rule: Rule,
    seeds: Sequence[int],
    round_trip: RoundTrip | None = None,
) -> list[Response]:
    """Decode one response for each row; all prompts have one length.

    Each row has its own generator and seed. At each forward it draws two uniforms for each position of the active
    block, so its draws depend neither on its neighbours nor on the tokens already committed. A row stops once all
    positions up to an end token are committed.

    Args:
        model: the denoiser.
        prompts: token ids.
        config: decoding settings.
        rule: what the watermark does to a step; see `decode_steps`.
        seeds: one for each row.
        round_trip: tells which tokens survive re-tokenization; see `decode_steps`.
    """
    canvas = Canvas.after(prompts, config.length, model.mask_id)
    return collect(model, canvas, decode_steps(model, canvas, config, rule, seeds, round_trip))


def decode_steps(
    model: Denoiser,
    canvas: Canvas,
    config: DecodeConfig,
    rule: Rule,
    seeds: Sequence[int],
    round_trip: RoundTrip | None = None,
    dropped: Collection[int] = (),
) -> Iterator[Commits]:
    """Decode a canvas and yield the commits of each step.

    Args:
        model: the denoiser.
        canvas: the canvas to decode; not written to.
        config: decoding settings; the length is ignored, the canvas has its own.
        rule: what the watermark does to a step (`keyed_rule`); `Rule()` for no mark.
        seeds: one for each row.
        round_trip: tells which tokens survive re-tokenization; None to ask nobody, whatever the settings say.
        dropped: rows that nobody wants any more; whoever has this collection may add to it between two steps. They get
            no further commits, and the other rows go on as if nothing had happened.

    Raises:
        SettingsError: a setting is invalid for this rule.
        ModelFault: the model's logits have another shape, dtype or device than they should, or are NaN, +inf, or -inf
            for every id. Values are checked once a block, and before a row is finished.
    """
    steps: Iterator[Commits] | None = None
    while True:
        # left at each step: several decodes may take turns, and none may leave its mode to whoever asks for the step
        with torch.inference_mode():
            if steps is None:
                steps = _Loop(model, canvas, config, rule, seeds, round_trip).run(dropped)
            commits = next(steps, None)
        if commits is None:
            return
        yield commits


class _Block(NamedTuple):
    """The active block: its number among those with something to fill, and its places [low, high) of the region."""

    number: int
    low: int
    high: int


@dataclass(frozen=True)
class _Rows:
    """Some rows of the batch, in ascending order.

    Attributes:
        number: the number of each row in the batch.
        session_row: its row in the session's last `begin`.
        ids: its canvas.
        masked: which places of its region are not committed.
    """

    number: Int[Tensor, " rows"]
    session_row: Int[Tensor, " rows"]
    ids: Int[Tensor, "rows length"]
    masked: Bool[Tensor, "rows region"]

    def __len__(self) -> int:
        return len(self.number)

    def at(self, which: Tensor) -> "_Rows":
        """Some of these rows, by their places here or by a mask."""
        return _Rows(self.number[which], self.session_row[which], self.ids[which], self.masked[which])

    @classmethod
    def joined(cls, several: "Sequence[_Rows]") -> "_Rows":
        """The rows of several."""
        names = ("number", "session_row", "ids", "masked")
        rows = cls(*(torch.cat([getattr(one, name) for one in several]) for name in names))
        return rows.at(rows.number.argsort())


@dataclass(frozen=True)
class _OpenRows:
    """Open rows, and the candidates of their next step.

    Attributes:
        rows: these rows.
        candidates: from the forward on their canvases.
        logits: for each row that forward's logits, and the canvas among those that it ran on; for drawing again.
        editing_steps: how many steps each row has edited since its block was full.
    """

    rows: _Rows
    candidates: Candidates
    logits: list[tuple[Tensor, int]]
    editing_steps: Int[Tensor, " rows"]

    def at(self, which: Tensor) -> "_OpenRows":
        """Some of these rows, by their places here or by a mask."""
        places = torch.arange(len(self.rows), device=which.device)[which].tolist()
        logits = [self.logits[place] for place in places]
        return _OpenRows(self.rows.at(which), self.candidates.at(which), logits, self.editing_steps[which])

    def logits_of(self, which: Int[Tensor, " n"]) -> Float[Tensor, "n window vocab"]:
        """The logits of some of these rows, by their places here."""
        return torch.stack([forward[canvas] for forward, canvas in (self.logits[row] for row in which.tolist())])


@dataclass(frozen=True)
class _Trials:
    """The canvases among which a step chooses, those of the first row first, and of each row the best first.

    Attributes:
        owner: the open row of each canvas.
        chosen: the places of the block that are committed in it.
        ids: the canvases.
        masked: which places of their regions are not committed.
        unfinished: whether something is left to do in the block.
        complete: whether the row is complete with it.
        first: the first canvas of each open row.
        has_choice: whether an open row has more than one.
    """

    owner: Int[Tensor, " canvases"]
    chosen: Bool[Tensor, "canvases window"]
    ids: Int[Tensor, "canvases length"]
    masked: Bool[Tensor, "canvases region"]
    unfinished: Bool[Tensor, " canvases"]
    complete: Bool[Tensor, " canvases"]
    first: Int[Tensor, " rows"]
    has_choice: Bool[Tensor, " rows"]

    @property
    def ahead(self) -> Int[Tensor, " ahead"]:
        """The canvases that need a forward: for the next step of the block, or to be compared with others."""
        return (self.unfinished & ~(self.complete & ~self.has_choice[self.owner])).nonzero()[:, 0]


# How often a row draws again in one step while too few candidates survive. Between two line breaks and a word, say,
# hardly any token fits.
_MAX_REDRAWS = 64


class _Loop:
    """One decode. `forwards` counts the canvases that ran through the model since the last commits."""

    block: _Block

    def __init__(
        self,
        model: Denoiser,
        canvas: Canvas,
        config: DecodeConfig,
        rule: Rule,
        seeds: Sequence[int],
        round_trip: RoundTrip | None,
    ) -> None:
        rule.check(config)
        device, traits = canvas.ids.device, traits_of(model)
        self.model, self.canvas, self.config, self.rule, self.round_trip = model, canvas, config, rule, round_trip
        self.plan = blocks_to_fill(canvas, config.block_length, traits.block_origin)
        self.session = open_session(model, config.cache, canvas.padding)
        self.proposer = Proposer(model, traits, canvas, config, rule, seeds)
        self.watch = LogitsWatch(traits.name, model.vocab_size, self.proposer.forbidden, config.temperature)
        self.ends = torch.tensor(model.end_ids if canvas.stops else (), device=device, dtype=torch.long)
        every = torch.arange(len(canvas.ids), device=device)
        self.marked = rule.marked(every)
        # in unmarked rows every candidate matches: a lookahead has nothing to compare
        self.widths = torch.where(self.marked, config.lookahead, 1)
        self.steps = self.forwards = 0

    def run(self, dropped: Collection[int] = ()) -> Iterator[Commits]:
        """Decode, and yield the commits of each step; rows that are `dropped` by then get no more."""
        every = torch.arange(len(self.canvas.ids), device=self.canvas.ids.device)
        rows = _Rows(every, every, self.canvas.ids, self.canvas.masked.repeat(len(every), 1))
        for number, (low, high) in enumerate(self.plan):
            self.block = _Block(number, low, high)
            counts = iter(quotas(int(self.canvas.masked[low:high].sum()), len(self.plan), self.config))
            logits = self.session.begin(rows.ids, self.columns.start, self.columns.stop)
            open_rows, left = self._read(logits, rows, torch.zeros_like(rows.number)), []
            while len(open_rows.rows):
                commits, open_rows, closed = self._step(open_rows, next(counts, 1))
                if len(commits.finished):
                    self.watch.raise_faults()
                left.append(closed)
                yield commits
                if dropped:
                    open_rows = open_rows.at(~_is_among(open_rows.rows.number, dropped))
            self.watch.raise_faults()
            rows = self._rows_of_next_block(left, len(rows), dropped)
            if not len(rows):
                return

    def _rows_of_next_block(self, left: Sequence[_Rows], begun: int, dropped: Collection[int]) -> _Rows:
        """The rows that go on, of those that the steps of a block of `begun` rows left."""
        rows = _Rows.joined(left)
        rows = rows.at(~_is_among(rows.number, dropped))
        if len(rows) and len(rows) < begun:
            self.session.keep(rows.session_row)
        return replace(rows, session_row=torch.arange(len(rows), device=rows.session_row.device))

    # --- places of the block ---

    @property
    def columns(self) -> slice:
        """The columns of the block."""
        return slice(self.canvas.start + self.block.low, self.canvas.start + self.block.high)

    def _in_block(self, masked: Tensor) -> Tensor:
        """The places of the block, of an array over the region."""
        return masked[:, self.block.low : self.block.high]

    def _with_candidate(self, masked: Tensor) -> Tensor:
        """The places of the block that have a candidate: those that are masked, or may be edited."""
        masked = self._in_block(masked)
        if self.config.edit_threshold is None:
            return masked
        return self.canvas.masked[self.block.low : self.block.high].expand_as(masked)

    # --- candidates ---

    def _read(self, logits: Tensor, rows: _Rows, editing_steps: Tensor) -> _OpenRows:
        """These canvases with the candidates of a new forward, whose logits are checked."""
        places = self._with_candidate(rows.masked)
        check_logits(self.model, logits, rows.ids, places.shape[1])
        self.forwards += len(rows)
        candidates = self.proposer(logits, rows.ids, places, rows.number, self.block.low)
        self.watch.check(self.steps, self.block.low, rows.number, places, logits, candidates.tokens)
        return _OpenRows(rows, candidates, [(logits, canvas) for canvas in range(len(rows))], editing_steps)

    def _draw_again(
        self, now: _OpenRows, which: Tensor, logits: Tensor, places: Tensor, refused: Tensor | None = None
    ) -> None:
        """Draw some places of some rows again, from the logits that these rows had; changes the candidates in place."""
        rows = now.rows.at(which)
        drawn = self.proposer(logits, rows.ids, places, rows.number, self.block.low, refused)
        now.candidates.put(which, now.candidates.at(which).where(places, drawn))

    # --- one step ---

    def _step(self, now: _OpenRows, count: int) -> tuple[Commits, _OpenRows, _Rows]:
        """Commit in the open rows.

        Returns:
            The commits; the rows that are still open, with new candidates; and those that go on with the next block.
        """
        edited, unsettled, now = self._edit(now)
        sets, exists = self._alternatives(now, count)
        trials = self._trials(now, sets, exists, unsettled)
        winner, still_open = trials.first, None
        if len(which := trials.ahead):
            owner = trials.owner[which]
            rows = replace(now.rows.at(owner), ids=trials.ids[which], masked=trials.masked[which])
            logits = self.session.step(rows.ids, rows.session_row, self.columns.start, self.columns.stop)
            ahead = self._read(logits, rows, now.editing_steps[owner])
            if self.config.lookahead > 1:
                winner = trials.first + self._best(exists, which, ahead)
            still_open = self._still_open(trials, winner, which, ahead)
        complete, unfinished = trials.complete[winner], trials.unfinished[winner]
        after = replace(now.rows, ids=trials.ids[winner], masked=trials.masked[winner])
        commits = self._commits(now, trials.chosen[winner], edited, complete)
        if still_open is None:
            still_open = now.at(torch.zeros_like(complete))
        return commits, still_open, after.at(~complete & ~unfinished)

    def _edit(self, now: _OpenRows) -> tuple[Tensor, Tensor, _OpenRows]:
        """Replace committed tokens of the block, where a candidate has confidence enough and no match is lost by it.

        Returns:
            The places that were edited; which rows may edit more when their block is full; and the rows after the
            edits.
        """
        threshold, rows, tokens = self.config.edit_threshold, now.rows, now.candidates.tokens
        masked, committed = self._in_block(rows.masked), rows.ids[:, self.columns]
        if threshold is None:
            return torch.zeros_like(masked), torch.zeros_like(rows.number, dtype=torch.bool), now
        edits = self._with_candidate(rows.masked) & ~masked & (tokens != committed)
        edits &= now.candidates.rewards > threshold
        window = self.proposer.window(rows.ids, rows.number, self.block.low, masked.shape[1])
        edits = surviving_edits(edits, tokens, window, self.rule, self.round_trip)
        ids = rows.ids.clone()
        ids[:, self.columns] = torch.where(edits, tokens, committed)
        full = ~masked.any(1)
        steps = now.editing_steps + full
        unsettled = ~full | (edits.any(1) & (steps < MOST_EDITING_STEPS))
        return edits, unsettled, replace(now, rows=replace(rows, ids=ids), editing_steps=steps)

    def _trials(self, now: _OpenRows, sets: Tensor, exists: Tensor, unsettled: Tensor) -> _Trials:
        """The canvases that commit these sets of places of each row."""
        counts = exists.sum(1)
        owner, rank = exists.nonzero(as_tuple=True)
        chosen = sets[owner, rank]
        ids, masked = now.rows.ids[owner], now.rows.masked[owner]
        ids[:, self.columns] = torch.where(chosen, now.candidates.tokens[owner], ids[:, self.columns])
        masked[:, self.block.low : self.block.high] &= ~chosen
        unfinished = self._in_block(masked).any(1) | unsettled[owner]
        complete = self._complete(ids, masked, unfinished)
        return _Trials(owner, chosen, ids, masked, unfinished, complete, counts.cumsum(0) - counts, counts > 1)

    def _complete(self, ids: Tensor, masked: Tensor, unfinished: Tensor) -> Bool[Tensor, " n"]:
        """Whether each canvas is complete and not to be edited, or has an end token with nothing masked before it."""
        leading = masked.cumsum(1) == 0
        region = ids[:, self.canvas.start : self.canvas.start + masked.shape[1]]
        return (torch.isin(region, self.ends) & leading).any(1) | leading[:, -1] & ~unfinished

    def _best(self, exists: Tensor, which: Tensor, ahead: _OpenRows) -> Int[Tensor, " rows"]:
        """The rank of each row's canvas with the most matches ahead; the first of equals."""
        score = torch.full_like(exists, -1, dtype=torch.long)
        owner, rank = exists.nonzero(as_tuple=True)
        matches = ahead.candidates.matched & self._in_block(ahead.rows.masked)
        score[owner[which], rank[which]] = matches.sum(1)
        return score.argmax(1)

    def _still_open(self, trials: _Trials, winner: Tensor, which: Tensor, ahead: _OpenRows) -> _OpenRows:
        """The rows that are not done with the block, each as its winner, with the candidates of that one's forward."""
        still = trials.unfinished[winner] & ~trials.complete[winner]
        open_rows = ahead.at(torch.searchsorted(which, winner[still]))
        again = trials.has_choice[still].nonzero()[:, 0]  # winners of a lookahead
        kept = self.config.noise == "fixed" or self.config.lookahead_proposals == "kept" or self.config.greedy
        if len(again) and not kept:
            places = self._with_candidate(open_rows.rows.masked[again])
            self._draw_again(open_rows, again, open_rows.logits_of(again), places)
        return open_rows

    # --- the choice ---

    def _alternatives(self, now: _OpenRows, count: int) -> tuple[Tensor, Tensor]:
        """The sets of places among which this step chooses, and which entries of the array are sets of a row."""
        choice = self._choice(now, count) if self.round_trip is None else self._surviving(self.round_trip, now, count)
        masked, scores = self._in_block(now.rows.masked), now.candidates.scores
        if self.config.lookahead == 1:
            only = select_positions(scores, masked, choice.preferred, choice.quota, choice.confident, choice.readable)
            return only[:, None], torch.ones_like(only[:, :1])
        return alternatives(scores, masked, choice)

    def _choice(self, now: _OpenRows, count: int, readable: Tensor | None = None) -> Choice:
        """What the settings make of these candidates."""
        number, candidates = now.rows.number, now.candidates
        return choose(
            candidates.rewards,
            self._in_block(now.rows.masked),
            candidates.matched if self.rule.ordered else torch.ones_like(candidates.matched),
            self.marked[number],
            self.config,
            quota=torch.full_like(number, count if self.config.commit == "quota" else 1),
            width=self.widths[number],
            readable=readable,
        )

    def _surviving(self, round_trip: RoundTrip, now: _OpenRows, count: int) -> Choice:
        """The choice in which candidates that do not survive re-tokenization go last; see `RoundTrip`.

        Rows that would have to commit one draw again, without the tokens that did not survive: each token then has the
        probability that its draw gives it, given that the text survives.
        """
        masked, ids, refused = self._in_block(now.rows.masked), now.rows.ids, None
        tokens = now.candidates.tokens
        for redraw in range(_MAX_REDRAWS + 1):
            choice = self._choice(now, count)
            order = order_of(now.candidates.scores, masked, choice.preferred, choice.confident)
            lost, short = round_trip.unreadable(
                *(tokens, ids, self.canvas.text, self.columns.start),
                *(order, masked.sum(1), choice.quota, choice.width),
            )
            if redraw == _MAX_REDRAWS or not short.any():
                break
            again = lost & short[:, None]
            refused = again.new_zeros(*again.shape, self.model.vocab_size) if refused is None else refused
            refused[(*again.nonzero(as_tuple=True), tokens[again])] = True
            if not self._redraw(now, again, refused):
                break
        if not lost.any():
            return choice
        after = self._choice(now, count, ~lost)
        return after._replace(quota=torch.minimum(after.quota, choice.quota))  # no more than were looked at

    def _redraw(self, now: _OpenRows, again: Tensor, refused: Tensor) -> bool:
        """Draw these places again from the same logits, without the refused tokens; False if no token is left.

        The candidates are changed in place.
        """
        which = again.any(1).nonzero()[:, 0]
        logits, refused = now.logits_of(which), refused[which]
        left = (logits > -torch.inf) & ~refused
        left[..., self.proposer.forbidden] = False
        places = again[which] & left.any(2)
        if not places.any():
            return False
        self._draw_again(now, which, logits, places, refused)
        return True

    def _commits(self, now: _OpenRows, chosen: Tensor, edited: Tensor, complete: Tensor) -> Commits:
        index, place = (chosen | edited).nonzero(as_tuple=True)
        number, candidates = now.rows.number, now.candidates
        commits = Commits(
            step=self.steps,
            block=self.block.number,
            row=number[index],
            place=self.block.low + place,
            token=candidates.tokens[index, place],
            reward=candidates.rewards[index, place],
            matched=candidates.matched[index, place],
            edited=edited[index, place],
            finished=number[complete],
            forwards=self.forwards,
        )
        self.steps, self.forwards = self.steps + 1, 0
        return commits


def _is_among(numbers: Int[Tensor, " n"], wanted: Collection[int]) -> Bool[Tensor, " n"]:
    return torch.isin(numbers, torch.tensor(sorted(wanted), device=numbers.device, dtype=numbers.dtype))
