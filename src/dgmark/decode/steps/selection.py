"""Which positions a step commits, and how many, and which committed tokens it replaces: dgMARK's order, as pure
functions (paper Alg. 1 and 2, and the lookahead).

The loop, the engine adapters and the tests all use them. Where every candidate is preferred, as without a mark,
Algorithm 2 is Algorithm 1. The smallest relative reward is not the paper's. It never forbids a token: a match without
preference is treated like a candidate that does not match.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig
from dgmark.decode.marks.rules import DecodeSide, Places, Window
from dgmark.decode.steps.canvas import Canvas
from dgmark.decode.steps.round_trip import RoundTrip
from dgmark.errors import SettingsError
from dgmark.models.denoiser import BlockOrigin
from dgmark.models.host import on_device, on_host

_DREAM_EPSILON = 1e-3


def order_of(
    scores: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    preferred: Bool[Tensor, "batch block"] | None = None,
    confident: Bool[Tensor, "batch block"] | None = None,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Int[Tensor, "batch block"]:
    """The places of a block in the order of `select_positions`; those that are not masked come last.

    An example, whose second place is not masked, and whose third and last are preferred:

        score       .5   .    .9   .6   .8
        by score    2    4    3    0    1
        rank        1    0    2    1    2
        order       2    4    3    0    1
    """
    by_score = scores.sort(dim=-1, descending=True, stable=True).indices
    rank, good = masked.view(torch.uint8), masked
    if readable is not None:
        good = masked & readable
        rank = rank + good
    if confident is not None:
        rank = rank + 2 * (good & confident)
    if preferred is not None:
        rank = rank + (good & preferred)
    by_rank = rank.gather(-1, by_score).sort(dim=-1, descending=True, stable=True).indices
    return by_score.gather(-1, by_rank)


def _first_of(order: Tensor, masked: Tensor, quota: Tensor) -> Bool[Tensor, "batch block"]:
    """The first masked places of an order, as many as each row's quota."""
    # the order 2 0 1 has ranks 1 2 0, so that a quota of 2 takes places 0 and 2
    return (order.argsort(-1) < quota[:, None]) & masked


