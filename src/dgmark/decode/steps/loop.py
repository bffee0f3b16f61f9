"""The decoding loop: blocks from left to right, some commits per row and step (paper Alg. 1 and 2, and the lookahead),
and with an edit threshold edits of what the block has so far.

The loop knows token ids only: no text, no key, no watermark (a `DecodeSide` is passed in) and no family of models. The
same lines make marked and unmarked text.

Its tensors are indexed by: the rows of the batch (`number`), of which some are open, that is, have something left to do
in the block; the rows that the session began the block with (`session_row`); the columns of a canvas; the places of its
region, which is cut into blocks; and the places of the block. A lookahead tries several canvases for a row
(`lookahead.py`).
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.rules import DecodeSide
from dgmark.decode.steps.canvas import Canvas, Commits
from dgmark.decode.steps.lookahead import step_with_lookahead
from dgmark.decode.steps.open_rows import OpenRows, Rows, RowsAfter
from dgmark.decode.steps.proposals import Candidates, Proposer
from dgmark.decode.steps.round_trip import RoundTrip
from dgmark.decode.steps.selection import MOST_EDITING_STEPS, Choice, blocks_to_fill, choose, quotas, surviving_edits
from dgmark.errors import ModelFault
from dgmark.models.denoiser import Denoiser, check_logits, open_session, traits_of
from dgmark.models.host import on_device
from dgmark.models.logits_watch import LogitsWatch


class _Block(NamedTuple):
    """The active block: its number among those with something to fill, its places [low, high) of the region, and how
    many of them are open, that is, to be filled.
    """

    number: int
    low: int
    high: int
    open: int


# How often a row draws again in one step while too few candidates survive. Between two line breaks and a word, say,
# hardly any token fits.
MOST_REDRAWS = 64


class Loop:
    """One decode. `forwards` counts the canvases that ran through the model since the last commits."""

    block: _Block

    def __init__(
        self,
        model: Denoiser,
        canvas: Canvas,
        config: DecodeConfig,
        side: DecodeSide,
        seeds: Sequence[int],
        round_trip: RoundTrip | None,
    ) -> None:
        side.check_config(config)
        device, traits = canvas.ids.device, traits_of(model)
        self.model, self.canvas, self.config, self.side, self.round_trip = model, canvas, config, side, round_trip
        self.plan = blocks_to_fill(canvas, config.block_length, traits.block_origin)
        self.session = open_session(model, config.cache, canvas.padding)
        self.proposer = Proposer(model, canvas, config, side, seeds)
        self.watch = LogitsWatch(traits.name, model.vocab_size, self.proposer.forbidden, config.temperature)
        self.ends = torch.tensor(model.end_ids if canvas.stops else (), dtype=torch.long).to(device)
        marked = self.proposer.marked
        self.marked = marked.cpu()
        # in unmarked rows every candidate matches: a lookahead has nothing to compare
        self.widths = None if config.lookahead == 1 else torch.where(marked, config.lookahead, 1)
        self.settled = torch.zeros_like(marked)
        self.numbers = torch.arange(len(canvas.masked) + 1, device=device)
        self.steps = self.forwards = 0

    def run(self, dropped: Collection[int] = ()) -> Iterator[Commits]:
        """Decode, and yield the commits of each step; rows that are `dropped` by then get no more."""
        rows = Rows.of_batch(self.canvas.ids, self.canvas.masked)
        for number, (low, high) in enumerate(self.plan):
            self.block = _Block(number, low, high, int(self.canvas.masked[low:high].sum()))
            counts = iter(quotas(self.block.open, len(self.plan), self.config))
            rows, closed = rows.begin(self.block.open), []
            open_rows = self._read(rows, self.session.begin, rows.ids)
            while len(open_rows.rows):
                commits, open_rows, full = self._step(open_rows, next(counts, 1))
                if len(commits.finished):
                    self.watch.raise_faults()
                closed.append(full)
                yield commits
                if dropped:
                    open_rows = open_rows.at(open_rows.rows.without(sorted(dropped)))
            self.watch.raise_faults()
            begun, rows = len(rows), Rows.joined(closed)
            rows = rows.at(rows.without(sorted(dropped)))
            if not len(rows):
                return
            if len(rows) < begun:
                self.session.keep(rows.session_row)

    # --- places of the block ---

    @property
    def columns(self) -> slice:
        """The columns of the block."""
        return slice(self.canvas.start + self.block.low, self.canvas.start + self.block.high)

    def in_block(self, masked: Tensor) -> Tensor:
        """The places of the block, of an array over the region."""
        return masked[:, self.block.low : self.block.high]

    def _with_candidate(self, masked: Tensor) -> Tensor:
        """The places of the block that have a candidate: those that are masked, or may be edited."""
        masked = self.in_block(masked)
        if self.config.edit_threshold is None:
            return masked
        return self.canvas.masked[self.block.low : self.block.high].expand_as(masked)

    # --- candidates ---

    def _read(self, rows: Rows, forward: Callable[..., Tensor], *canvases: Tensor) -> OpenRows:
        """These rows with candidates of a new forward, a method of the session; its faults name rows of the batch."""
        places = self._with_candidate(rows.masked)
        try:
            logits = forward(*canvases, self.columns.start, self.columns.stop)
            check_logits(self.model, logits, rows.ids, places.shape[1])
        except ModelFault as fault:  # a forward counts canvases, of which a row may have several
            numbers = rows.number.tolist()
            raise ModelFault(fault.problem, sorted({numbers[canvas] for canvas in fault.rows})) from None
        self.forwards += len(rows)
        count = self._candidates_of(rows)
        candidates = self.proposer(logits, rows.ids, places, rows.row, self.block.low, count=count)
        self.watch.check(self.steps, self.block.low, rows.row, places, logits, candidates.tokens)
        return OpenRows(rows, candidates, logits, torch.from_numpy(np.arange(len(rows))))

    def redraw_all(self, open_rows: OpenRows, which: Int[Tensor, " n"]) -> OpenRows:
        """The rows with all candidates of some of them drawn again, from the same logits."""
        rows = open_rows.rows.at(which)
        places, count = self._with_candidate(rows.masked), self._candidates_of(rows)
        return self._redrawn(open_rows, which, places, open_rows.logits_of(which), count=count)

    def _redrawn(
        self,
        open_rows: OpenRows,
        which: Tensor,
        places: Tensor,
        logits: Tensor,
        refused: Tensor | None = None,
        count: int | None = None,
    ) -> OpenRows:
        """The rows with the candidates at some places of some of them drawn again, from the logits of these rows."""
        rows = open_rows.rows.at(which)
        drawn = self.proposer(logits, rows.ids, places, rows.row, self.block.low, refused, count)
        candidates = open_rows.candidates.replaced(on_device(which, places.device), places, drawn)
        return replace(open_rows, candidates=candidates)

    def _candidates_of(self, rows: Rows) -> int:
        """How many places have a candidate in all."""
        return sum(rows.left.tolist()) if self.config.edit_threshold is None else len(rows) * self.block.open

    # --- one step ---

    def _step(self, open_rows: OpenRows, count: int) -> tuple[Commits, OpenRows, Rows]:
        """Commit in the open rows.

        Returns:
            The commits; the rows that are still open, with new candidates; and those that go on with the next block.
        """
        # 1. Edit what the block has so far.
        unsettled, open_rows = self._edit(open_rows)
        # 2. Choose among the candidates, (rows, window).
        if self.round_trip is None:
            choice = self._choice(open_rows, count)
        else:
            choice, open_rows = self._surviving(self.round_trip, open_rows, count)
        # 3. Commit, and run the forward of the next step on the rows that stay open.
        if self.config.lookahead == 1:
            chosen = choice.places(open_rows.candidates.scores, self.in_block(open_rows.rows.masked))
            after, candidates, _ = self.committed(open_rows, chosen, unsettled).read(open_rows.candidates)
            still_open = self.read_ahead(after, after.open) if len(after.open) else open_rows.at(after.open)
        else:
            after, candidates, still_open = step_with_lookahead(self.config, self, open_rows, choice, unsettled)
        return self._commits(after, candidates), still_open, after.rows.at(after.closed)

    def committed(self, open_rows: OpenRows, chosen: Tensor, unsettled: Tensor, row: Tensor | None = None) -> RowsAfter:
        """The rows once the candidates at these places are committed.

        Args:
            open_rows: the rows.
            chosen: these places of the block, in each canvas.
            unsettled: rows that have something left to do in the block even if it is full.
            row: which of the rows each canvas is of, on the host, ascending; None for one canvas a row.

        In a region of six places, whose second block is the last three, with an end token . that is just committed:

            chosen            0 1 0
            masked before     0 0 0 1 1 1       after   0 0 0 1 0 1
            ids after         5 7 9 _ . _       counts  0 0 0 1 1 2     (masked up to each place)
            ends              0 0 0 0 1 0       ended   no: 1 is masked before the end token
        """
        rows, tokens = open_rows.rows, open_rows.candidates.tokens
        if row is not None:
            index = on_device(row, tokens.device)
            rows, tokens, unsettled = rows.at(row), tokens[index], unsettled[index]
        ids, masked = rows.ids.clone(), rows.masked.clone()
        torch.where(chosen, tokens, ids[:, self.columns], out=ids[:, self.columns])
        in_block = self.in_block(masked)
        in_block ^= chosen  # all of which were masked
        counts = masked.cumsum(1)
        left = counts[:, self.block.high - 1]  # in the block, as nothing before it is masked
        region = ids[:, self.canvas.start : self.canvas.start + masked.shape[1]]
        ended = (counts < torch.isin(region, self.ends)).any(1)
        return RowsAfter(replace(rows, ids=ids, masked=masked, left=left), chosen, unsettled, ended, counts[:, -1])

    def read_ahead(self, after: RowsAfter, which: Int[Tensor, " n"]) -> OpenRows:
        """Some of the rows after a step, by their places here, with the candidates of a forward on their canvases."""
        rows = after.rows.at(which)
        return self._read(rows, self.session.step, rows.ids, rows.session_row)

    def _edit(self, open_rows: OpenRows) -> tuple[Tensor, OpenRows]:
        """Replace committed tokens of the block, where a candidate has confidence enough and no match is lost by it.

        Returns:
            Which rows may edit more when their block is full; and the rows after the edits.
        """
        threshold, rows, tokens = self.config.edit_threshold, open_rows.rows, open_rows.candidates.tokens
        if threshold is None:
            return self.settled[: len(rows)], open_rows
        masked, committed = self.in_block(rows.masked), rows.ids[:, self.columns]
        edits = self._with_candidate(rows.masked) & ~masked & (tokens != committed)
        edits &= open_rows.candidates.rewards > threshold
        window = self.proposer.window(rows.ids, rows.row, self.block.low, masked.shape[1])
        edits = surviving_edits(edits, tokens, window, self.side, self.round_trip)
        ids = rows.ids.clone()
        ids[:, self.columns] = torch.where(edits, tokens, committed)
        full = ~masked.any(1)
        steps = rows.editing_steps + full
        unsettled = ~full | (edits.any(1) & (steps < MOST_EDITING_STEPS))
        rows = replace(rows, ids=ids, editing_steps=steps)
        return unsettled, replace(open_rows, rows=rows, candidates=open_rows.candidates._replace(edited=edits))

    # --- the choice ---

    def _choice(self, open_rows: OpenRows, count: int, readable: Tensor | None = None) -> Choice:
        """What the settings make of these candidates."""
        row, candidates = open_rows.rows.row, open_rows.candidates
        return choose(
            self.side,
            row,
            candidates.rewards,
            self.in_block(open_rows.rows.masked),
            candidates.matched,
            self.config,
            quota=self.numbers[count if self.config.commit == "quota" else 1].expand_as(row),
            width=None if self.widths is None else self.widths[row],
            readable=readable,
        )

    def _surviving(self, round_trip: RoundTrip, open_rows: OpenRows, count: int) -> tuple[Choice, OpenRows]:
        """The choice in which candidates that do not survive re-tokenization go last; see `RoundTrip`.

        Rows that would have to commit one draw again, without the tokens that did not survive: each token then has the
        probability that its draw gives it, given that the text survives.

        Returns:
            The choice, and the rows with the candidates that it is among.
        """
        rows, masked, refused = open_rows.rows, self.in_block(open_rows.rows.masked), None
        for redraw in range(MOST_REDRAWS + 1):
            choice, tokens = self._choice(open_rows, count), open_rows.candidates.tokens
            order = choice.order(open_rows.candidates.scores, masked)
            lost, short = round_trip.unreadable(
                *(tokens, rows.ids, self.canvas.text, self.columns.start),
                *(order, rows.left, choice.quota, choice.width),
            )
            if redraw == MOST_REDRAWS or not short.numpy().any():
                break
            again = lost & short[:, None]
            if refused is None:
                refused = torch.zeros(*again.shape, self.model.vocab_size, dtype=torch.bool, device=tokens.device)
            row, place = (on_device(index, tokens.device) for index in again.nonzero(as_tuple=True))
            refused[row, place, tokens[row, place]] = True
            redrawn = self._redraw_without(open_rows, again, refused)
            if redrawn is None:
                break
            open_rows = redrawn
        if not lost.numpy().any():
            return choice._replace(known_order=order), open_rows
        after = self._choice(open_rows, count, ~on_device(lost, tokens.device))
        # no more than were looked at
        return after._replace(quota=torch.minimum(after.quota, choice.quota)), open_rows

    def _redraw_without(self, open_rows: OpenRows, again: Tensor, refused: Tensor) -> OpenRows | None:
        """The rows with these places drawn again, without the refused tokens; None if no token is left."""
        which = again.any(1).nonzero()[:, 0]
        logits, refused = open_rows.logits_of(which), refused[on_device(which, refused.device)]
        left = (logits > -torch.inf) & ~refused
        left[..., self.proposer.forbidden] = False
        places = on_device(again[which], left.device) & left.any(2)
        return self._redrawn(open_rows, which, places, logits, refused) if places.any() else None

    def _commits(self, after: RowsAfter, candidates: Candidates) -> Commits:
        """What the host read of a step: the rows after it, and all its candidates."""
        number, chosen = after.rows.number.numpy(), after.chosen.numpy() | candidates.edited.numpy()
        index, place = chosen.nonzero()
        drawn, keyed = candidates.had_choice, self.side.had_choice(candidates.had_choice, after.rows.left, self.config)
        had_choice = np.where(self.marked.numpy()[number[index]], keyed.numpy()[chosen], drawn.numpy()[chosen])

        def of_chosen(values: Tensor) -> Tensor:
            return torch.from_numpy(values.numpy()[chosen])

        commits = Commits(
            step=self.steps,
            block=self.block.number,
            row=torch.from_numpy(number[index]),
            place=torch.from_numpy(self.block.low + place),
            token=of_chosen(candidates.tokens),
            reward=of_chosen(candidates.rewards),
            matched=of_chosen(candidates.matched),
            edited=of_chosen(candidates.edited),
            had_choice=torch.from_numpy(had_choice),
            finished=torch.from_numpy(number[after.complete]),
            forwards=self.forwards,
            stop=self.block.high,
        )
        self.steps, self.forwards = self.steps + 1, 0
        return commits
