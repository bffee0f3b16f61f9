"""Which committed tokens of a block a step replaces (LLaDA 2.1's token editing), such that no edit loses a match.

Knows no key and no model; the loop and its tests use it.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.decode.round_trip import RoundTrip
from dgmark.decode.steering import Steering, Window

# Steps of a row that may edit a block which is full; it goes on as long as each edits something (LLaDA 2.1).
MOST_STEPS = 16


def lossless_edits(
    edits: Bool[Tensor, "canvases window"],
    tokens: Int[Tensor, "canvases window"],
    window: Window,
    positions: Int[Tensor, " window"],
    rows: Int[Tensor, " canvases"],
    steering: Steering,
    guard: RoundTrip | None,
) -> Bool[Tensor, "canvases window"]:
    """Of the edits that the model is sure of, those that are made: none loses a match, and all survive.

    Args:
        edits: places whose committed token would be replaced.
        tokens: the tokens that would replace them.
        window: the canvases before the edits.
        positions: the window's positions as the mark counts them.
        rows: the row of the batch that each canvas comes from.
        steering: what the watermark does to a step.
        guard: tells which tokens survive re-tokenization; None if nobody asks.
    """
    while edits.any():
        made = steering.edits(edits, tokens, window, positions, rows)
        if guard is not None:
            first, count = (~made).to(torch.int8).sort(dim=1, stable=True).indices, made.sum(1)
            lost, _ = guard.unreadable(tokens, window.ids, window.text, window.start, first, count, count)
            made = made & ~lost
        if torch.equal(made, edits):
            break
        edits = made  # an edit that is left out may be what another one relied on
    return edits
