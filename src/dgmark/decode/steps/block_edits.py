"""How LLaDA 2.2 decodes a block: masks are filled, and tokens replaced, deleted and inserted, until it rests.

A step looks at one snapshot of the block. A mask takes the token that was drawn for it, a token may be replaced by the
likeliest one; both may be DELETE or SPLIT, which `scan` then carries out. The functions are pure, and take many blocks
at once, each at a step of its own. They know neither keys nor a model: candidates and confidences come in.

The published decoder (technical report of LLaDA 2.2, section 2) gives up after 1,000 steps and escapes from loops by
random choices. Here the last step is a final round, and the least sure change escapes.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

# how often a step escapes from a block that was written before
_MOST_ESCAPES = 5


@dataclass(frozen=True)
class EditRules:
    """The ids of edits, and when a step fills and replaces.

    Attributes:
        mask: the id of a position that is not filled.
        delete: the id by which a model asks for a deletion.
        split: the id by which it asks for an insertion.
        threshold: masks whose candidate has a probability above it are filled.
        edit_threshold: tokens are replaced by a likeliest token with a probability above it.
        steps: steps in which all masks are filled, whatever their probability; 0 fills all at once.
        post_steps: steps after the last original mask was filled; the last of them is a final round, which fills all
            masks and neither deletes nor inserts. With 0, the step that fills the last original mask is final.
        cap: steps of a block at most; the last one is a final round.
    """

    mask: int
    delete: int
    split: int
    threshold: float = 0.5
    edit_threshold: float = 0.0
    steps: int = 32
    post_steps: int = 16
    cap: int = 1000

    def edits(self, tokens: Int[Tensor, "*any"]) -> Bool[Tensor, "*any"]:
        """Which of these ids ask for a deletion or an insertion."""
        return (tokens == self.delete) | (tokens == self.split)


@dataclass(frozen=True)
class BlockState:
    """Blocks between two steps. A block has no place of the prompt: a prompt's tail is left out of the first one.

    Attributes:
        ids: their tokens.
        original: the places that were masks when the block began; a flag moves with its place, filled or not.
        initial: how many these were.
        step: steps so far.
        post: steps since the last original mask was filled.
        seen: what was written so far, as bytes.
    """

    ids: Int[Tensor, "blocks size"]
    original: Bool[Tensor, "blocks size"]
    initial: Int[Tensor, " blocks"]
    step: Int[Tensor, " blocks"]
    post: Int[Tensor, " blocks"]
    seen: list[set[bytes]] = field(repr=False)

    @classmethod
    def begin(cls, ids: Int[Tensor, "blocks size"], mask: int) -> "BlockState":
        """Blocks before their first step."""
        original = ids == mask
        none = torch.zeros(len(ids), dtype=torch.long, device=ids.device)
        return cls(ids, original, original.sum(1), none, none, [set() for _ in range(len(ids))])

    def at(self, which: Int[Tensor, " some"]) -> "BlockState":
        """Some of these blocks, by their numbers on the host."""
        there = which.to(self.ids.device)
        return BlockState(
            ids=self.ids[there],
            original=self.original[there],
            initial=self.initial[there],
            step=self.step[there],
            post=self.post[there],
            seen=[self.seen[number] for number in which.tolist()],
        )


class Plan(NamedTuple):
    """What a step does, before anybody refuses some of it.

    Attributes:
        fill: masks that take the token drawn for them.
        change: tokens that the likeliest one replaces.
        final: blocks in their final round.
        post: `BlockState.post` from this step on.
    """

    fill: Bool[Tensor, "blocks size"]
    change: Bool[Tensor, "blocks size"]
    final: Bool[Tensor, " blocks"]
    post: Int[Tensor, " blocks"]


def planned(
    state: BlockState,
    sure: Float[Tensor, "blocks size"],
    scores: Float[Tensor, "blocks size"],
    likeliest: Int[Tensor, "blocks size"],
    surest: Float[Tensor, "blocks size"],
    rules: EditRules,
) -> Plan:
    """What the next step of each block does.

    Args:
        state: the blocks.
        sure: the probability of the token that was drawn for each mask; that of other places has no effect.
        scores: by what masks are ordered: `sure`, or what a key made of it.
        likeliest: the likeliest token of each place.
        surest: its probability.
        rules: when a step fills and replaces.
    """
    masked = state.ids == rules.mask
    open_originals = (masked & state.original).sum(1)
    new = masked.sum(1) - open_originals
    post = torch.where(open_originals > 0, 0, state.post + 1)
    # 1. Masks: the sure ones, or at least as many as the schedule asks for and as are new; once it is over, all.
    steps = max(rules.steps, 1)
    need = state.initial // steps + (state.step < state.initial % steps) + new
    over = state.step >= rules.steps
    fill = masked & ((sure > rules.threshold) | over[:, None])
    order = scores.masked_fill(~masked, -torch.inf).sort(dim=1, descending=True, stable=True).indices
    first = torch.arange(masked.shape[1], device=masked.device) < need[:, None]
    surest_masks = torch.zeros_like(masked).scatter(1, order, first) & masked
    fill = torch.where((fill.sum(1) < need)[:, None], surest_masks, fill)
    # 2. Tokens.
    change = ~masked & (likeliest != state.ids) & (surest > rules.edit_threshold)
    # 3. The final round.
    if rules.post_steps:
        final = post >= rules.post_steps
    else:
        final = (open_originals > 0) & ~(masked & state.original & ~fill).any(1)
    final = final | (state.step >= rules.cap - 1)
    return Plan(torch.where(final[:, None], masked, fill), change, final, post)


def escaped(
    written: Int[Tensor, "blocks size"],
    state: BlockState,
    surest: Float[Tensor, "blocks size"],
    final: Bool[Tensor, " blocks"],
    other: Callable[[int, int, int], int],
) -> Int[Tensor, "blocks size"]:
    """What is written, on the host, where a block that was written before is left by its least sure change.

    Args:
        written: what the steps write, before deletions and insertions.
        state: the blocks before the step; what they write is added to what was written before.
        surest: the probability of the likeliest token of each place.
        final: blocks in their final round, which nothing escapes from.
        other: another token than this one, for a block and a place.
    """
    written, before, surest = written.cpu(), state.ids.cpu(), surest.cpu()
    for block, (seen, last) in enumerate(zip(state.seen, final.tolist(), strict=True)):
        row = written[block]
        for _ in range(_MOST_ESCAPES):
            changed = (row != before[block]).nonzero()[:, 0]
            if last or row.numpy().tobytes() not in seen or not len(changed):
                break
            place = int(changed[surest[block, changed].argmin()])
            row[place] = other(block, place, int(row[place]))
        seen.add(row.numpy().tobytes())
    return written


class Scanned(NamedTuple):
    """Blocks after deletions and insertions.

    Attributes:
        ids: their tokens.
        original: their flags.
        at: where each place of the blocks before begins now, if it is not cut off: the place where it is written,
            deleted, or a mask is inserted, once all before it is done.
    """

    ids: Int[Tensor, "blocks size"]
    original: Bool[Tensor, "blocks size"]
    at: Int[Tensor, "blocks size"]


def scan(written: Int[Tensor, "blocks size"], state: BlockState, rules: EditRules) -> Scanned:
    """Carry out deletions and insertions from left to right; a block keeps its size.

    DELETE leaves nothing. SPLIT leaves a new mask, and the token that stood there before the step. What is too long is
    cut off, what is too short is filled with new masks.

    An example, with D for DELETE, S for SPLIT and a dot for a mask:

        before         5 6 7 8 9
        written        5 D 7 S 4
        places         1 0 1 2 1
        begins at      0 1 1 2 4
        after          5 7 . 8 4
    """
    size = written.shape[1]
    deleted, split = written == rules.delete, written == rules.split
    places = 1 + split.long() - deleted.long()
    end = places.cumsum(1)
    # each token goes to the last of its places; what has none goes beyond all, and so does what is cut off
    target = torch.where(deleted, size, end - 1).clamp(max=size)
    tokens = torch.where(split, state.ids, written)
    ids = torch.full_like(written, rules.mask)
    ids = torch.nn.functional.pad(ids, (0, 1)).scatter(1, target, tokens)[:, :size]
    flags = torch.zeros_like(state.original)
    flags = torch.nn.functional.pad(flags, (0, 1)).scatter(1, target, state.original)[:, :size]
    return Scanned(ids, flags, end - places)


def advanced(state: BlockState, plan: Plan, scanned: Scanned, mask: int) -> tuple[BlockState, Bool[Tensor, " blocks"]]:
    """The blocks after a step, and which of them are done: after a final round, or unchanged and without masks."""
    stable = (scanned.ids == state.ids).all(1) & ~(scanned.ids == mask).any(1)
    after = replace(state, ids=scanned.ids, original=scanned.original, step=state.step + 1, post=plan.post)
    return after, stable | plan.final
