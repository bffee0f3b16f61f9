"""The decoding loop: blocks from left to right, some commits per row and step (paper Alg. 1 and 2, and the lookahead),
and with an edit threshold edits of what the block has so far.

The loop knows token ids only: no text, no key, no watermark (a `Steering` is passed in) and no family of models. The
same lines make marked and unmarked text. A step runs the forward on the canvases it chooses among; the winner's forward
is also that of the next step, so a lookahead of k costs k forwards a step.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.decode.candidates import Candidates, Proposer
from dgmark.decode.canvas import Canvas, Commits, Response
from dgmark.decode.config import DecodeConfig
from dgmark.decode.edits import MOST_STEPS, surviving_edits
from dgmark.decode.events import Progress, collect
from dgmark.decode.faults import LogitsWatch
from dgmark.decode.round_trip import RoundTrip
from dgmark.decode.selection import (
    alternatives,
    blocks,
    order_of,
    preferences,
    prolongs_loop,
    quotas,
    select_positions,
    sure_places,
)
from dgmark.decode.steering import Matching, Steering
from dgmark.models.denoiser import Denoiser, check_logits, open_session, traits_of


def decode(
    model: Denoiser,
    prompts: Int[Tensor, "batch prompt"],
    config: DecodeConfig,
    steering: Steering | Matching,
    seeds: Sequence[int],
    progress: Progress | None = None,
    padding: Int[Tensor, " batch"] | None = None,
    round_trip: RoundTrip | None = None,
) -> list[Response]:
    """Decode one response for each row; all prompts have one length (padding included).

    Each row has its own generator and seed. At each forward it draws two uniforms for each position of the active
    block, so its draws depend neither on its neighbours nor on the tokens already committed. A row stops once all
    positions up to an end token are committed.

    Args:
        model: the denoiser.
        prompts: token ids.
        config: decoding settings.
        steering: what the watermark does to a step, or which candidates match; `match_all` for no mark.
        seeds: one for each row.
        progress: called after each step with the number of its commits.
        padding: number of padding columns at the left of each prompt, for models that take it.
        round_trip: the guard of texts that must survive re-tokenization; None for none, whatever the settings say.
    """
    canvas = Canvas.after(prompts, config.length, model.mask_id, padding)
    return collect(model, canvas, decode_steps(model, canvas, config, steering, seeds, round_trip), progress)


def decode_steps(
    model: Denoiser,
    canvas: Canvas,
    config: DecodeConfig,
    steering: Steering | Matching,
    seeds: Sequence[int],
    round_trip: RoundTrip | None = None,
    dropped: Collection[int] = (),
) -> Iterator[Commits]:
    """Decode a canvas and yield the commits of each step.

    Args:
        model: the denoiser.
        canvas: the canvas to decode; not written to.
        config: decoding settings; the length is ignored, the canvas has its own.
        steering: what the watermark does to a step, or which candidates match.
        seeds: one for each row.
        round_trip: the guard of texts that must survive re-tokenization; None for none, whatever the settings say.
        dropped: rows that nobody wants any more; whoever has this collection may add to it between two steps. They get
            no further commits, and the other rows go on as if nothing had happened.

    Raises:
        SettingsError: a setting is invalid for this steering.
        ModelFault: the model's logits have another shape, dtype or device than they should, or are NaN, +inf, or -inf
            for every id. Values are checked once a block, and before a row is finished.
    """
    steps: Iterator[Commits] | None = None
    while True:
        # left at each step: several decodes may take turns, and none may leave its mode to whoever asks for the step
        with torch.inference_mode():
            if steps is None:
                steps = _Loop(model, canvas, config, Steering.of(steering), seeds, round_trip).run(dropped)
            commits = next(steps, None)
        if commits is None:
            return
        yield commits


class _Choice(NamedTuple):
    """How a step chooses among candidates.

    Attributes:
        preferred: candidates that go first.
        sure: those that a threshold or factor commits; None if none does.
        quota: how many each row commits.
        width: among how many the last of them is chosen.
        readable: candidates that survive re-tokenization; None if nobody asked.
    """

    preferred: Bool[Tensor, "rows window"]
    sure: Bool[Tensor, "rows window"] | None
    quota: Int[Tensor, " rows"]
    width: Int[Tensor, " rows"]
    readable: Bool[Tensor, "rows window"] | None = None


# How often a row draws again in one step while too few candidates survive. Between two line breaks and a word, say,
# hardly any token fits.
_REDRAWS = 64


class _Loop:
    """One decode. `row`, `ids`, `masked` and `seat` hold only the rows that are not finished.

    The active block is number `block`; its places in the region are `low` to `high`.
    """

    def __init__(
        self,
        model: Denoiser,
        canvas: Canvas,
        config: DecodeConfig,
        steering: Steering,
        seeds: Sequence[int],
        round_trip: RoundTrip | None,
    ) -> None:
        steering.check(config)
        device, rows = canvas.ids.device, len(canvas.ids)
        self.model, self.config = model, config
        self.rule = steering.rule
        self.session = open_session(model, config.cache, canvas.padding)
        self.proposer = Proposer(model, canvas, config, steering, seeds)
        traits = traits_of(model)
        self.watch = LogitsWatch(traits.name, model.vocab_size, self.proposer.forbidden, config.temperature)
        self.origin = traits.block_origin
        self.ends = torch.tensor(model.end_ids if canvas.stops else (), device=device, dtype=torch.long)
        self.row = torch.arange(rows, device=device)
        # in unmarked rows every candidate matches: a lookahead has nothing to compare, and no match rewards a loop
        self.widths = torch.where(steering.marked(self.row), config.lookahead, 1)
        self.lookahead = int(self.widths.max()) if rows else 1
        guarded = config.repetition_guard and self.rule is not None
        self.periods = self.rule.periods(rows).to(device) if guarded and self.rule else None

        self.round_trip, self.text = round_trip, canvas.text
        # the logits behind the candidates of each row of the block, as a forward's result and the row in it
        self.logits: dict[int, tuple[Tensor, int]] = {}

        self.start, self.layout = canvas.start, canvas.masked
        self.ids = canvas.ids.clone()
        self.masked = canvas.masked.repeat(len(canvas.ids), 1)
        self.seat = self.row  # the row's place in the session's last `begin`
        self.again = torch.ones_like(self.row, dtype=torch.bool)  # whether there is more to do in the block
        # with an edit threshold: whether a row goes on though its block is full, and for how many steps it did
        self.unsettled, self.editing_steps = torch.zeros_like(self.again), torch.zeros_like(self.row)
        self.block = self.low = self.high = 0
        self.steps = self.forwards = 0

    def run(self, dropped: Collection[int] = ()) -> Iterator[Commits]:
        """Decode, and yield the commits of each step; rows that are `dropped` by then get no more."""
        plan = self._plan()
        for self.block, (self.low, self.high) in enumerate(plan):
            candidates = self._begin()
            counts = iter(quotas(int(self.layout[self.low : self.high].sum()), len(plan), self.config))
            alive = torch.ones_like(self.row, dtype=torch.bool)
            self.again, self.unsettled, self.editing_steps = alive.clone(), alive.clone(), torch.zeros_like(self.row)
            while len(live := (alive & self.again).nonzero()[:, 0]):
                commits, finished = self._step(live, candidates, next(counts, 1))
                if len(finished):
                    self.watch.raise_faults()
                alive[finished] = False
                yield commits
                if dropped:
                    alive &= ~torch.isin(self.row, torch.tensor(sorted(dropped), device=self.row.device))
            self.watch.raise_faults()
            if not alive.any():
                return
            self._keep(alive)

    def _plan(self) -> list[tuple[int, int]]:
        """The blocks that have something to fill."""
        length, block_length = len(self.layout), self.config.block_length
        offset = self.start % block_length if self.origin == "canvas" else 0
        return [(low, high) for low, high in blocks(length, block_length, offset) if self.layout[low:high].any()]

    def _in_block(self, masked: Tensor) -> Tensor:
        """The places of the block, of an array over the region."""
        return masked[:, self.low : self.high]

    def _open(self, masked: Tensor) -> Tensor:
        """The places of the block that have a candidate: those that are masked, or may be edited."""
        masked = self._in_block(masked)
        return masked if self.config.edit_threshold is None else self.layout[self.low : self.high].expand_as(masked)

    def _keep(self, alive: Tensor) -> None:
        if not alive.all():
            self.session.keep(self.seat[alive])
            self.row, self.ids, self.masked = self.row[alive], self.ids[alive], self.masked[alive]
            self.seat = torch.arange(len(self.row), device=self.row.device)

    # --- candidates ---

    def _begin(self) -> Candidates:
        logits = self.session.begin(self.ids, self.start + self.low, self.start + self.high)
        self._remember(range(len(self.ids)), logits, range(len(self.ids)))
        every = torch.arange(len(self.row), device=self.row.device)
        return self._read(logits, self.ids, self._in_block(self.masked), every)

    def _read(self, logits: Tensor, ids: Tensor, masked: Tensor, rows: Tensor) -> Candidates:
        """Candidates from a new forward on canvases of these rows, whose logits are checked."""
        check_logits(self.model, logits, ids, masked.shape[1])
        self.forwards += len(ids)
        candidates = self.proposer(logits, ids, masked, self.row[rows], self.low)
        self.watch.check(self.steps, self.low, self.row[rows], masked, logits, candidates.tokens)
        return candidates

    def _remember(self, rows: Iterable[int], logits: Tensor, numbers: Iterable[int]) -> None:
        """Keep the logits of rows of the block in case they must draw again."""
        if self.round_trip is not None:
            self.logits.update({row: (logits, number) for row, number in zip(rows, numbers, strict=True)})

    # --- one step ---

    def _step(self, live: Tensor, candidates: Candidates, count: int) -> tuple[Commits, Tensor]:
        """Commit in the live rows and renew their candidates; return the commits and the rows that are finished.

        The step chooses among canvases, numbered 0 to n - 1: those of row 0, best first, then those of row 1, ...
        """
        now = candidates.at(live)
        edited = self._edit(live, now)
        sets, exists = self._alternatives(live, now, count)
        several = exists.sum(1)
        owner, rank = exists.nonzero(as_tuple=True)
        chosen, rows = sets[owner, rank], live[owner]
        ids, masked = self._committed(rows, now.tokens[owner], chosen)
        again = self._in_block(masked).any(1)
        if edited is not None:
            again |= self.unsettled[rows]
        finished = self._finished(ids, masked, again)

        # a canvas needs a forward for the next step of the block, or to be compared with others
        goes_on = again & ~(finished & (several[owner] == 1))
        ahead = goes_on.nonzero()[:, 0]
        winner = first = several.cumsum(0) - several
        if len(ahead):
            seats = self.seat[rows[ahead]]
            logits = self.session.step(ids[ahead], seats, self.start + self.low, self.start + self.high)
            seen = self._read(logits, ids[ahead], self._open(masked)[ahead], rows[ahead])
            if self.lookahead > 1:
                score = torch.full_like(sets[:, :, 0], -1, dtype=torch.long)
                score[owner[ahead], rank[ahead]] = (seen.matched & self._in_block(masked)[ahead]).sum(1)
                winner = first + score.argmax(1)  # the first of equals: the best score, then the lowest position
            which = torch.searchsorted(ahead, winner).clamp(max=len(ahead) - 1)
            computed = ahead[which] == winner
            candidates.put(live[computed], seen.at(which[computed]))
            self._remember(live[computed].tolist(), logits, which[computed].tolist())
            redrawn = computed & (several > 1)
            self._redraw_winners(
                candidates, live[redrawn], logits[which[redrawn]], ids[winner[redrawn]], masked[winner[redrawn]]
            )

        self.ids[live], self.masked[live], self.again[live] = ids[winner], masked[winner], again[winner]
        done = finished[winner]
        return self._commits(live, now, chosen[winner], edited, done), live[done]

    def _edit(self, live: Tensor, now: Candidates) -> Tensor | None:
        """Replace committed tokens of the block, where a candidate is sure enough and no match is lost by it.

        Returns:
            The places that were edited; None without an edit threshold.
        """
        threshold = self.config.edit_threshold
        if threshold is None:
            return None
        masked, ids, rows = self._in_block(self.masked)[live], self.ids[live], self.row[live]
        columns = slice(self.start + self.low, self.start + self.high)
        window = self.proposer.window(ids, rows, self.low, masked.shape[1])
        edits = self._open(self.masked)[live] & ~masked & (now.tokens != ids[:, columns]) & (now.rewards > threshold)
        edits = surviving_edits(edits, now.tokens, window, self.rule, self.round_trip)
        self.ids[live, columns] = torch.where(edits, now.tokens, ids[:, columns])
        full = ~masked.any(1)
        self.editing_steps[live] += full
        self.unsettled[live] = ~full | (edits.any(1) & (self.editing_steps[live] < MOST_STEPS))
        return edits

    def _redraw_winners(
        self, candidates: Candidates, rows: Tensor, logits: Tensor, ids: Tensor, masked: Tensor
    ) -> None:
        """Draw the winners' candidates again under sampling, unless those of the lookahead are kept."""
        kept = self.config.noise == "fixed" or self.config.lookahead_proposals == "kept"
        if len(rows) and not kept and not self.config.greedy:
            candidates.put(rows, self.proposer(logits, ids, self._open(masked), self.row[rows], self.low))

    def _alternatives(self, live: Tensor, now: Candidates, count: int) -> tuple[Tensor, Tensor]:
        """The sets of places among which this step chooses, and which entries of the array are sets of a row."""
        guard = self.round_trip
        choice = self._choice(live, now, count) if guard is None else self._surviving(guard, live, now, count)
        preferred, sure, quota, width, readable = choice
        masked = self._in_block(self.masked)[live]
        if self.lookahead == 1:
            only = select_positions(now.scores, masked, preferred, quota, sure, readable)[:, None]
            return only, torch.ones_like(only[:, :, 0])
        return alternatives(now.scores, masked, preferred, quota, width, sure, readable)

    def _choice(self, live: Tensor, now: Candidates, count: int, readable: Tensor | None = None) -> _Choice:
        """What the settings and the guards make of these candidates."""
        masked, rows = self._in_block(self.masked)[live], self.row[live]
        ordered = self.rule is not None and self.rule.ordered
        preferred = now.matched if ordered else torch.ones_like(masked)
        preferred, pool = preferences(now.rewards, masked, preferred, self.config, readable)
        if self.periods is not None:
            at = self.start + self.low
            preferred = preferred & ~prolongs_loop(now.tokens, self.ids[live], at, self.periods[rows])
        quota, width = torch.full_like(live, count if self.config.commit == "quota" else 1), self.widths[rows]
        sure = sure_places(now.rewards, pool, preferred, self.config)
        if sure is not None:
            number = sure.sum(1)
            quota, width = torch.maximum(number, quota), torch.where(number == 0, width, 1)
        return _Choice(preferred, sure, quota, width, readable)

    def _surviving(self, guard: RoundTrip, live: Tensor, now: Candidates, count: int) -> _Choice:
        """The choice in which candidates that do not survive re-tokenization go last; see `RoundTrip`.

        Rows that would have to commit one draw again, without the tokens that did not survive: each token then has the
        probability that its draw gives it, given that the text survives.
        """
        masked, at = self._in_block(self.masked)[live], self.start + self.low
        canvas, refused = self.ids[live], None
        for redraw in range(_REDRAWS + 1):
            preferred, sure, quota, width, _ = choice = self._choice(live, now, count)
            order = order_of(now.scores, masked, preferred, sure)
            lost, short = guard.unreadable(now.tokens, canvas, self.text, at, order, masked.sum(1), quota, width)
            if redraw == _REDRAWS or not short.any():
                break
            again = lost & short[:, None]
            refused = again.new_zeros(*again.shape, self.model.vocab_size) if refused is None else refused
            refused[(*again.nonzero(as_tuple=True), now.tokens[again])] = True
            if not self._redraw(live, now, again, refused):
                break
        if not lost.any():
            return choice
        after = self._choice(live, now, count, ~lost)
        return after._replace(quota=torch.minimum(after.quota, quota))  # no more than were looked at

    def _redraw(self, live: Tensor, now: Candidates, again: Tensor, refused: Tensor) -> bool:
        """Draw these places again from the same logits, without the refused tokens; False if no token is left."""
        rows = again.any(1).nonzero()[:, 0]
        forwards = [self.logits[row] for row in live[rows].tolist()]
        logits, refused = torch.stack([forward[number] for forward, number in forwards]), refused[rows]
        left = (logits > -torch.inf) & ~refused
        left[..., self.proposer.forbidden] = False
        places = again[rows] & left.any(2)
        if not places.any():
            return False
        drawn = self.proposer(logits, self.ids[live[rows]], places, self.row[live[rows]], self.low, refused)
        now.put(rows, now.at(rows).where(places, drawn))
        return True

    def _committed(self, rows: Tensor, tokens: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """Canvases of these rows with the chosen candidates committed, and which places of their regions are masked."""
        ids, masked = self.ids[rows], self.masked[rows]
        columns = slice(self.start + self.low, self.start + self.high)
        ids[:, columns] = torch.where(chosen, tokens, ids[:, columns])
        masked[:, self.low : self.high] &= ~chosen
        return ids, masked

    def _finished(self, ids: Tensor, masked: Tensor, again: Tensor) -> Bool[Tensor, " n"]:
        """Whether each canvas is complete and not to be edited, or has an end token with nothing masked before it."""
        leading = masked.cumsum(1) == 0
        region = ids[:, self.start : self.start + masked.shape[1]]
        return (torch.isin(region, self.ends) & leading).any(1) | leading[:, -1] & ~again

    def _commits(
        self, live: Tensor, now: Candidates, chosen: Tensor, edited: Tensor | None, finished: Tensor
    ) -> Commits:
        index, place = (chosen if edited is None else chosen | edited).nonzero(as_tuple=True)
        commits = Commits(
            step=self.steps,
            block=self.block,
            row=self.row[live[index]],
            place=self.low + place,
            token=now.tokens[index, place],
            reward=now.rewards[index, place],
            matched=now.matched[index, place],
            edited=torch.zeros_like(index, dtype=torch.bool) if edited is None else edited[index, place],
            finished=self.row[live[finished]],
            forwards=self.forwards,
        )
        self.steps, self.forwards = self.steps + 1, 0
        return commits
