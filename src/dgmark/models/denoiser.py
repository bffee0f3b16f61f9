"""What the decoding loop asks of a model: token ids in, logits out.

A family's shift, block mask, padding or dtype is the model's own business; the loop sees only this.
"""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.tokenizer import Tokenizer


@runtime_checkable
class Denoiser(Protocol):
    """A masked diffusion model.

    More is read where a model has it: `name` (what results call it; else its class), `device` (where ids must lie; else
    the CPU), `dtype` (number format of the forward, for the record).
    """

    @property
    def mask_id(self) -> int:
        """The id that stands for a position not yet committed."""
        ...

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Ids that end a response."""
        ...

    @property
    def vocab_size(self) -> int:
        """Padded vocabulary: the last axis of the logits."""
        ...

    @property
    def context_length(self) -> int:
        """Most positions, prompt and response, in one canvas."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer."""
        ...

    def __call__(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Logits aligned so that `logits[:, i]` predicts position i."""
        ...


@runtime_checkable
class WindowDenoiser(Protocol):
    """A model that can spare the output matrix outside the positions [start, stop)."""

    def window(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """`model(ids)[:, start:stop]`, computed for no more than that."""
        ...


Window = Callable[[Tensor, int, int], Tensor]


def window_of(model: Denoiser) -> Window:
    """`(ids, start, stop) -> logits` of these positions, the cheapest way that the model offers."""
    if isinstance(model, WindowDenoiser):
        return model.window
    return lambda ids, start, stop: model(ids)[:, start:stop]


def name_of(model: Denoiser) -> str:
    """What results call the model."""
    return str(getattr(model, "name", type(model).__name__))


def device_of(model: Denoiser) -> torch.device:
    """Where the model takes its ids."""
    return torch.device(getattr(model, "device", "cpu"))


def dtype_of(model: Denoiser) -> str | None:
    """Number format of the model's forward, like "float32"; None if it does not tell."""
    dtype = getattr(model, "dtype", None)
    return None if dtype is None else str(dtype).removeprefix("torch.")