def select_positions(
    scores: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    preferred: Bool[Tensor, "batch block"] | None,
    quota: Int[Tensor, " batch"],
    confident: Bool[Tensor, "batch block"] | None = None,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Bool[Tensor, "batch block"]:
    """Choose the positions to commit in this step.

    Masked positions are taken in this order: readable before not readable, confident before not confident, preferred
    before not preferred, then higher score, then lower position.
    With quota 1 these are lines 4 to 6 of Algorithm 2, including the fall-back for an empty matching set.

    Args:
        scores: the rewards r_j, times what keyed bits changed; those of positions that are not masked have no effect.
        masked: positions not yet committed.
        preferred: whether the candidate v_j is in G_j, and may be preferred; None under a rule without an order.
        quota: how many positions to commit in each row; rows with fewer masked positions commit them all.
        confident: whether a threshold commits the candidate (`confident_places`); None if none does.
        readable: whether the candidate survives re-tokenization (`RoundTrip`); None if no candidate goes last.

    Raises:
        SettingsError: an argument is not a tensor of this type and shape on the device of the scores.
    """
    optional = {"preferred": preferred, "confident": confident, "readable": readable}
    given = {name: value for name, value in optional.items() if value is not None}
    _check_tensors(scores, quota, {"masked": masked, **given})
    return _first_of(order_of(scores, masked, preferred, confident, readable), masked, quota)


def _check_tensors(scores: object, quota: object, places: Mapping[str, object]) -> None:
    """Refuse what is not a tensor of the right type, shape and device, without reading a value."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point() or scores.dim() != 2 or _is_scattered(scores):
        raise SettingsError("scores are a tensor of floating-point numbers of the shape (batch, block)")
    if not isinstance(quota, Tensor) or quota.shape != scores.shape[:1] or quota.is_floating_point():
        raise SettingsError(f"quota is a tensor of {len(scores)} whole numbers, one for each row of the scores")
    for name, value in places.items():
        if not isinstance(value, Tensor) or value.dtype != torch.bool or value.shape != scores.shape:
            raise SettingsError(f"{name} is a tensor of booleans of the shape of the scores, {tuple(scores.shape)}")
    for value in (quota, *places.values()):
        assert isinstance(value, Tensor)
        if value.device != scores.device or _is_scattered(value):
            raise SettingsError(f"all arguments are dense tensors on one device, that of the scores, {scores.device}")


def _is_scattered(values: Tensor) -> bool:
    return values.is_nested or values.layout is not torch.strided


class Choice(NamedTuple):
    """How a step chooses among candidates: the arguments of `select_positions` and `alternatives`.

    Attributes:
        preferred: candidates that go first; None if all are alike.
        quota: how many each row commits, at least 1.
        width: among how many sets of positions a lookahead chooses in each row; None for 1.
        confident: those that a threshold commits; None if none does.
        readable: candidates that survive re-tokenization; None without a check.
        known_order: the places in their order, if it was asked for already.
    """

    preferred: Bool[Tensor, "batch block"] | None
    quota: Int[Tensor, " batch"]
    width: Int[Tensor, " batch"] | None
    confident: Bool[Tensor, "batch block"] | None
    readable: Bool[Tensor, "batch block"] | None
    known_order: Int[Tensor, "batch block"] | None = None

    def places(self, scores: Float[Tensor, "batch block"], masked: Bool[Tensor, "batch block"]) -> Tensor:
        """The positions that are committed, see `select_positions`."""
        if self.known_order is not None:
            return _first_of(self.known_order, masked, self.quota)
        return select_positions(scores, masked, self.preferred, self.quota, self.confident, self.readable)

    def order(self, scores: Float[Tensor, "batch block"], masked: Bool[Tensor, "batch block"]) -> Tensor:
        """The places in the order in which they are committed, see `order_of`."""
        return order_of(scores, masked, self.preferred, self.confident, self.readable)


def alternatives(
    scores: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    choice: Choice,
    most: int,
) -> tuple[Bool[Tensor, "batch k block"], Bool[Tensor, "batch k"]]:
    """The sets of positions among which a lookahead chooses (paper, "Top-k one-step lookahead").

    The first set is that of `select_positions`. Each other set replaces the last position of the first by one of the
    next positions in the same order; if that last position matches, its replacement must match, and if it is readable,
    so must be its replacement. With quota 1 the sets are the top-k of the candidate set C.

    An example, a row with quota 2 and width 3, in which a dot is a position that is committed:

        position        0    1    2    3    4    5
        score           .5   .    .9   .6   .8   .3
        matches         yes  .    yes  yes  no   yes
        order           2    3    0    5    4         (of those that match 2 is the best; 4 does not match)
        sets            2 3, 2 0, 2 5                 (the last position, 3, is replaced by 0 and by 5, never by 4)

    Args:
        scores: the rewards r_j, times what keyed bits changed.
        masked: positions not yet committed.
        choice: how to choose among them.
        most: the largest width k.

    Returns:
        The sets, best first, and whether each exists: a row may have fewer than k.
    """
    order, members = choice.order(scores, masked), masked.sum(-1)
    last = torch.minimum(choice.quota, members) - 1
    good = masked if choice.readable is None else masked & choice.readable
    matches = (good if choice.preferred is None else good & choice.preferred).sum(-1)
    others = good.sum(-1)
    # the last position is replaced by its own kind only
    end = torch.where(last < matches, matches, torch.where(last < others, others, members))
    count = end - last if choice.width is None else torch.minimum(end - last, choice.width)
    numbers = torch.arange(most, device=scores.device)
    place, exists = last[:, None] + numbers, numbers < count[:, None]
    rank = torch.arange(scores.shape[-1], device=scores.device)
    taken = (rank < last[:, None, None]) | (rank == place[:, :, None])
    sets = torch.zeros_like(taken).scatter(-1, order[:, None].expand_as(taken), taken)
    return sets & masked[:, None], exists


# --- which candidates are preferred, and how many are committed ---


def choose(
    side: DecodeSide,
    rows: Int[Tensor, " batch"],
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    matched: Bool[Tensor, "batch block"],
    config: DecodeConfig,
    *,
    quota: Int[Tensor, " batch"],
    width: Int[Tensor, " batch"] | None = None,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Choice:
    """What the settings make of candidates under a watermark: which are preferred, and how many a row commits.

    dgmark's loop, engines and diffusers' scheduler ask this.

    Args:
        side: what the watermark does to a step.
        rows: the row of the side that each row of these arrays has; -1 for a row without a mark, in which every
            candidate is preferred.
        rewards: the rewards r_j, by the model alone.
        masked: positions not yet committed.
        matched: whether each candidate v_j matches.
        config: `commit`, `threshold`, `min_relative_reward` and `strategy` are read.
        quota: how many positions each row commits, at least as many under commit "threshold".
        width: among how many sets a lookahead chooses; None for 1.
        readable: whether the candidate survives re-tokenization; None if no candidate goes last.
    """
    preferred, pool = side.preferred(matched), masked
    if readable is not None:  # of what does not survive something is committed only where a row has nothing else
        good = masked & readable
        pool = torch.where(good.any(1, keepdim=True), good, masked)
        preferred = None if preferred is None else preferred & readable
    if config.min_relative_reward:
        enough = _good_enough(rewards, pool, config)
        preferred = enough if preferred is None else preferred & enough
    if preferred is not None:
        preferred = preferred | ~side.marked(rows)[:, None]  # without a mark there is no match to prefer
    confident = confident_places(rewards, pool, preferred, config)
    if confident is not None:
        number = confident.sum(1)
        quota, width = torch.maximum(number, quota), None if width is None else torch.where(number == 0, width, 1)
    return Choice(preferred, quota, width, confident, readable)


def _good_enough(
    rewards: Float[Tensor, "batch block"], masked: Bool[Tensor, "batch block"], config: DecodeConfig
) -> Bool[Tensor, "batch block"]:
    """Whether each candidate's reward is at least `min_relative_reward` times the best of its row's masked positions.

    Rewards of strategy "entropy" are logarithms, which may be ln(1 / min_relative_reward) below the best.
    """
    best = rewards.masked_fill(~masked, -torch.inf).amax(-1, keepdim=True)
    if config.strategy == "entropy":
        return rewards >= best + math.log(config.min_relative_reward)
    return rewards >= best * config.min_relative_reward


# --- how many ---


def blocks_to_fill(canvas: Canvas, block_length: int, origin: BlockOrigin) -> list[tuple[int, int]]:
    """[start, stop) in the region of each block that has something to fill, left to right.

    Args:
        canvas: the canvas.
        block_length: positions in a block.
        origin: where the model counts its blocks from: the start of the region, or that of the canvas.
    """
    length = len(canvas.masked)
    before = canvas.start % block_length if origin == "canvas" else 0
    edges = [0, *range(block_length - before, length, block_length), length]
    return [(start, stop) for start, stop in pairwise(edges) if canvas.masked[start:stop].any()]


def quotas(masked: int, block_count: int, config: DecodeConfig) -> list[int]:
    """How many tokens each step of a block with `masked` positions commits; steps that commit none are left out.

    "llada" is LLaDA's get_num_transfer_tokens: the first steps take the remainder. "dream" takes the share 1 - s/t of
    the positions still masked, with t going linearly from 1 to 0.001; the last step takes all.
    """
    # the prompt may shift the blocks, so that there is one block more than there are steps
    steps = masked if config.steps is None else max(config.steps // block_count, 1)
    if config.schedule == "llada":
        counts = [masked // steps + (step < masked % steps) for step in range(steps)]
    else:
        times = [1 + (_DREAM_EPSILON - 1) * step / steps for step in range(steps)]
        counts, left = [], masked
        for time, following in pairwise(times):
            counts.append(int(left * (1 - following / time)))
            left -= counts[-1]
        counts.append(left)
    return [count for count in counts if count]


def confident_places(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    preferred: Bool[Tensor, "batch block"] | None,
    config: DecodeConfig,
) -> Bool[Tensor, "batch block"] | None:
    """Which candidates each row may commit at once: of the preferred ones, or of all if none is preferred.

    Commit "threshold" takes those with a confidence above `threshold`. Where not even the best passes, a row has none,
    and the caller commits the best alone. The confidence is the model's own: it says what may be committed together.

    The arguments are those of `choose`. None under commit "quota".
    """
    if config.commit == "quota":
        return None
    pool = masked
    if preferred is not None:
        good = masked & preferred
        pool = torch.where(good.any(-1, keepdim=True), good, masked)
    return pool & (rewards > config.threshold)


# --- edits of committed tokens (LLaDA 2.1) ---

# Steps of a row that may edit a block which is full; it goes on as long as each edits something.
MOST_EDITING_STEPS = 16


def lossless_edits(
    edits: Bool[Tensor, "canvases window"],
    tokens: Int[Tensor, "canvases window"],
    window: Window,
    side: DecodeSide,
    columns: list[int] | None = None,
) -> Bool[Tensor, "canvases window"]:
    """Of the proposed edits, from left to right, those that lose no match.

    An edit loses none if the new token completes as many bits of 1, less those of 0, as the old one, beside the
    committed tokens and the edits before it.

    Args:
        edits: places whose committed token would be replaced.
        tokens: the tokens that would replace them.
        window: the canvases before the edits.
        side: says the bits.
        columns: the places of the window to look at; None for all.
    """
    window, made = replace(window, ids=window.ids.clone()), edits.clone()
    every = torch.arange(len(edits), device=edits.device)
    for column in range(edits.shape[1]) if columns is None else columns:
        at = window.start + column
        old, new = window.ids[:, at].clone(), tokens[:, column]
        window.ids[:, at] = torch.where(edits[:, column], window.mask_id, old)
        places = Places(window, every.repeat(2), torch.full_like(old, column).repeat(2))
        before, after = side.signs(torch.cat([old, new])[:, None], places).sum((1, 2), dtype=torch.long).chunk(2)
        made[:, column] &= after >= before
        window.ids[:, at] = torch.where(made[:, column], new, old)
    return made


def surviving_edits(
    edits: Bool[Tensor, "canvases window"],
    tokens: Int[Tensor, "canvases window"],
    window: Window,
    side: DecodeSide,
    round_trip: RoundTrip | None,
) -> Bool[Tensor, "canvases window"]:
    """Of the edits of `lossless_edits`, those that are made: none loses a match, and all survive re-tokenization.

    `round_trip` tells which tokens survive; None for no check.
    """
    while len(columns := on_host(edits.any(0))[0].nonzero()[:, 0]):
        made = lossless_edits(edits, tokens, window, side, columns.tolist())
        if round_trip is not None:
            first, count = (~made).to(torch.int8).sort(dim=1, stable=True).indices, made.sum(1)
            lost, _ = round_trip.unreadable(tokens, window.ids, window.text, window.start, first, count, count)
            made = made & ~on_device(lost, made.device)
        if torch.equal(made, edits):
            break
        edits = made  # an edit that is left out may be what another one relied on
    return edits
