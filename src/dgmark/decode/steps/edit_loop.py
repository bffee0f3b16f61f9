"""The decoding loop of deletions and insertions (LLaDA 2.2): blocks from left to right, each until it rests.

A block is decoded by the functions of `block_edits`. This module gives them candidates, and refuses edits: those that
would cost matches, and those after which the text would not read back. A refused edit counts as none, so that the block
rests. Without a key, and without the check that a text reads back, all edits are made.
"""

from dataclasses import replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.marks.rules import Places
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


class EditLoop(Loop):
    """One decode whose blocks are whole; see `Loop`."""

    # of which block, of which rows
    _known: tuple[int, Int[Tensor, " rows"], BlockState] | None = None

    def _edit_rules(self) -> EditRules:
        delete, split = traits_of(self.model).edit_ids or (-1, -1)
        return EditRules(
            mask=self.model.mask_id,
            delete=delete,
            split=split,
            threshold=self.config.threshold,
            edit_threshold=self.config.edit_threshold or 0.0,
            steps=self.config.block_length,
        )

    def _state_of(self, rows: Rows) -> BlockState:
        """The state of the block of these rows: that after their last step, or at its begin."""
        known = self._known
        if known is None or known[0] != self.block.number:
            known = self.block.number, rows.number, BlockState.begin(rows.ids[:, self.columns], self.model.mask_id)
        _, numbers, state = known
        state = state.at(torch.searchsorted(numbers, rows.number))
        self._known = self.block.number, rows.number, state
        return state

    def _with_candidate(self, masked: Tensor) -> Tensor:
        return self.in_block(masked)

    def _candidates_of(self, rows: Rows) -> int:
        return int(rows.left.sum())

    # --- one step ---

    def _step(self, open_rows: OpenRows, count: int) -> tuple[Commits, OpenRows, Rows]:  # noqa: ARG002
        rules, rows = self._edit_rules(), open_rows.rows
        state = self._state_of(rows)
        # 1. What the step does, and what the final round writes in place of deletions and insertions.
        best = self._likeliest(open_rows)
        gains = open_rows.candidates.scores / open_rows.candidates.rewards.clamp(min=torch.finfo(torch.float32).tiny)
        plan = planned(state, best.sure, best.sure * gains, best.tokens, best.probabilities, rules)
        open_rows, best = self._without_edits(open_rows, best, plan, rules)
        # 2. Of this, what the mark and the text bear.
        plan = plan._replace(change=self._bearable(rows, state, plan.change, best.tokens, rules))
        if self.round_trip is not None:
            open_rows, plan = self._readable(self.round_trip, open_rows, state, plan, best, rules)
        tokens = open_rows.candidates.tokens
        written = _written(state, plan, tokens, best.tokens)
        # 3. Leave a loop, and carry out deletions and insertions.
        written = self._escaped(written, rows, state, plan, best)
        scanned = scan(written, state, rules)
        state_after, done = advanced(state, plan, scanned, rules.mask)
        # 4. Say so, and run the forward of the next step on the rows that stay open.
        ids, masked = rows.ids.clone(), rows.masked.clone()
        ids[:, self.columns] = scanned.ids
        self.in_block(masked).copy_(scanned.ids == rules.mask)
        has_end = torch.isin(scanned.ids, self.ends).any(1)
        done, has_end, left = on_host(done, has_end, self.in_block(masked).sum(1))
        complete = done & (has_end | (self.block.number == len(self.plan) - 1))
        after = replace(rows, ids=ids, masked=masked, left=left)
        self._known = self.block.number, rows.number, state_after
        commits = self._operations(open_rows, state, plan, best, written, scanned, rows.number[complete])
        still = (~done).nonzero()[:, 0]
        next_rows = after.at(still)
        still_open = (
            self._read(next_rows, self.session.step, next_rows.ids, next_rows.session_row)
            if len(still)
            else open_rows.at(still)
        )
        return commits, still_open, after.at((done & ~complete).nonzero()[:, 0])

    def _likeliest(self, open_rows: OpenRows) -> _Likeliest:
        logits = open_rows.logits_of(torch.arange(len(open_rows.rows)))
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits = logits.index_fill(-1, self.proposer.forbidden, -torch.inf)
        mass = logits.logsumexp(-1)
        tokens = logits.argmax(-1)
        at = torch.stack([tokens, open_rows.candidates.tokens], -1)
        probabilities, sure = (logits.gather(-1, at) - mass[..., None]).exp().unbind(-1)
        return _Likeliest(logits, tokens, probabilities, sure)

    def _without_edits(
        self, open_rows: OpenRows, best: _Likeliest, plan: Plan, rules: EditRules
    ) -> tuple[OpenRows, _Likeliest]:
        """What rows in their final round write: no deletion and no insertion, which are drawn again without these."""
        edits = rules.edits(open_rows.candidates.tokens) & plan.fill & plan.final[:, None]
        (edits, final) = on_host(edits, plan.final)
        if not final.any():
            return open_rows, best
        ids = torch.tensor([rules.delete, rules.split], device=best.tokens.device)
        plain = best.logits.index_fill(-1, ids, -torch.inf).argmax(-1)
        best = best._replace(tokens=torch.where(plan.final[:, None] & rules.edits(best.tokens), plain, best.tokens))
        if edits.any():
            refused = torch.zeros(best.logits.shape, dtype=torch.bool, device=ids.device)
            refused[..., ids] = True
            open_rows = self._redraw_without(open_rows, edits, refused) or open_rows
        return open_rows, best

    def _bearable(
        self, rows: Rows, state: BlockState, change: Tensor, tokens: Tensor, rules: EditRules
    ) -> Bool[Tensor, "rows window"]:
        """Of the changes, those that the mark bears, and replacements after which the text reads back.

        A replacement may not lose a match (`surviving_edits`). A deletion takes the pairs of its token with it, which
        are no longer claimed: it is asked only whether, of the pairs that close over the gap, as many match as not. An
        insertion brings more pairs with a keyed draw than it tears apart: it is refused only where all of these match.
        """
        window = self.proposer.window(rows.ids, rows.row, self.block.low, change.shape[1])
        edits = change & rules.edits(tokens)
        made = surviving_edits(change & ~edits, tokens, window, self.side, self.round_trip)
        scanned = scan(torch.where(made | edits, tokens, state.ids), state, rules)
        ids = rows.ids.clone()
        ids[:, self.columns] = scanned.ids
        deleted = edits & (tokens == rules.delete) & (scanned.at < change.shape[1])
        row, place = deleted.nonzero(as_tuple=True)
        after = replace(window, ids=ids)
        against = self.side.closing_bits(window, after, Places(after, row, scanned.at[row, place])) < 0
        edits[row[against], place[against]] = False
        row, place = (edits & (tokens == rules.split)).nonzero(as_tuple=True)
        torn = self.side.closing_bits(after, window, Places(window, row, place))
        against = (torn > 0) & (torn >= self.side.reach())
        edits[row[against], place[against]] = False
        return made | edits

    # --- texts that read back ---

    def _readable(
        self,
        round_trip: RoundTrip,
        open_rows: OpenRows,
        state: BlockState,
        plan: Plan,
        best: _Likeliest,
        rules: EditRules,
    ) -> tuple[OpenRows, Plan]:
        """The same without deletions after which the text would not read back, and with other tokens for such masks."""
        refused = None
        for _ in range(MOST_REDRAWS):
            tokens = open_rows.candidates.tokens
            written = _written(state, plan, tokens, best.tokens)
            unread = self._lost(round_trip, open_rows, state, plan, written, rules)
            if not unread.any():
                break
            lost = on_device(unread, tokens.device)
            again, plan = lost & plan.fill, plan._replace(change=plan.change & ~lost)
            (on,) = on_host(again)
            if not on.any():
                continue
            if refused is None:
                refused = torch.zeros(best.logits.shape, dtype=torch.bool, device=tokens.device)
            row, place = again.nonzero(as_tuple=True)
            refused[row, place, tokens[row, place]] = True
            redrawn = self._redraw_without(open_rows, on, refused)
            if redrawn is None:
                break
            open_rows = redrawn
        return open_rows, plan

    def _lost(
        self,
        round_trip: RoundTrip,
        open_rows: OpenRows,
        state: BlockState,
        plan: Plan,
        written: Tensor,
        rules: EditRules,
    ) -> Bool[Tensor, "rows window"]:
        """The places whose fill, or whose deletion, does not read back, on the host."""
        scanned, size = scan(written, state, rules), written.shape[1]
        kept = (scanned.at < size) & (plan.fill | plan.change)
        fills = kept & plan.fill & ~rules.edits(written)
        deleted = kept & (written == rules.delete)
        at = scanned.at.clamp(max=size - 1)
        # 1. What is looked at in the block after the step: filled masks, and what stands behind a deletion.
        none = torch.zeros_like(at)
        filled = none.scatter_add(1, at, fills.long()) > 0
        behind = (none.scatter_add(1, at, deleted.long()) > 0) & ~filled & (scanned.ids != rules.mask)
        # 2. The surest fill first, then the gaps.
        scores = open_rows.candidates.scores
        scores = torch.zeros_like(scores).scatter_add(1, at, scores * fills)
        rank = torch.where(filled, 1 + scores, torch.where(behind, 0.5, 0.0))
        order, number = rank.sort(dim=1, descending=True, stable=True).indices, (filled | behind).sum(1)
        ids = open_rows.rows.ids.clone()
        ids[:, self.columns] = scanned.ids.masked_fill(filled, rules.mask)
        found, _ = round_trip.unreadable(
            scanned.ids, ids, self.canvas.text, self.columns.start, order, number, number
        )  # fmt: skip
        at, fills, deleted = on_host(at, fills, deleted)
        filled, behind = on_host(filled, behind)
        return (fills & (found & filled).gather(1, at)) | (deleted & (found & behind).gather(1, at))

    def _escaped(
        self, written: Tensor, rows: Rows, state: BlockState, plan: Plan, best: _Likeliest
    ) -> Int[Tensor, "rows window"]:
        """What is written once loops are left: a token of a marked row stays, which loses no match."""

        def other(row: int, place: int, token: int) -> int:
            before = int(state.ids[row, place])
            if self.marked[rows.number[row]] and before != self.model.mask_id:
                return before
            taken = torch.tensor([token], device=written.device)
            return int(best.logits[row, place].index_fill(0, taken, -torch.inf).argmax())

        return on_device(escaped(written, state, best.probabilities, plan.final, other), written.device)

    def _operations(
        self,
        open_rows: OpenRows,
        state: BlockState,
        plan: Plan,
        best: _Likeliest,
        written: Tensor,
        scanned: Scanned,
        finished: Tensor,
    ) -> Commits:
        """What a step did, one operation after the other; what was cut off is left out."""
        rules, candidates = self._edit_rules(), open_rows.candidates
        number = open_rows.rows.number
        done = (written != state.ids) & (scanned.at < written.shape[1])
        operation = (written == rules.delete) + 2 * (written == rules.split).to(torch.int8)
        reward = torch.where(plan.fill, best.sure, best.probabilities)
        edited = state.ids != rules.mask
        done, at, written, reward, matched, choice, fill, edited, operation = on_host(
            *(done, scanned.at, written, reward, candidates.matched, candidates.had_choice),
            *(plan.fill, edited, operation),
        )
        keyed = self.side.had_choice(choice, open_rows.rows.left, self.config)
        choice = torch.where(self.marked[number][:, None], keyed, choice) & fill
        which = index, _ = done.nonzero(as_tuple=True)
        commits = Commits(
            step=self.steps,
            block=self.block.number,
            row=number[index],
            place=self.block.low + at[which],
            token=written[which],
            reward=reward[which],
            matched=torch.where(fill, matched, ~self.marked[number][:, None])[which],
            edited=edited[which],
            had_choice=choice[which],
            finished=finished,
            forwards=self.forwards,
            stop=self.block.high,
            operation=operation[which],
        )
        self.steps, self.forwards = self.steps + 1, 0
        return commits


def _written(state: BlockState, plan: Plan, fills: Tensor, tokens: Tensor) -> Int[Tensor, "rows window"]:
    """The block as the step writes it, before deletions and insertions are carried out."""
    return torch.where(plan.fill, fills, torch.where(plan.change, tokens, state.ids))
