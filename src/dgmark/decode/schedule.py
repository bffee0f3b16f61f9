"""Which positions form a block, and how many tokens each of its steps commits."""

from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig

_DREAM_EPSILON = 1e-3


def blocks(length: int, block_length: int, offset: int = 0) -> list[tuple[int, int]]:
    """[start, stop) of each block of a response, left to right.

    Args:
        length: response tokens.
        block_length: positions of a block.
        offset: positions of the first block that lie before the response (models whose blocks count from the start of
            the canvas: prompt length mod block length).
    """
    edges = [0, *range(block_length - offset % block_length, length, block_length), length]
    return list(pairwise(edges))


def quotas(masked: int, block_count: int, config: DecodeConfig) -> list[int]:
    """Tokens that each step of a block with so many masked positions commits; steps that commit none are left out.

    "llada" is LLaDA's get_num_transfer_tokens: the remainder falls to the first steps. "dream" is the share 1 - s/t of
    what is still masked, t running linearly from 1 to 0.001; the last step takes all.
    """
    # a prompt may cut the response into one block more than there are steps for
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


def confident(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    preferred: Bool[Tensor, "batch block"],
    config: DecodeConfig,
) -> Int[Tensor, " batch"]:
    """How many candidates a row may commit at once: of the preferred, or of all where none is preferred.

    Commit "threshold": those with a confidence above it. "factor": the best n, as long as each n-th one's confidence
    is at least 1 - factor / (n + 1). 0 where not even the best passes: it is then committed alone.
    """
    pool = masked & preferred
    pool = torch.where(pool.any(-1, keepdim=True), pool, masked)
    if config.commit == "threshold":
        return (pool & (rewards > config.threshold)).sum(-1)
    best_first = rewards.masked_fill(~pool, -torch.inf).sort(-1, descending=True).values
    rank = torch.arange(1, rewards.shape[-1] + 1, device=rewards.device)
    return (best_first >= 1 - config.factor / (rank + 1)).cumprod(-1).sum(-1)
