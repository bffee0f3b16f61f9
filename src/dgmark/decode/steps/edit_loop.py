"""The decoding loop of deletions and insertions (LLaDA 2.2): blocks from left to right, each until it rests.

A block is decoded by the functions of `block_edits`. This module gives them candidates, and refuses edits: those that
would cost matches, and those after which the text would not read back. A refused edit counts as none, so that the block
rests. Without a key, and without the check that a text reads back, all edits are made.
"""

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.steps.block_edits import BlockState, EditRules, Plan, Scanned, advanced, escaped, planned, scan
from dgmark.decode.steps.canvas import Commits
from dgmark.decode.steps.loop import MOST_REDRAWS, Loop
from dgmark.decode.steps.open_rows import OpenRows, Rows
from dgmark.decode.steps.round_trip import RoundTrip
from dgmark.decode.steps.selection import surviving_edits
from dgmark.models.denoiser import traits_of
from dgmark.models.host import on_device, on_host


class _Likeliest(NamedTuple):
    """What the model proposes at each place, by its own distribution over the ids that may be written.

    Attributes:
        logits: -inf for the other ids.
        tokens: the likeliest token.
        probabilities: its probability.
        sure: the probability of the token that was drawn.
    """

    logits: Float[Tensor, "rows window vocab"]
    tokens: Int[Tensor, "rows window"]
    probabilities: Float[Tensor, "rows window"]
    sure: Float[Tensor, "rows window"]


class _Step(NamedTuple):
    """A step of the open rows: their blocks before it, what is proposed, and what of it is done."""

    open_rows: OpenRows
    state: BlockState
    best: _Likeliest
    plan: Plan

    @property
    def written(self) -> Int[Tensor, "rows window"]:
        """The blocks before deletions and insertions are carried out."""
        fills, plan = self.open_rows.candidates.tokens, self.plan
        return torch.where(plan.fill, fills, torch.where(plan.change, self.best.tokens, self.state.ids))


