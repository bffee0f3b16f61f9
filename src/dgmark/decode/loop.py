"""The decoding loop: blocks from left to right, some commits per row and step (paper Alg. 1 and 2, and the lookahead).

The loop knows token ids only: no text, no key, no scheme (a `Steering` is passed in) and no family of models. The same
lines make marked and unmarked text. A step runs the forward on the canvases it chooses among; the winner's forward is
also that of the next step, so a lookahead of k costs k forwards a step.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.decode.candidates import Candidates, Proposer
from dgmark.decode.canvas import Canvas, Commits, Progress, Response, collect
from dgmark.decode.config import DecodeConfig
from dgmark.decode.faults import Watch
from dgmark.decode.guards import preferences, prolongs_loop
from dgmark.decode.round_trip import RoundTrip
from dgmark.decode.schedule import blocks, confident_count, quotas
from dgmark.decode.selection import alternatives, order_of, select
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
        steering: what the scheme does to a step, or which candidates match; `everything` for no mark.
        seeds: one for each row.
        progress: called after each step with the number of its commits.
        padding: number of padding columns at the left of each prompt, for models that take it.
        round_trip: the guard of texts that must read back; None for none, whatever the settings say.
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
        steering: what the scheme does to a step, or which candidates match.
        seeds: one for each row.
        round_trip: the guard of texts that must read back; None for none, whatever the settings say.
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


@dataclass(frozen=True)
class _Canvases:
    """Whole canvases, and which places of the region are masked in each."""

    ids: Int[Tensor, "canvases total"]
    masked: Bool[Tensor, "canvases region"]


@dataclass(frozen=True)
class _Choice:
    """What a step may commit in each row: which candidates are preferred, and how many are taken.

    Attributes:
        preferred: the candidates that are taken first.
        quota: how many are committed.
        width: how many the last of them is chosen among.
        readable: the candidates that do not go last because they do not read back; None for all.
    """

    preferred: Bool[Tensor, "rows block"]
    quota: Int[Tensor, " rows"]
    width: Int[Tensor, " rows"]
    readable: Bool[Tensor, "rows block"] | None


@dataclass(frozen=True)
class _Lookahead:
    """The result of a forward on some of the canvases that a step chooses among."""

    canvases: Int[Tensor, " looked"]  # their numbers, ascending
    candidates: Candidates
    logits: Tensor


@dataclass(frozen=True)
class _Block:
    """Block [low, high) of the region."""

    number: int
    low: int
    high: int


# How often a row draws again in one step while too few candidates read back. Between two line breaks and a word, say,
# hardly any token fits.
_REDRAWS = 64


class _Loop:
    """One decode. `row`, `ids`, `masked` and `seat` hold only the rows that are not finished."""

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
        self.session = open_session(model, config.cache, canvas.padding)
        self.proposer = Proposer(model, canvas, config, steering, seeds)
        traits = traits_of(model)
        self.watch = Watch(traits.name, model.vocab_size, self.proposer.forbidden, config.temperature)
        self.origin = traits.block_origin
        self.ends = torch.tensor(model.end_ids if canvas.stops else (), device=device, dtype=torch.long)
        # in unmarked rows every candidate matches: a lookahead has nothing to compare, and no match rewards a loop
        marked = steering.marked(rows, device)
        self.widths = torch.where(marked, config.lookahead, 1)
        self.lookahead = int(self.widths.max()) if rows else 1
        self.periods = steering.periods(rows, device) if config.repetition_guard and marked.any() else None

        self.round_trip, self.text = round_trip, canvas.text
        # the logits behind the candidates of each row of the block, as a forward's result and the row in it
        self.logits: dict[int, tuple[Tensor, int]] = {}

        self.start, self.layout = canvas.start, canvas.masked
        self.ids = canvas.ids.clone()
        self.masked = canvas.masked.repeat(len(canvas.ids), 1)
        self.row = torch.arange(len(canvas.ids), device=device)
        self.seat = self.row  # the row's place in the session's last `begin`
        self.steps = self.forwards = self.redrawn = 0

    def run(self, dropped: Collection[int] = ()) -> Iterator[Commits]:
        """Decode, and yield the commits of each step; rows that are `dropped` by then get no more."""
        plan = self._plan()
        for block in plan:
            candidates = self._begin(block)
            counts = iter(quotas(int(self.layout[block.low : block.high].sum()), len(plan), self.config))
            alive = torch.ones_like(self.row, dtype=torch.bool)
            while len(live := (alive & self.masked[:, block.low : block.high].any(1)).nonzero()[:, 0]):
                commits, finished = self._step(block, live, candidates, next(counts, 1))
                if len(finished):
                    self.watch.check()
                alive[finished] = False
                yield commits
                if dropped:
                    alive &= ~torch.isin(self.row, torch.tensor(sorted(dropped), device=self.row.device))
            self.watch.check()
            if not alive.any():
                return
            self._keep(alive)

    def _plan(self) -> list[_Block]:
        """The blocks that have something to fill."""
        length, block_length = len(self.layout), self.config.block_length
        offset = self.start % block_length if self.origin == "canvas" else 0
        edges = [(low, high) for low, high in blocks(length, block_length, offset) if self.layout[low:high].any()]
        return [_Block(number, low, high) for number, (low, high) in enumerate(edges)]

    def _keep(self, alive: Tensor) -> None:
        if not alive.all():
            self.session.keep(self.seat[alive])
            self.row, self.ids, self.masked = self.row[alive], self.ids[alive], self.masked[alive]
            self.seat = torch.arange(len(self.row), device=self.row.device)

    # --- candidates ---

    def _begin(self, block: _Block) -> Candidates:
        logits = self.session.begin(self.ids, self.start + block.low, self.start + block.high)
        self._remember(range(len(self.ids)), logits, range(len(self.ids)))
        every = torch.arange(len(self.row), device=self.row.device)
        return self._read(block, logits, self.ids, self.masked[:, block.low : block.high], every)

    def _read(self, block: _Block, logits: Tensor, ids: Tensor, masked: Tensor, rows: Tensor) -> Candidates:
        """Candidates from a new forward, whose logits are checked."""
        check_logits(self.model, logits, ids, masked.shape[1])
        self.forwards += len(ids)
        candidates = self._propose(block, logits, ids, masked, rows)
        self.watch.look(self.steps, block.low, self.row[rows], masked, logits, candidates.tokens)
        return candidates

    def _propose(self, block: _Block, logits: Tensor, ids: Tensor, masked: Tensor, rows: Tensor) -> Candidates:
        """Candidates at the masked places of the window, for canvases that come from these rows."""
        return self.proposer(logits, ids, masked, self.row[rows], block.low)

    def _remember(self, rows: Iterable[int], logits: Tensor, numbers: Iterable[int]) -> None:
        """Keep the logits of rows of the block in case they must draw again."""
        if self.round_trip is not None:
            self.logits.update({row: (logits, number) for row, number in zip(rows, numbers, strict=True)})

    # --- one step ---

    def _step(self, block: _Block, live: Tensor, candidates: Candidates, count: int) -> tuple[Commits, Tensor]:
        """Commit in the live rows and renew their candidates; return the commits and the rows that are finished.

        The step chooses among canvases, numbered 0 to n - 1: those of row 0, best first, then those of row 1, ...
        """
        now = candidates.at(live)
        if self.round_trip is None:
            choice = self._choice(block, live, now, count)
        else:
            now, choice = self._reading_back(self.round_trip, block, live, now, count)
        sets, exists = self._alternatives(block, live, now, choice)
        several = exists.sum(1)
        owner, rank = exists.nonzero(as_tuple=True)
        chosen = sets[owner, rank]
        canvases = self._committed(block, live[owner], now.tokens[owner], chosen)
        finished = self._finished(canvases)

        ahead = self._needs_forward(block, canvases.masked, finished, several[owner] > 1).nonzero()[:, 0]
        first = several.cumsum(0) - several
        winner = first
        if len(ahead):
            lookahead = self._look(block, live[owner], canvases, ahead)
            score = torch.full_like(sets[:, :, 0], -1, dtype=torch.long)
            matches = lookahead.candidates.matched & canvases.masked[ahead, block.low : block.high]
            score[owner[ahead], rank[ahead]] = matches.sum(1)
            winner = first + score.argmax(1)  # the first of equals: the best reward, then the lowest position
            self._renew(block, live, candidates, lookahead, canvases, winner, several > 1)

        self.ids[live], self.masked[live] = canvases.ids[winner], canvases.masked[winner]
        return self._commits(block, live, now, chosen[winner], finished[winner]), live[finished[winner]]

    def _choice(
        self, block: _Block, live: Tensor, now: Candidates, count: int, readable: Tensor | None = None
    ) -> _Choice:
        """What the settings and the guards of quality make of these candidates."""
        masked, rows = self.masked[live, block.low : block.high], self.row[live]
        preferred, masked = preferences(now.rewards, masked, now.matched, self.config, readable)
        if self.periods is not None:
            at = self.start + block.low
            preferred = preferred & ~prolongs_loop(now.tokens, self.ids[live], at, self.periods[rows])
        quota, width = torch.full_like(live, count), self.widths[rows]
        if self.config.commit != "quota":
            sure = confident_count(now.rewards, masked, preferred, self.config)
            quota, width = sure.clamp(min=1), torch.where(sure == 0, width, 1)
        return _Choice(preferred, quota, width, readable)

    def _reading_back(
        self, guard: RoundTrip, block: _Block, live: Tensor, now: Candidates, count: int
    ) -> tuple[Candidates, _Choice]:
        """The choice in which candidates that do not read back go last; see `RoundTrip`.

        Rows that would have to commit one draw again, without the tokens that did not read back: each token then has
        the model's probability, given that the text reads back.
        """
        masked, at = self.masked[live, block.low : block.high], self.start + block.low
        canvas, refused = self.ids[live], None
        for redraw in range(_REDRAWS + 1):
            choice = self._choice(block, live, now, count)
            order = order_of(now.rewards, masked, choice.preferred)
            unreadable, short = guard.unreadable(
                now.tokens, canvas, self.text, at, order, masked.sum(1), choice.quota, choice.width
            )
            if redraw == _REDRAWS or not short.any():
                break
            again = unreadable & short[:, None]
            refused = again.new_zeros(*again.shape, self.model.vocab_size) if refused is None else refused
            refused[(*again.nonzero(as_tuple=True), now.tokens[again])] = True
            if not self._redraw(block, live, now, again, refused):
                break
        if not unreadable.any():
            return now, choice
        after = self._choice(block, live, now, count, ~unreadable)
        return now, replace(after, quota=torch.minimum(after.quota, choice.quota))  # no more than were looked at

    def _redraw(self, block: _Block, live: Tensor, now: Candidates, again: Tensor, refused: Tensor) -> bool:
        """Draw these places again from the same logits, without the refused tokens; False if no token is left."""
        rows = again.any(1).nonzero()[:, 0]
        forwards = [self.logits[row] for row in live[rows].tolist()]
        logits, refused = torch.stack([forward[number] for forward, number in forwards]), refused[rows]
        left = (logits > -torch.inf) & ~refused
        left[..., self.proposer.forbidden] = False
        places = again[rows] & left.any(2)
        if not places.any():
            return False
        self.redrawn += int(places.sum())
        drawn = self.proposer(logits, self.ids[live[rows]], places, self.row[live[rows]], block.low, refused)
        now.put(rows, now.at(rows).where(places, drawn))
        return True

    def _alternatives(self, block: _Block, live: Tensor, now: Candidates, choice: _Choice) -> tuple[Tensor, Tensor]:
        """The sets of places among which this step chooses, and which entries of the array are sets of a row."""
        masked, preferred = self.masked[live, block.low : block.high], choice.preferred
        if self.lookahead == 1:
            only = select(now.rewards, masked, preferred, choice.quota, choice.readable)[:, None]
            return only, torch.ones_like(only[:, :, 0])
        return alternatives(now.rewards, masked, preferred, choice.quota, choice.width, choice.readable)

    def _committed(self, block: _Block, rows: Tensor, tokens: Tensor, chosen: Tensor) -> _Canvases:
        """The rows' canvases with the chosen candidates committed."""
        ids, masked = self.ids[rows], self.masked[rows]
        columns = slice(self.start + block.low, self.start + block.high)
        ids[:, columns] = torch.where(chosen, tokens, ids[:, columns])
        masked[:, block.low : block.high] &= ~chosen
        return _Canvases(ids, masked)

    def _finished(self, canvases: _Canvases) -> Bool[Tensor, " n"]:
        """Whether each canvas is complete, or has an end token with nothing masked before it."""
        leading = canvases.masked.cumsum(1) == 0
        region = canvases.ids[:, self.start : self.start + canvases.masked.shape[1]]
        return (torch.isin(region, self.ends) & leading).any(1) | leading[:, -1]

    def _needs_forward(self, block: _Block, masked: Tensor, finished: Tensor, contested: Tensor) -> Bool[Tensor, " n"]:
        """Whether each canvas needs a forward: for the next step of the block, or to choose among several."""
        goes_on = masked[:, block.low : block.high].any(1)
        return goes_on & ~(finished & ~contested)

    def _look(self, block: _Block, rows: Tensor, canvases: _Canvases, ahead: Tensor) -> _Lookahead:
        """Run the forward on the canvases numbered `ahead`."""
        ids, rows = canvases.ids[ahead], rows[ahead]
        logits = self.session.step(ids, self.seat[rows], self.start + block.low, self.start + block.high)
        masked = canvases.masked[ahead, block.low : block.high]
        return _Lookahead(ahead, self._read(block, logits, ids, masked, rows), logits)

    def _renew(
        self,
        block: _Block,
        live: Tensor,
        candidates: Candidates,
        lookahead: _Lookahead,
        canvases: _Canvases,
        winner: Tensor,
        contested: Tensor,
    ) -> None:
        """Give the winners' candidates to the next step; under sampling they are redrawn, unless they are "kept"."""
        which = torch.searchsorted(lookahead.canvases, winner).clamp(max=len(lookahead.canvases) - 1)
        computed = lookahead.canvases[which] == winner
        candidates.put(live[computed], lookahead.candidates.at(which[computed]))
        self._remember(live[computed].tolist(), lookahead.logits, which[computed].tolist())
        again = computed & contested
        kept = self.config.noise == "fixed" or self.config.lookahead_proposals == "kept"
        if self.config.greedy or kept or not again.any():
            return
        window = canvases.masked[winner[again], block.low : block.high]
        redrawn = self._propose(block, lookahead.logits[which[again]], canvases.ids[winner[again]], window, live[again])
        candidates.put(live[again], redrawn)

    def _commits(self, block: _Block, live: Tensor, now: Candidates, chosen: Tensor, finished: Tensor) -> Commits:
        index, place = chosen.nonzero(as_tuple=True)
        commits = Commits(
            step=self.steps,
            block=block.number,
            row=self.row[live[index]],
            place=block.low + place,
            token=now.tokens[index, place],
            reward=now.rewards[index, place],
            matched=now.matched[index, place],
            finished=self.row[live[finished]],
            forwards=self.forwards,
            redrawn=self.redrawn,
        )
        self.steps, self.forwards, self.redrawn = self.steps + 1, 0, 0
        return commits
