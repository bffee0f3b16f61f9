"""Which positions to commit: the whole of dgMARK's steering, as pure functions of one order (paper Alg. 1 and 2).

Used alike by the loop, by engine adapters and by tests; without a mark everything matches, and Algorithm 2 is
Algorithm 1.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def select(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    matching: Bool[Tensor, "batch block"],
    quota: Int[Tensor, " batch"] | int,
) -> Bool[Tensor, "batch block"]:
    """Positions to commit in this step.

    Masked positions are taken in the order: matching before not matching, then higher reward, then lower position.
    With quota 1 this is line 4 to 6 of Algorithm 2, its fall-back for an empty matching set included.

    Args:
        rewards: r_j; those of positions that are not masked have no effect.
        masked: positions not yet committed.
        matching: whether the candidate v_j lies in G_j (and may be preferred).
        quota: positions to commit a row, or in every row; rows with fewer masked positions commit them all.
    """
    quota = _of_each_row(quota, masked)
    order = _order(rewards, masked, matching)
    first = torch.arange(rewards.shape[-1], device=rewards.device) < quota[:, None]
    return torch.zeros_like(masked).scatter(-1, order, first) & masked


def alternatives(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    matching: Bool[Tensor, "batch block"],
    quota: Int[Tensor, " batch"] | int,
    width: Int[Tensor, " batch"] | int,
) -> tuple[Bool[Tensor, "batch k block"], Bool[Tensor, "batch k"]]:
    """The sets of positions among which a lookahead chooses (paper, "Top-k one-step lookahead").

    The first is that of `select`; the others have another position instead of its last: the next ones of the same
    order, as long as they match if the last one does. With quota 1 these are the top-k of the candidate set C.

    Args:
        rewards: r_j.
        masked: positions not yet committed.
        matching: whether the candidate may be preferred.
        quota: positions that each set of a row has, at least 1.
        width: how many sets a row may have, at least 1.

    Returns:
        The sets, best first, and which of them there are; k is the largest number of sets of a row.
    """
    quota, width = _of_each_row(quota, masked), _of_each_row(width, masked)
    order = _order(rewards, masked, matching)
    members = masked.sum(-1)
    last = torch.minimum(quota, members) - 1
    matches = (masked & matching).sum(-1)
    # the last place of `select` is open to those of its own kind
    end = torch.where(last < matches, matches, members)
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


def _order(rewards: Tensor, masked: Tensor, matching: Tensor) -> Int[Tensor, "batch block"]:
    """Positions by preference: masked and matching, then masked, then the rest."""
    by_reward = rewards.sort(dim=-1, descending=True, stable=True).indices
    preference = masked.to(torch.int8) + (masked & matching).to(torch.int8)
    by_preference = preference.gather(-1, by_reward).sort(dim=-1, descending=True, stable=True).indices
    return by_reward.gather(-1, by_preference)