class EditLoop(Loop):
    """One decode whose blocks are whole; see `Loop`."""

    # the number of the block, the rows, and their state
    _known: tuple[int, Int[Tensor, " rows"], BlockState] | None = None

    @cached_property
    def rules(self) -> EditRules:
        """The ids of the model and the settings."""
        config, (delete, split) = self.config, traits_of(self.model).edit_ids or (-1, -1)
        least = config.edit_threshold or 0.0
        return EditRules(self.model.mask_id, delete, split, config.threshold, least, steps=config.block_length)

    def _with_candidate(self, masked: Tensor) -> Tensor:
        return self.in_block(masked)

    def _candidates_of(self, rows: Rows) -> int:
        return int(rows.left.sum())

    def _state_of(self, rows: Rows) -> BlockState:
        """The state of the block of these rows: that after their last step, or at its begin."""
        known = self._known
        if known is None or known[0] != self.block.number:
            return BlockState.begin(rows.ids[:, self.columns], self.rules.mask)
        return known[2].at(torch.searchsorted(known[1], rows.number))

    def _step(self, open_rows: OpenRows, count: int) -> tuple[Commits, OpenRows, Rows]:  # noqa: ARG002
        rows, rules = open_rows.rows, self.rules
        # 1. What the step does, and what the final round writes in place of deletions and insertions.
        state, best, drawn = self._state_of(rows), self._likeliest(open_rows), open_rows.candidates
        gains = drawn.scores / drawn.rewards.clamp(min=torch.finfo(torch.float32).tiny)
        plan = planned(state, best.sure, best.sure * gains, best.tokens, best.probabilities, rules)
        step = self._without_edits(_Step(open_rows, state, best, plan))
        # 2. Of this, what the mark and the text bear.
        step = self._bearable(step)
        if self.round_trip is not None:
            step = self._readable(self.round_trip, step)
        # 3. Leave a loop, and carry out deletions and insertions.
        written = self._escaped(step)
        scanned = scan(written, state, rules)
        state, done = advanced(state, plan, scanned, rules.mask)
        self._known = self.block.number, rows.number, state
        # 4. Say so, and run the forward of the next step on the rows that stay open.
        ids, masked = rows.ids.clone(), rows.masked.clone()
        ids[:, self.columns] = scanned.ids
        self.in_block(masked).copy_(scanned.ids == rules.mask)
        has_end = torch.isin(scanned.ids, self.ends).any(1)
        done, has_end, left = on_host(done, has_end, self.in_block(masked).sum(1))
        complete = done & (has_end | (self.block.number == len(self.plan) - 1))
        commits = self._operations(step, written, scanned, rows.number[complete])
        after, still = replace(rows, ids=ids, masked=masked, left=left), (~done).nonzero()[:, 0]
        going_on = after.at((done & ~complete).nonzero()[:, 0])
        if not len(still):
            return commits, open_rows.at(still), going_on
        after = after.at(still)
        return commits, self._read(after, self.session.step, after.ids, after.session_row), going_on

    def _likeliest(self, open_rows: OpenRows) -> _Likeliest:
        logits = open_rows.logits_of(torch.arange(len(open_rows.rows)))
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits = logits.index_fill(-1, self.proposer.forbidden, -torch.inf)
        tokens = logits.argmax(-1)
        chosen = logits.gather(-1, torch.stack([tokens, open_rows.candidates.tokens], -1))
        probabilities, sure = (chosen - logits.logsumexp(-1, keepdim=True)).exp().unbind(-1)
        return _Likeliest(logits, tokens, probabilities, sure)

    def _without_edits(self, step: _Step) -> _Step:
        """The step without deletions and insertions in final rounds, where other tokens take their places."""
        rules, (open_rows, _, best, plan) = self.rules, step
        again = rules.edits(open_rows.candidates.tokens) & plan.fill & plan.final[:, None]
        again, final = on_host(again, plan.final)
        if not final.any():
            return step
        ids = torch.tensor([rules.delete, rules.split], device=best.tokens.device)
        plain = best.logits.index_fill(-1, ids, -torch.inf).argmax(-1)
        best = best._replace(tokens=torch.where(plan.final[:, None] & rules.edits(best.tokens), plain, best.tokens))
        if again.any():
            refused = torch.zeros(best.logits.shape, dtype=torch.bool, device=ids.device)
            open_rows = self._redraw_without(open_rows, again, refused.index_fill(-1, ids, True)) or open_rows
        return step._replace(open_rows=open_rows, best=best)

    def _bearable(self, step: _Step) -> _Step:
        """The step with those changes that the mark bears, and replacements after which the text reads back.

        A replacement may not lose a match (`surviving_edits`). A deletion or an insertion brings a mask, whose token
        brings matches back: so the matches of the whole text, less the other pairs, may become fewer by less than the
        reach of pairs. Deletions and insertions are tried one after the other.
        """
        open_rows, state, best, plan = step
        rows, tokens = open_rows.rows, best.tokens
        window = self.proposer.window(rows.ids, rows.row, self.block.low, tokens.shape[1])
        asked = plan.change & self.rules.edits(tokens)
        made = surviving_edits(plan.change & ~asked, tokens, window, self.side, self.round_trip)

        def net(made: Tensor) -> Int[Tensor, " rows"]:
            ids = rows.ids.clone()
            ids[:, self.columns] = scan(torch.where(made, tokens, state.ids), state, self.rules).ids
            return self.side.net(replace(window, ids=ids))

        if not self.marked.any():  # there is no match to lose
            return step._replace(plan=plan._replace(change=made | asked))
        before = net(made)
        while on_host(asked.any())[0]:
            tried = asked & (asked.cumsum(1) == 1)  # the first one of each row
            after = net(made | tried)
            bears = before - after < max(self.side.reach(), 1)
            made, asked = made | (tried & bears[:, None]), asked & ~tried
            before = torch.where(bears, after, before)
        return step._replace(plan=plan._replace(change=made))

    # --- texts that read back ---

    def _readable(self, round_trip: RoundTrip, step: _Step) -> _Step:
        """The step without deletions after which the text would not read back, and with other tokens for such masks."""
        refused = torch.zeros((), dtype=torch.bool, device=step.best.logits.device).expand(step.best.logits.shape)
        for _ in range(MOST_REDRAWS):
            unread = self._unreadable(round_trip, step)
            if not unread.any():
                break
            lost, plan = on_device(unread, refused.device), step.plan
            step = step._replace(plan=plan._replace(change=plan.change & ~lost))
            again = lost & plan.fill
            row, place = again.nonzero(as_tuple=True)
            refused = refused.clone()
            refused[row, place, step.open_rows.candidates.tokens[row, place]] = True
            if len(row):
                redrawn = self._redraw_without(step.open_rows, again.cpu(), refused)
                if redrawn is None:
                    break
                step = step._replace(open_rows=redrawn)
        return step

    def _unreadable(self, round_trip: RoundTrip, step: _Step) -> Bool[Tensor, "rows window"]:
        """The places whose fill, or whose deletion, does not read back, on the host."""
        rules, (open_rows, state, _, plan), written = self.rules, step, step.written
        scanned, size = scan(written, state, rules), written.shape[1]
        kept = (scanned.at < size) & (plan.fill | plan.change)
        fills, deleted = kept & plan.fill & ~rules.edits(written), kept & (written == rules.delete)
        at, none = scanned.at.clamp(max=size - 1), torch.zeros_like(scanned.at)
        # 1. What is looked at in the block after the step: filled masks, and what stands behind a deletion.
        filled = none.scatter_add(1, at, fills.long()) > 0
        behind = (none.scatter_add(1, at, deleted.long()) > 0) & ~filled & (scanned.ids != rules.mask)
        # 2. The surest fill first, then the gaps.
        scores = open_rows.candidates.scores
        scores = torch.zeros_like(scores).scatter_add(1, at, scores * fills)
        rank = torch.where(filled, 1 + scores, torch.where(behind, 0.5, 0.0))
        order, number = rank.sort(dim=1, descending=True, stable=True).indices, (filled | behind).sum(1)
        ids = open_rows.rows.ids.clone()
        ids[:, self.columns] = scanned.ids.masked_fill(filled, rules.mask)
        text, start = self.canvas.text, self.columns.start
        found, _ = round_trip.unreadable(scanned.ids, ids, text, start, order, number, number)
        at, fills, deleted, filled, behind = on_host(at, fills, deleted, filled, behind)
        return (fills & (found & filled).gather(1, at)) | (deleted & (found & behind).gather(1, at))

    # --- what is written ---

    def _escaped(self, step: _Step) -> Int[Tensor, "rows window"]:
        """What is written once loops are left; a token of a marked row stays as it was, which loses no match."""
        open_rows, state, best, plan = step

        def other(row: int, place: int, token: int) -> int:
            before = int(state.ids[row, place])
            if self.marked[open_rows.rows.number[row]] and before != self.rules.mask:
                return before
            return int(best.logits[row, place].scatter(0, best.tokens.new_tensor([token]), -torch.inf).argmax())

        written = escaped(step.written, state, best.probabilities, plan.final, other)
        return on_device(written, best.tokens.device)

    def _operations(self, step: _Step, written: Tensor, scanned: Scanned, finished: Tensor) -> Commits:
        """What a step did, one operation after the other; what was cut off is left out."""
        rules, (open_rows, state, best, plan) = self.rules, step
        drawn, number = open_rows.candidates, open_rows.rows.number
        done, at, written, reward, matched, choice, fill, edited, operation = on_host(
            (written != state.ids) & (scanned.at < written.shape[1]),
            scanned.at,
            written,
            torch.where(plan.fill, drawn.rewards, best.probabilities.to(drawn.rewards.dtype)),
            drawn.matched,
            drawn.had_choice,
            plan.fill,
            state.ids != rules.mask,
            (written == rules.delete) + 2 * (written == rules.split).to(torch.int8),
        )
        marked = self.marked[number][:, None]
        keyed = self.side.had_choice(choice, open_rows.rows.left, self.config)
        which = index, _ = done.nonzero(as_tuple=True)
        commits = Commits(
            step=self.steps,
            block=self.block.number,
            row=number[index],
            place=self.block.low + at[which],
            token=written[which],
            reward=reward[which],
            matched=torch.where(fill, matched, ~marked)[which],
            edited=edited[which],
            had_choice=(torch.where(marked, keyed, choice) & fill)[which],
            finished=finished,
            forwards=self.forwards,
            stop=self.block.high,
            operation=operation[which],
        )
        self.steps, self.forwards = self.steps + 1, 0
        return commits
