"""The decoding loop: blocks left to right, some commits a row and step (paper Alg. 1 and 2, and the lookahead's).

Knows ids only: no text, no key and no scheme (it is told what steers), no family of models. Marked and unmarked text
come out of the same lines. A step's forward is run on the canvases it chooses among; the winner's is the next step's,
so a lookahead of k costs k forwards a step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.decode.candidates import Candidates, Proposer
from dgmark.decode.canvas import Canvas, Commits, Progress, Response, collect
from dgmark.decode.config import DecodeConfig
from dgmark.decode.guards import good_enough, prolongs_loop
from dgmark.decode.schedule import blocks, confident, quotas
from dgmark.decode.selection import alternatives, select
from dgmark.decode.steering import Matching, Steering
from dgmark.errors import SettingsError
from dgmark.models.denoiser import Denoiser, check_logits, open_session
from dgmark.models.traits import traits_of


def decode(
    model: Denoiser,
    prompts: Int[Tensor, "batch prompt"],
    config: DecodeConfig,
    steering: Steering | Matching,
    seeds: Sequence[int],
    progress: Progress | None = None,
    padding: Int[Tensor, " batch"] | None = None,
) -> list[Response]:
    """Decode one response a row, all prompts of one length (padding included).

    Each row has its own generator, seeded with its own seed, and draws two uniforms a position of the active block
    and forward, so what a row draws depends neither on its neighbours nor on what is already committed. A row stops
    once all positions up to an end token are committed.

    Args:
        model: the denoiser.
        prompts: token ids.
        config: decoding settings.
        steering: what the scheme does to a step, or which candidates match; `everything` for no mark.
        seeds: one a row.
        progress: told the number of commits after each step.
        padding: columns of padding at the left of each prompt, for models that take it.
    """
    canvas = Canvas.after(prompts, config.length, model.mask_id, padding)
    return collect(model, canvas, decode_steps(model, canvas, config, steering, seeds), progress)


def decode_steps(
    model: Denoiser, canvas: Canvas, config: DecodeConfig, steering: Steering | Matching, seeds: Sequence[int]
) -> Iterator[Commits]:
    """Decode a canvas, telling after each step what it committed.

    Args:
        model: the denoiser.
        canvas: not written to.
        config: decoding settings; its length is the canvas's business.
        steering: what the scheme does to a step, or which candidates match.
        seeds: one a row.

    Raises:
        SettingsError: settings that mean nothing for this steering.
        ModelError: the model gives no logits of the shape that it declares.
    """
    with torch.inference_mode():
        yield from _Loop(model, canvas, config, Steering.of(steering), seeds).run()


@dataclass(frozen=True)
class _Canvases:
    """Whole canvases, and which places of the region are masked in each."""

    ids: Int[Tensor, "canvases total"]
    masked: Bool[Tensor, "canvases region"]


@dataclass(frozen=True)
class _Lookahead:
    """What a forward says of some of the canvases that a step chooses among."""

    canvases: Int[Tensor, " looked"]  # ascending
    candidates: Candidates
    logits: Tensor


@dataclass(frozen=True)
class _Block:
    """Block [low, high) of the region; candidates are computed for [low, window)."""

    number: int
    low: int
    high: int
    window: int
    carries: bool  # whether the candidates of its last step serve the next block


class _Loop:
    """One decode. `row`, `ids`, `masked` and `seat` are of the rows that still have tokens to come."""

    def __init__(
        self, model: Denoiser, canvas: Canvas, config: DecodeConfig, steering: Steering, seeds: Sequence[int]
    ) -> None:
        steering.check(config)
        device, rows = canvas.ids.device, len(canvas.ids)
        self.model, self.config = model, config
        self.session = open_session(model, config.cache, canvas.padding)
        self.proposer = Proposer(model, canvas, config, steering, seeds)
        self.origin = traits_of(model).block_origin
        self.ends = torch.tensor(model.end_ids if canvas.stops else (), device=device, dtype=torch.long)
        # the candidates of unmarked rows all match: there is nothing to look ahead for, and no loop to be wary of
        marked = steering.marked(rows, device)
        self.widths = torch.where(marked, config.lookahead, 1)
        self.lookahead = int(self.widths.max()) if rows else 1
        self.periods = steering.periods(rows, device) if config.repetition_guard and marked.any() else None
        self.whole = self.lookahead > 1 and config.lookahead_scope == "canvas"
        if self.whole and not marked.all():
            raise SettingsError(
                "lookahead scope canvas draws for the whole canvas, which would change the texts of rows without a "
                "mark: decode them apart from those with one, or use lookahead scope block"
            )

        self.start, self.layout = canvas.start, canvas.masked
        self.ids = canvas.ids.clone()
        self.masked = canvas.masked.repeat(len(canvas.ids), 1)
        self.row = torch.arange(len(canvas.ids), device=device)
        self.seat = self.row  # its place in the session's last `begin`
        self.steps = self.forwards = 0

    def run(self) -> Iterator[Commits]:
        """Decode, telling what each step commits."""
        plan = self._plan()
        candidates: Candidates | None = None
        for block in plan:
            if candidates is None:
                candidates = self._begin(block)
            counts = iter(quotas(int(self.layout[block.low : block.high].sum()), len(plan), self.config))
            alive = torch.ones_like(self.row, dtype=torch.bool)
            while len(live := (alive & self.masked[:, block.low : block.high].any(1)).nonzero()[:, 0]):
                commits, over = self._step(block, live, candidates, next(counts, 1))
                alive[over] = False
                yield commits
            if not alive.any():
                return
            if block.carries:  # blocks without anything to fill may lie between
                candidates = candidates.at(alive, slice(plan[block.number + 1].low - block.low, None))
            else:
                candidates = None
            self._keep(alive)

    def _plan(self) -> list[_Block]:
        """The blocks that have something to fill."""
        length, block_length = len(self.layout), self.config.block_length
        offset = self.start % block_length if self.origin == "canvas" else 0
        edges = [(low, high) for low, high in blocks(length, block_length, offset) if self.layout[low:high].any()]
        carries = self.whole and self.config.cache == "none"
        return [
            _Block(number, low, high, length if self.whole else high, carries and number + 1 < len(edges))
            for number, (low, high) in enumerate(edges)
        ]

    def _keep(self, alive: Tensor) -> None:
        if not alive.all():
            self.session.keep(self.seat[alive])
            self.row, self.ids, self.masked = self.row[alive], self.ids[alive], self.masked[alive]
            self.seat = torch.arange(len(self.row), device=self.row.device)

    # --- candidates ---

    def _begin(self, block: _Block) -> Candidates:
        logits = self.session.begin(self.ids, self.start + block.low, self.start + block.window)
        check_logits(self.model, logits, len(self.ids), block.window - block.low)
        self.forwards += len(self.ids)
        every = torch.arange(len(self.row), device=self.row.device)
        return self._propose(block, logits, self.ids, self.masked[:, block.low : block.window], every)

    def _propose(self, block: _Block, logits: Tensor, ids: Tensor, masked: Tensor, rows: Tensor) -> Candidates:
        """Candidates at the masked places of the window, for canvases of these rows."""
        return self.proposer(logits, ids, masked, self.row[rows], block.low)

    # --- one step ---

    def _step(self, block: _Block, live: Tensor, candidates: Candidates, count: int) -> tuple[Commits, Tensor]:
        """Commit in the live rows, renew their candidates, and tell which rows are over.

        `n` is the axis of the canvases that the step chooses among: those of row 0, best first, those of row 1, ...
        """
        now = candidates.at(live, slice(block.high - block.low))
        sets, exists = self._alternatives(block, live, now, count)
        several = exists.sum(1)
        of, rank = exists.nonzero(as_tuple=True)
        chosen = sets[of, rank]
        made = self._committed(block, live[of], now.tokens[of], chosen)
        over = self._over(made)

        ahead = self._worth_a_forward(block, made.masked, over, several[of] > 1).nonzero()[:, 0]
        first = several.cumsum(0) - several
        winner = first
        if len(ahead):
            seen = self._look(block, live[of], made, ahead)
            score = torch.full_like(sets[:, :, 0], -1, dtype=torch.long)
            matches = seen.candidates.matched & made.masked[ahead, block.low : block.window]
            score[of[ahead], rank[ahead]] = matches.sum(1)
            winner = first + score.argmax(1)  # the first of equals: the best reward, then the lowest position
            self._renew(block, live, candidates, seen, made, winner, several > 1)

        self.ids[live], self.masked[live] = made.ids[winner], made.masked[winner]
        return self._commits(block, live, now, chosen[winner], over[winner]), live[over[winner]]

    def _alternatives(self, block: _Block, live: Tensor, now: Candidates, count: int) -> tuple[Tensor, Tensor]:
        """The sets of places among which this step chooses, and which of them there are."""
        masked = self.masked[live, block.low : block.high]
        preferred = now.matched
        if self.config.guard:
            entropy = self.config.strategy == "entropy"
            preferred = preferred & good_enough(now.rewards, masked, self.config.guard, logarithmic=entropy)
        rows = self.row[live]
        if self.periods is not None:
            at = self.start + block.low
            preferred = preferred & ~prolongs_loop(now.tokens, self.ids[live], at, self.periods[rows])
        quota, width = torch.full_like(live, count), self.widths[rows]
        if self.config.commit != "quota":
            sure = confident(now.rewards, masked, preferred, self.config)
            quota, width = sure.clamp(min=1), torch.where(sure == 0, width, 1)
        if self.lookahead == 1:
            only = select(now.rewards, masked, preferred, quota)[:, None]
            return only, torch.ones_like(only[:, :, 0])
        return alternatives(now.rewards, masked, preferred, quota, width)

    def _committed(self, block: _Block, rows: Tensor, tokens: Tensor, chosen: Tensor) -> _Canvases:
        """The rows' canvases with the chosen candidates committed."""
        ids, masked = self.ids[rows], self.masked[rows]
        columns = slice(self.start + block.low, self.start + block.high)
        ids[:, columns] = torch.where(chosen, tokens, ids[:, columns])
        masked[:, block.low : block.high] &= ~chosen
        return _Canvases(ids, masked)

    def _over(self, made: _Canvases) -> Bool[Tensor, " n"]:
        """Canvases that are complete, or have an end token before which nothing is masked."""
        leading = made.masked.cumsum(1) == 0
        region = made.ids[:, self.start : self.start + made.masked.shape[1]]
        return (torch.isin(region, self.ends) & leading).any(1) | leading[:, -1]

    def _worth_a_forward(self, block: _Block, masked: Tensor, over: Tensor, contested: Tensor) -> Bool[Tensor, " n"]:
        """Canvases whose forward serves the next step of the block, or a choice among several."""
        goes_on = masked[:, block.low : block.high].any(1)
        if block.window > block.high:
            serves = contested | torch.full_like(contested, block.carries)
            goes_on = goes_on | (masked[:, block.high : block.window].any(1) & serves)
        return goes_on & ~(over & ~contested)

    def _look(self, block: _Block, rows: Tensor, made: _Canvases, ahead: Tensor) -> _Lookahead:
        """A forward of those canvases that are worth one."""
        ids, rows = made.ids[ahead], rows[ahead]
        logits = self.session.step(ids, self.seat[rows], self.start + block.low, self.start + block.window)
        self.forwards += len(ids)
        masked = made.masked[ahead, block.low : block.window]
        return _Lookahead(ahead, self._propose(block, logits, ids, masked, rows), logits)

    def _renew(
        self,
        block: _Block,
        live: Tensor,
        candidates: Candidates,
        seen: _Lookahead,
        made: _Canvases,
        winner: Tensor,
        contested: Tensor,
    ) -> None:
        """The winners' candidates are the next step's; under sampling drawn anew, unless they are to be kept."""
        which = torch.searchsorted(seen.canvases, winner).clamp(max=len(seen.canvases) - 1)
        computed = seen.canvases[which] == winner
        candidates.put(live[computed], seen.candidates.at(which[computed]))
        again = computed & contested
        if self.config.greedy or self.config.lookahead_proposals == "kept" or not again.any():
            return
        window = made.masked[winner[again], block.low : block.window]
        anew = self._propose(block, seen.logits[which[again]], made.ids[winner[again]], window, live[again])
        candidates.put(live[again], anew)

    def _commits(self, block: _Block, live: Tensor, now: Candidates, chosen: Tensor, over: Tensor) -> Commits:
        of, place = chosen.nonzero(as_tuple=True)
        commits = Commits(
            step=self.steps,
            block=block.number,
            row=self.row[live[of]],
            place=block.low + place,
            token=now.tokens[of, place],
            reward=now.rewards[of, place],
            matched=now.matched[of, place],
            finished=self.row[live[over]],
            forwards=self.forwards,
        )
        self.steps, self.forwards = self.steps + 1, 0
        return commits
