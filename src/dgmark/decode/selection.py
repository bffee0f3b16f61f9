"""Which positions to commit: all of dgMARK's steering, as pure functions of one order (paper Alg. 1 and 2).

The loop, the engine adapters and the tests all use them. Without a mark every candidate matches, and Algorithm 2 is
Algorithm 1.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def order_of(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    matching: Bool[Tensor, "batch block"],
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Int[Tensor, "batch block"]:
    """The places of a block in the order in which `select` takes them; those that are not masked come last."""
    by_reward = rewards.sort(dim=-1, descending=True, stable=True).indices
    good = masked if readable is None else masked & readable
    preference = masked.to(torch.int8) + good.to(torch.int8) + (good & matching).to(torch.int8)
    by_preference = preference.gather(-1, by_reward).sort(dim=-1, descending=True, stable=True).indices
    return by_reward.gather(-1, by_preference)


def select(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    matching: Bool[Tensor, "batch block"],
    quota: Int[Tensor, " batch"] | int,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> Bool[Tensor, "batch block"]:
    """Choose the positions to commit in this step.

    Masked positions are taken in this order: readable before not readable, matching before not matching, then higher
    reward, then lower position.
    With quota 1 these are lines 4 to 6 of Algorithm 2, including the fall-back for an empty matching set.

    Args:
        rewards: the rewards r_j; those of positions that are not masked have no effect.
        masked: positions not yet committed.
        matching: whether the candidate v_j is in G_j (and may be preferred).
        quota: how many positions to commit in each row; rows with fewer masked positions commit them all.
        readable: whether the text reads back with the candidate (`RoundTrip`); None if no candidate goes last.
    """
    quota = _of_each_row(quota, masked)
    order = order_of(rewards, masked, matching, readable)
    first = torch.arange(rewards.shape[-1], device=rewards.device) < quota[:, None]
    return torch.zeros_like(masked).scatter(-1, order, first) & masked


def alternatives(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    matching: Bool[Tensor, "batch block"],
    quota: Int[Tensor, " batch"] | int,
    width: Int[Tensor, " batch"] | int,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> tuple[Bool[Tensor, "batch k block"], Bool[Tensor, "batch k"]]:
    """The sets of positions among which a lookahead chooses (paper, "Top-k one-step lookahead").

    The first set is that of `select`. Each other set replaces the last position of the first by one of the next
    positions in the same order; if that last position matches, its replacement must match, and if it is readable, so
    must be its replacement. With quota 1 the sets are the top-k of the candidate set C.

    Args:
        rewards: the rewards r_j.
        masked: positions not yet committed.
        matching: whether the candidate may be preferred.
        quota: number of positions in each set of a row, at least 1.
        width: largest number of sets of a row, at least 1.
        readable: whether the text reads back with the candidate; None if no candidate goes last.

    Returns:
        The sets, best first, and whether each exists (a row may have fewer than k); k is the largest number of sets of
        a row.
    """
    quota, width = _of_each_row(quota, masked), _of_each_row(width, masked)
    order = order_of(rewards, masked, matching, readable)
    members = masked.sum(-1)
    last = torch.minimum(quota, members) - 1
    good = masked if readable is None else masked & readable
    matches, others = (good & matching).sum(-1), good.sum(-1)
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
