"""When a match is not preferred: it would cost too much quality, or prolong a loop.

The paper has no guards. A guard never forbids a token: a match without preference is treated like a candidate that does
not match.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from dgmark.decode.config import DecodeConfig


def preferences(
    rewards: Float[Tensor, "batch block"],
    masked: Bool[Tensor, "batch block"],
    matched: Bool[Tensor, "batch block"],
    config: DecodeConfig,
    readable: Bool[Tensor, "batch block"] | None = None,
) -> tuple[Bool[Tensor, "batch block"], Bool[Tensor, "batch block"]]:
    """Which matches keep their preference, and among which positions a step commits.

    Args:
        rewards: the rewards r_j.
        masked: positions not yet committed.
        matched: whether the candidate v_j is in G_j.
        config: the guard and the strategy.
        readable: whether the text reads back with the candidate; None if no candidate goes last.

    Returns:
        The preferred candidates; and the masked positions, without those that do not read back unless a row has no
        others.
    """
    if readable is not None:
        matched, good = matched & readable, masked & readable
        masked = torch.where(good.any(1, keepdim=True), good, masked)
    if config.guard:
        matched = matched & good_enough(rewards, masked, config.guard, logarithmic=config.strategy == "entropy")
    return matched, masked


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
