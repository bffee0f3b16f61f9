"""Which positions a step commits, and how many: the whole of dgMARK's steering, as pure functions of one order
(paper Alg. 1 and 2, and the lookahead).

The loop, the engine adapters and the tests all use them. Without a mark every candidate matches, and Algorithm 2 is
Algorithm 1. The guards are not the paper's; they never forbid a token: a match without preference is treated like a
candidate that does not match.
"""

import math
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig

_DREAM_EPSILON = 1e-3
# no level is as large, nor as small with the other sign
MAX_LEVEL = 2**16
# of a place that is out of the choice: no level makes up for it
_OUT = -(2**40)
# whether each candidate matches, or its level
Levelled = Bool[Tensor, "batch block"] | Int[Tensor, "batch block"]


def order_of(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    levels: Levelled,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Int[Tensor, "batch block"]:
    """The places of a block in the order of `select_positions`; those that are not masked come last."""
    by_reward = rewards.sort(dim=-1, descending=True, stable=True).indices
    good = masked if readable is None else masked & readable
    preference = masked + good * (MAX_LEVEL + levels.to(torch.int32))
    by_preference = preference.gather(-1, by_reward).sort(dim=-1, descending=True, stable=True).indices
    return by_reward.gather(-1, by_preference)


def select_positions(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    levels: Levelled,
    quota: Int[Tensor, " batch"] | int,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Bool[Tensor, "batch block"]:
    """Choose the positions to commit in this step.

    Masked positions are taken in this order: readable before not readable, higher level before lower (matching before
    not matching), then higher reward, then lower position.
    With quota 1 these are lines 4 to 6 of Algorithm 2, including the fall-back for an empty matching set.

    Args:
        rewards: the rewards r_j; those of positions that are not masked have no effect.
        masked: positions not yet committed.
        levels: whether the candidate v_j is in G_j (and may be preferred), or its level under the bigram rule.
        quota: how many positions to commit in each row; rows with fewer masked positions commit them all.
        readable: whether the candidate survives re-tokenization (`RoundTrip`); None if no candidate goes last.
    """
    quota = _of_each_row(quota, masked)
    order = order_of(rewards, masked, levels, readable)
    first = torch.arange(rewards.shape[-1], device=rewards.device) < quota[:, None]
    return torch.zeros_like(masked).scatter(-1, order, first) & masked


def alternatives(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    levels: Levelled,
    quota: Int[Tensor, " batch"] | int,
    width: Int[Tensor, " batch"] | int,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> tuple[Bool[Tensor, "batch k block"], Bool[Tensor, "batch k"]]:
    """The sets of positions among which a lookahead chooses (paper, "Top-k one-step lookahead").

    The first set is that of `select_positions`. Each other set replaces the last position of the first by one of the
    next positions in the same order; if that last position matches, its replacement must match, and if it is readable,
    so must be its replacement. With quota 1 the sets are the top-k of the candidate set C.

    Args:
        rewards: the rewards r_j.
        masked: positions not yet committed.
        levels: whether the candidate may be preferred, or its level; a level above 0 is a match.
        quota: number of positions in each set of a row, at least 1.
        width: largest number of sets of a row, at least 1.
        readable: whether the candidate survives re-tokenization; None if no candidate goes last.

    Returns:
        The sets, best first, and whether each exists (a row may have fewer than k); k is the largest number of sets of
        a row.
    """
    quota, width = _of_each_row(quota, masked), _of_each_row(width, masked)
    order = order_of(rewards, masked, levels, readable)
    members = masked.sum(-1)
    last = torch.minimum(quota, members) - 1
    good = masked if readable is None else masked & readable
    matches, others = (good & (levels > 0)).sum(-1), good.sum(-1)
    # the last position is replaced by its own kind only
    end = torch.where(last < matches, matches, torch.where(last < others, others, members))
    count = torch.minimum(end - last, width)
    k = max(int(count.max()), 1)
    place = last[:, None] + torch.arange(k, device=rewards.device)
    exists = torch.arange(k, device=rewards.device) < count[:, None]
    rank = torch.arange(rewards.shape[-1], device=rewards.device)
    taken = (rank < last[:, None, None]) | (rank == place[:, :, None])
    sets = torch.zeros_like(taken).scatter(-1, order[:, None].expand_as(taken), taken)
    return sets & masked[:, None], exists


def _of_each_row(number: Tensor | int, masked: Tensor) -> Int[Tensor, " batch"]:
    return number if isinstance(number, Tensor) else torch.full((len(masked),), number, device=masked.device)


# --- which matches are preferred ---


def levels_and_quota(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    levels: Int[Tensor, "batch block"],
    links: Int[Tensor, "batch block block"] | None,
    least: Int[Tensor, " batch"],
    config: DecodeConfig,
    rounds: int | None = None,
) -> tuple[Int[Tensor, "batch block"], Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """By which levels a step commits, and how many positions.

    Args:
        rewards: the rewards r_j.
        masked: positions that may be committed.
        levels: the level of each candidate, as `preferences` leaves it.
        links: what a commit at one place adds to the level at another; None for nothing.
        least: how many each row commits under commit "quota", and the fewest under the others.
        config: `commit`, `threshold` and `factor` are read.
        rounds: see `renewed_levels`.

    Returns:
        The levels; how many each row commits; and for how many of those the confidence was enough.
    """
    quota, sure = least, torch.zeros_like(least)
    if config.commit != "quota":
        sure = confident_count(rewards, masked, levels > 0, config)
        quota = torch.maximum(sure, least)
        # of several commits those that match go by their rewards, which is what they were counted by
        levels = torch.where(sure[:, None] > 1, levels.sign(), levels)
    if links is not None:
        # where several are sure, renewed levels would put a candidate that is not before one that is
        levels = renewed_levels(rewards, masked, levels, links, torch.where(sure > 1, 1, quota), rounds)
    return levels, quota, sure


def renewed_levels(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    levels: Int[Tensor, "batch block"],
    links: Int[Tensor, "batch block block"],
    quota: Int[Tensor, " batch"],
    rounds: int | None = None,
) -> Int[Tensor, "batch block"]:
    """The levels for a step of several commits, chosen one by one, each with the levels that those before it leave.

    All but the last of a row are raised above every other level, the first the most.

    Args:
        rewards: the rewards r_j.
        masked: positions that may be committed.
        levels: the level of each candidate.
        links: what a commit at one place adds to the level at another.
        quota: how many positions each row commits.
        rounds: one less than the largest quota, or more, for callers that must not wait for the device; None asks it.
    """
    rounds = int(quota.max()) - 1 if rounds is None else rounds
    several = torch.minimum(quota, masked.sum(1))[:, None]
    block = rewards.shape[-1]
    # the best is the one with the largest (level, -rank by reward), as one number; those that are out have a lower one
    rank = rewards.sort(dim=-1, descending=True, stable=True).indices.argsort(-1)
    score, place = (-rank).masked_fill(~masked, _OUT), torch.arange(block, device=rewards.device)
    for number in range(rounds):
        first = (levels * block + score).argmax(1, keepdim=True)
        goes_on = several > number + 1
        score = score.masked_fill((place == first) & goes_on, _OUT + 1 + number)
        levels = levels + links.take_along_dim(first[:, :, None], 1)[:, 0] * goes_on
    return torch.where(masked & (score < _OUT // 2), MAX_LEVEL + _OUT - score, levels)


def preferences(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    levels: Int[Tensor, "batch block"],
    config: DecodeConfig,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> tuple[Int[Tensor, "batch block"], Bool[Tensor, "batch block"]]:
    """Which candidates keep their level, and among which positions a step commits.

    Args:
        rewards: the rewards r_j.
        masked: positions not yet committed.
        levels: the level of each candidate v_j; a match has 1.
        config: the guard and the strategy.
        readable: whether the candidate survives re-tokenization; None if no candidate goes last.

    Returns:
        The levels, at most 0 where a candidate loses its preference; and the masked positions, without those that do
        not survive unless a row has no others.
    """
    if readable is not None:
        levels, good = without_preference(levels, ~readable), masked & readable
        masked = torch.where(good.any(1, keepdim=True), good, masked)
    if config.guard:
        enough = good_enough(rewards, masked, config.guard, logarithmic=config.strategy == "entropy")
        levels = without_preference(levels, ~enough)
    return levels, masked


def without_preference(
    levels: Int[Tensor, "batch block"], places: Bool[Tensor, "batch block"]
) -> Int[Tensor, "batch block"]:
    """The levels, at most 0 at these places."""
    return torch.where(places, levels.clamp(max=0), levels)


def good_enough(
    rewards: Float[Tensor, "batch block"], masked: Bool[Tensor, "batch block"], guard: float, *, logarithmic: bool
) -> Bool[Tensor, "batch block"]:
    """Whether each candidate's reward is at least `guard` times the best of its row.

    Args:
        rewards: the rewards r_j.
        masked: positions not yet committed.
        guard: tau in [0, 1].
        logarithmic: whether rewards are logarithms (negative entropies); then they may be ln(1/tau) below the best.
    """
    best = rewards.masked_fill(~masked, -torch.inf).amax(-1, keepdim=True)
    if not logarithmic:
        return rewards >= best * guard
    return rewards >= best + (math.log(guard) if guard else -math.inf)


def prolongs_loop(
    tokens: Int[Tensor, "batch block"],
    canvas: Int[Tensor, "batch length"],
    start: int,
    period: int | Int[Tensor, " batch"],
) -> Bool[Tensor, "batch block"]:
    """Whether each candidate equals two or more of the four tokens one and two periods away on either side.

    A code of period P rewards loops of period P for ever: "sir, sir, sir," under alternating parity.

    Args:
        tokens: candidates v_j; never the mask.
        canvas: prompt and response, with masks where nothing is committed.
        start: the block's first column in the canvas.
        period: the period of the position code; in a row with period 0 nothing prolongs a loop.
    """
    periods = torch.as_tensor(period, device=tokens.device).expand(len(tokens))[:, None]
    column = start + torch.arange(tokens.shape[1], device=tokens.device)
    equal = torch.zeros_like(tokens)
    for times in (-2, -1, 1, 2):
        at = column + times * periods
        inside = (at >= 0) & (at < canvas.shape[1])
        equal += inside & (canvas.gather(1, at.clamp(0, canvas.shape[1] - 1)) == tokens)
    return (equal >= 2) & (periods > 0)


# --- how many ---


def blocks(length: int, block_length: int, offset: int = 0) -> list[tuple[int, int]]:
    """[start, stop) of each block of a response, left to right.

    Args:
        length: length of the response in tokens.
        block_length: positions in a block.
        offset: how many positions of the first block come before the response (for models that count blocks from the
            start of the canvas: prompt length mod block length).
    """
    edges = [0, *range(block_length - offset % block_length, length, block_length), length]
    return list(pairwise(edges))


def quotas(masked: int, block_count: int, config: DecodeConfig) -> list[int]:
    """How many tokens each step of a block with `masked` positions commits; steps that commit none are left out.

    "llada" is LLaDA's get_num_transfer_tokens: the first steps take the remainder. "dream" takes the share 1 - s/t of
    the positions still masked, with t going linearly from 1 to 0.001; the last step takes all.
    """
    # the prompt may shift the blocks, so that there is one block more than there are steps
    steps = masked if config.steps is None else max(config.steps // block_count, 1)
    if config.schedule == "llada":
        counts = [masked // steps + (step < masked % steps) for step in range(steps)] if steps else []
    else:
        counts = _dream(masked, steps)
    return [count for count in counts if count]


def _dream(masked: int, steps: int) -> list[int]:
    times = [1 + (_DREAM_EPSILON - 1) * step / steps for step in range(steps + 1)] if steps else []
    counts, left = [], masked
    for step in range(steps):
        count = int(left * (1 - times[step + 1] / times[step])) if step < steps - 1 else left
        counts.append(count)
        left -= count
    return counts


def confident_count(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    preferred: Bool[Tensor, "batch block"],
    config: DecodeConfig,
) -> Int[Tensor, " batch"]:
    """How many candidates each row may commit at once: of the preferred ones, or of all if none is preferred.

    Commit "threshold" counts those with a confidence above `threshold`. "factor" counts the best ones, as long as the
    confidence of the n-th is at least 1 - factor / (n + 1). The count is 0 where not even the best passes; the caller
    then commits the best alone.
    """
    pool = masked & preferred
    pool = torch.where(pool.any(-1, keepdim=True), pool, masked)
    if config.commit == "threshold":
        return (pool & (rewards > config.threshold)).sum(-1)
    best_first = rewards.masked_fill(~pool, -torch.inf).sort(-1, descending=True).values
    rank = torch.arange(1, rewards.shape[-1] + 1, device=rewards.device)
    return (best_first >= 1 - config.factor / (rank + 1)).cumprod(-1).sum(-1)
