"""When a match is worth no preference: it would cost too much quality, or prolong a loop. Both are ours.

A guard never forbids a token. A guarded match is committed in its turn by the ordinary rule.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def good_enough(
    rewards: Float[Tensor, "batch block"], masked: Bool[Tensor, "batch block"], guard: float, *, logarithmic: bool
) -> Bool[Tensor, "batch block"]:
    """Candidates whose reward is at least `guard` times the best of their row.

    Args:
        rewards: r_j.
        masked: positions not yet committed.
        guard: tau in [0, 1].
        logarithmic: rewards are logarithms (negative entropies): at most ln(1/tau) below the best.
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
    """Candidates that equal two or more of the four tokens one and two periods away on either side.

    A code of period P rewards loops of period P for ever: "sir, sir, sir," under alternating parity.

    Args:
        tokens: candidates v_j; never the mask.
        canvas: prompt and response, masks where nothing is committed.
        start: where in the canvas the block begins.
        period: of the position code; of a row with period 0 nothing prolongs a loop.
    """
    periods = torch.as_tensor(period, device=tokens.device).expand(len(tokens))[:, None]
    column = start + torch.arange(tokens.shape[1], device=tokens.device)
    equal = torch.zeros_like(tokens)
    for times in (-2, -1, 1, 2):
        at = column + times * periods
        inside = (at >= 0) & (at < canvas.shape[1])
        equal += inside & (canvas.gather(1, at.clamp(0, canvas.shape[1] - 1)) == tokens)
    return (equal >= 2) & (periods > 0)
