"""Which positions form a block, and how many tokens each step of a block commits."""

from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig

_DREAM_EPSILON = 1e-3


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
