"""Biases that depend on the tokens next to a position: those of KGW and DMark."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.decode.steering import Steering, View
from dgmark.models.denoiser import Denoiser, traits_of
from dgmark_lab.baselines.embed.rows import RowMemory, green_hash
from dgmark_lab.baselines.prf import SubKey


def green_list_steering(subkey: SubKey, model: Denoiser, *, gamma: float, delta: float) -> Steering:
    """KGW: add delta on the green list of the left neighbour, where that is committed."""
    rows = _memory(subkey, gamma, model, "left")

    def bias(view: View) -> Tensor:
        logits = view.logits_to_propose()
        add_rows(logits, view.neighbours(-1)[view.masked], rows, delta)
        return logits

    return Steering(bias=bias)


def bigram_steering(
    subkey: SubKey, model: Denoiser, *, gamma: float, delta: float, predicts: bool, both_sides: bool
) -> Steering:
    """DMark: add delta to tokens that are green after the left neighbour, or (`both_sides`) before the right one.

    With `predicts`, a position none of whose used neighbours (the left one, or both) is committed takes the most likely
    token to its left as its left neighbour.
    """
    left_rows = _memory(subkey, gamma, model, "left")
    right_rows = _memory(subkey, gamma, model, "right") if both_sides else None

    def bias(view: View) -> Tensor:
        logits = view.logits_to_propose()
        left = view.neighbours(-1)
        if predicts:
            right = view.neighbours(1) if both_sides else torch.full_like(left, -1)
            left = torch.where((left < 0) & (right < 0), _predicted_left(view), left)
        add_rows(logits, left[view.masked], left_rows, delta)
        if right_rows is not None:
            add_rows(logits, view.neighbours(1)[view.masked], right_rows, delta)
        return logits

    return Steering(bias=bias)


def add_rows(logits: Float[Tensor, "k vocab"], tokens: Int[Tensor, " k"], rows: RowMemory, delta: float) -> None:
    """Add `delta` to the green tokens of each row's neighbour, in place; -1 stands for an unknown neighbour."""
    known = (tokens >= 0).nonzero()[:, 0]
    if len(known):
        logits.index_add_(0, known, rows(tokens[known]).to(logits.dtype), alpha=delta)


def _predicted_left(view: View) -> Int[Tensor, "canvases window"]:
    """Return the most likely token of the position to the left, or -1 if that is outside the window."""
    likeliest = view.logits.index_fill(-1, view.forbidden, -torch.inf).argmax(-1)
    return torch.nn.functional.pad(likeliest[:, :-1], (1, 0), value=-1)


def _memory(subkey: SubKey, gamma: float, model: Denoiser, side: str) -> RowMemory:
    device = traits_of(model).device
    compute = green_hash(subkey, gamma, model.vocab_size, device, "right" if side == "right" else "left")
    return RowMemory(compute, model.vocab_size, device)
