"""Logits of a transformers network a few positions at a time, so that memory is that of the network.

All logits of a text of 32,768 tokens take 13 GB of a vocabulary of 49,152 ids in float32 with what is computed from
them. The layers before the output layer run once, and the output layer, with whatever its class does around it, on
pieces of what they gave.
"""

import copy
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

# positions of a piece, over all rows
PIECE_POSITIONS = 256
# by which two ways to compute logits may differ, in 8 bits of a bf16
_ROUNDING = 0.02


class _Given(nn.Module):
    """Stands in the place of the layers before the output layer, and gives what they gave."""

    def __init__(self, found: Any) -> None:
        super().__init__()
        self._found = found

    def forward(self, *_: Any, **__: Any) -> Any:
        """What was given."""
        return self._found


def logits_in_pieces(
    network: PreTrainedModel, ids: Int[Tensor, "batch length"], first: int = 0
) -> Iterator[Float[Tensor, "batch piece vocab"]]:
    """The logits of the positions from `first` on, in pieces."""
    length = ids.shape[1]
    found = network.base_model(input_ids=ids, use_cache=False, return_dict=True)
    head = copy.copy(network)
    head.__dict__.pop("forward", None)  # accelerate's, which is bound to the network
    head._modules = {**network._modules, network.base_model_prefix: _Given(found)}
    step = max(1, PIECE_POSITIONS // len(ids))
    for start in range(first, length, step):
        kept = torch.arange(start, min(start + step, length), device=found[0].device)
        yield head(input_ids=ids, use_cache=False, return_dict=True, logits_to_keep=kept).logits


def has_pieces(network: PreTrainedModel, ids: Int[Tensor, "batch length"]) -> bool:
    """Whether the pieces of a network's class are its logits, which these ids show."""
    if (
        "logits_to_keep" not in inspect.signature(type(network).forward).parameters
        or network.base_model is network
        or network._modules.get(network.base_model_prefix) is not network.base_model
    ):
        return False
    whole = network(input_ids=ids, use_cache=False, return_dict=True).logits
    try:
        pieces = torch.cat([*logits_in_pieces(network, ids, first=1)], 1)
    except (AttributeError, TypeError, RuntimeError):  # the class asks more of those layers, as that of OPT does
        return False
    return pieces.shape == whole[:, 1:].shape and torch.allclose(
        pieces.float(), whole[:, 1:].float(), rtol=_ROUNDING, atol=_ROUNDING * float(whole.abs().max())
    )
