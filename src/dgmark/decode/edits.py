"""Which committed tokens of a block a step replaces (LLaDA 2.1's token editing), such that no edit loses a match.

Knows no key and no model; the loop and the engine adapters use it.
"""

from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from dgmark.decode.round_trip import RoundTrip
from dgmark.decode.steering import Places, Rule, Window

# Steps of a row that may edit a block which is full; it goes on as long as each edits something (LLaDA 2.1).
MOST_STEPS = 16


def lossless_edits(
    edits: Bool[Tensor, "canvases window"],
    tokens: Int[Tensor, "canvases window"],
    window: Window,
    rule: Rule,
    columns: list[int] | None = None,
) -> Bool[Tensor, "canvases window"]:
    """Of the edits that a model is sure of, from left to right, those that lose no match.

    An edit loses none if the new token completes as many bits of 1, less those of 0, as the old one, beside the
    committed tokens and the edits before it.

    Args:
        edits: places whose committed token would be replaced.
        tokens: the tokens that would replace them.
        window: the canvases before the edits.
        rule: says the bits.
        columns: the places of the window to look at; None for all.
    """
    window, made = replace(window, ids=window.ids.clone()), edits.clone()
    every = torch.arange(len(edits), device=edits.device)
    for column in range(edits.shape[1]) if columns is None else columns:
        at = window.start + column
        old, new = window.ids[:, at].clone(), tokens[:, column]
        window.ids[:, at] = torch.where(edits[:, column], window.mask_id, old)
        places = Places(window, every.repeat(2), torch.full_like(old, column).repeat(2))
        before, after = rule.signs(torch.cat([old, new])[:, None], places).sum((1, 2), dtype=torch.long).chunk(2)
        made[:, column] &= after >= before
        window.ids[:, at] = torch.where(made[:, column], new, old)
    return made


def surviving_edits(
    edits: Bool[Tensor, "canvases window"],
    tokens: Int[Tensor, "canvases window"],
    window: Window,
    rule: Rule | None,
    guard: RoundTrip | None,
) -> Bool[Tensor, "canvases window"]:
    """Of the edits that a model is sure of, those that are made: none loses a match, and all survive re-tokenization.

    Args:
        edits: places whose committed token would be replaced.
        tokens: the tokens that would replace them.
        window: the canvases before the edits.
        rule: says the bits; None without a mark.
        guard: tells which tokens survive re-tokenization; None if nobody asks.
    """
    while edits.any():
        columns = edits.any(0).nonzero()[:, 0].tolist()
        made = edits if rule is None else lossless_edits(edits, tokens, window, rule, columns)
        if guard is not None:
            first, count = (~made).to(torch.int8).sort(dim=1, stable=True).indices, made.sum(1)
            lost, _ = guard.unreadable(tokens, window.ids, window.text, window.start, first, count, count)
            made = made & ~lost
        if torch.equal(made, edits):
            break
        edits = made  # an edit that is left out may be what another one relied on
    return edits
