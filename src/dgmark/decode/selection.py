"""Which positions a step commits, and how many: dgMARK's order, as pure functions
(paper Alg. 1 and 2, and the lookahead).

The loop, the engine adapters and the tests all use them. Where every candidate is preferred, as without a mark,
Algorithm 2 is Algorithm 1. The guards are not the paper's; they never forbid a token: a match without preference is
treated like a candidate that does not match.
"""

import math
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig

_DREAM_EPSILON = 1e-3


def order_of(
    scores: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    preferred: Bool[Tensor, "batch block"],
    sure: Bool[Tensor, "batch block"] | None = None,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Int[Tensor, "batch block"]:
    """The places of a block in the order of `select_positions`; those that are not masked come last."""
    by_score = scores.sort(dim=-1, descending=True, stable=True).indices
    kind = preferred.to(torch.int8) if sure is None else preferred + 2 * sure.to(torch.int8)
    good = masked if readable is None else masked & readable
    rank = masked + good * (1 + kind)
    by_rank = rank.gather(-1, by_score).sort(dim=-1, descending=True, stable=True).indices
    return by_score.gather(-1, by_rank)


def select_positions(
    scores: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    preferred: Bool[Tensor, "batch block"],
    quota: Int[Tensor, " batch"] | int,
    sure: Bool[Tensor, "batch block"] | None = None,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Bool[Tensor, "batch block"]:
    """Choose the positions to commit in this step.

    Masked positions are taken in this order: readable before not readable, sure before not sure, preferred before not
    preferred, then higher score, then lower position.
    With quota 1 these are lines 4 to 6 of Algorithm 2, including the fall-back for an empty matching set.

    Args:
        scores: the rewards r_j, times what keyed bits changed; those of positions that are not masked have no effect.
        masked: positions not yet committed.
        preferred: whether the candidate v_j is in G_j, and may be preferred; all of them under a rule without an order.
        quota: how many positions to commit in each row; rows with fewer masked positions commit them all.
        sure: whether a threshold or factor commits the candidate (`sure_places`); None if none does.
        readable: whether the candidate survives re-tokenization (`RoundTrip`); None if no candidate goes last.
    """
    quota = _of_each_row(quota, masked)
    order = order_of(scores, masked, preferred, sure, readable)
    first = torch.arange(scores.shape[-1], device=scores.device) < quota[:, None]
    return torch.zeros_like(masked).scatter(-1, order, first) & masked


def alternatives(
    scores: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    preferred: Bool[Tensor, "batch block"],
    quota: Int[Tensor, " batch"] | int,
    width: Int[Tensor, " batch"] | int,
    sure: Bool[Tensor, "batch block"] | None = None,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> tuple[Bool[Tensor, "batch k block"], Bool[Tensor, "batch k"]]:
    """The sets of positions among which a lookahead chooses (paper, "Top-k one-step lookahead").

    The first set is that of `select_positions`. Each other set replaces the last position of the first by one of the
    next positions in the same order; if that last position matches, its replacement must match, and if it is readable,
    so must be its replacement. With quota 1 the sets are the top-k of the candidate set C.

    Args:
        scores: the rewards r_j, times what keyed bits changed.
        masked: positions not yet committed.
        preferred: whether the candidate may be preferred.
        quota: number of positions in each set of a row, at least 1.
        width: largest number of sets of a row, at least 1.
        sure: whether a threshold or factor commits the candidate; None if none does.
        readable: whether the candidate survives re-tokenization; None if no candidate goes last.

    Returns:
        The sets, best first, and whether each exists (a row may have fewer than k); k is the largest number of sets of
        a row.
    """
    quota, width = _of_each_row(quota, masked), _of_each_row(width, masked)
    order = order_of(scores, masked, preferred, sure, readable)
    members = masked.sum(-1)
    last = torch.minimum(quota, members) - 1
    good = masked if readable is None else masked & readable
    matches, others = (good & preferred).sum(-1), good.sum(-1)
    # the last position is replaced by its own kind only
    end = torch.where(last < matches, matches, torch.where(last < others, others, members))
    count = torch.minimum(end - last, width)
    k = max(int(count.max()), 1)
    place = last[:, None] + torch.arange(k, device=scores.device)
    exists = torch.arange(k, device=scores.device) < count[:, None]
    rank = torch.arange(scores.shape[-1], device=scores.device)
    taken = (rank < last[:, None, None]) | (rank == place[:, :, None])
    sets = torch.zeros_like(taken).scatter(-1, order[:, None].expand_as(taken), taken)
    return sets & masked[:, None], exists


def _of_each_row(number: Tensor | int, masked: Tensor) -> Int[Tensor, " batch"]:
    return number if isinstance(number, Tensor) else torch.full((len(masked),), number, device=masked.device)


# --- which matches are preferred ---


def preferences(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    matched: Bool[Tensor, "batch block"],
    config: DecodeConfig,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> tuple[Bool[Tensor, "batch block"], Bool[Tensor, "batch block"]]:
    """Which candidates are preferred, and among which positions a step commits.

    Args:
        rewards: the rewards r_j.
        masked: positions not yet committed.
        matched: whether each candidate v_j matches.
        config: the guard and the strategy.
        readable: whether the candidate survives re-tokenization; None if no candidate goes last.

    Returns:
        The matches that keep their preference; and the masked positions, without those that do not survive unless a
        row has no others.
    """
    preferred = matched
    if readable is not None:
        preferred, good = preferred & readable, masked & readable
        masked = torch.where(good.any(1, keepdim=True), good, masked)
    if config.guard:
        preferred = preferred & good_enough(rewards, masked, config.guard, logarithmic=config.strategy == "entropy")
    return preferred, masked


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


def sure_places(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    preferred: Bool[Tensor, "batch block"],
    config: DecodeConfig,
) -> Bool[Tensor, "batch block"] | None:
    """Which candidates each row may commit at once: of the preferred ones, or of all if none is preferred.

    Commit "threshold" takes those with a confidence above `threshold`. "factor" takes the best ones, as long as the
    confidence of the n-th is at least 1 - factor / (n + 1). Where not even the best passes, a row has none, and the
    caller commits the best alone. The confidence is the model's own: it says what may be committed together.

    Args:
        rewards: the rewards r_j.
        masked: positions that may be committed.
        preferred: whether the candidate v_j is preferred.
        config: `commit`, `threshold` and `factor` are read.

    Returns:
        These places; None under commit "quota".
    """
    if config.commit == "quota":
        return None
    pool = masked & preferred
    pool = torch.where(pool.any(-1, keepdim=True), pool, masked)
    if config.commit == "threshold":
        return pool & (rewards > config.threshold)
    order = rewards.masked_fill(~pool, -torch.inf).sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(1, rewards.shape[-1] + 1, device=rewards.device)
    passed = (order.values >= 1 - config.factor / (rank + 1)).cumprod(-1).bool()
    return torch.zeros_like(pool).scatter(-1, order.indices, passed)
