"""Which positions to commit: the whole of dgMARK's steering, as one pure function (paper Alg. 1 and 2).

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
    quota: Int[Tensor, " batch"],
) -> Bool[Tensor, "batch block"]:
    """Positions to commit in this step.

    Masked positions are taken in the order: matching before not matching, then higher reward, then lower position.
    With quota 1 this is line 4 to 6 of Algorithm 2, its fall-back for an empty matching set included.

    Args:
        rewards: r_j; those of positions that are not masked have no effect.
        masked: positions not yet committed.
        matching: whether the candidate v_j lies in G_j.
        quota: positions to commit a row; rows with fewer masked positions commit them all.
    """
    by_reward = rewards.sort(dim=-1, descending=True, stable=True).indices
    preference = masked.to(torch.int8) + (masked & matching).to(torch.int8)
    by_preference = preference.gather(-1, by_reward).sort(dim=-1, descending=True, stable=True).indices
    order = by_reward.gather(-1, by_preference)
    first = torch.arange(rewards.shape[-1], device=rewards.device) < quota[:, None]
    return torch.zeros_like(masked).scatter(-1, order, first) & masked
