"""What the decoding loop asks of a model: token ids in, logits out.

A family's shift, block mask, padding or dtype is the model's own business; the loop sees only this.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.errors import SettingsError
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


CacheMode = Literal["none", "prefix", "dual"]
CACHES: tuple[CacheMode, ...] = ("none", "prefix", "dual")


@runtime_checkable
class Session(Protocol):
    """The forwards of one decode, free to remember between them what the cache setting allows.

    A block is begun once, then stepped through. All canvases of a decode have one length.
    """

    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Logits of [start, stop) for the canvases as they are before anything of this block is committed."""
        ...

    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Logits of [start, stop) for canvases that differ from those of the last `begin` in [start, stop) alone.

        Args:
            ids: canvases; several may stem from one row (the candidates of a lookahead).
            owner: the row of the last `begin` that each stems from, ascending.
            start: as in `begin`.
            stop: as in `begin`.
        """
        ...

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Only these rows of the last `begin` go on; the next `begin` has them in this order."""
        ...


@runtime_checkable
class SessionDenoiser(Protocol):
    """A model that has sessions of its own, and so may cache."""

    def session(self, cache: CacheMode) -> Session:
        """A session with this cache.

        Raises:
            SettingsError: the model has no such cache.
        """
        ...


def open_session(model: Denoiser, cache: CacheMode = "none") -> Session:
    """A session of `model`; one that offers none of its own is asked for whole forwards.

    Raises:
        SettingsError: the model has no such cache.
    """
    if isinstance(model, SessionDenoiser):
        return model.session(cache)
    if cache != "none":
        raise SettingsError(f"{name_of(model)} has no cache {cache!r}: it offers no session; use cache none")
    return _WholeForwards(model)


@dataclass(frozen=True)
class _WholeForwards:
    """The session of a model without one."""

    model: Denoiser

    def begin(self, ids: Tensor, start: int, stop: int) -> Tensor:
        return window_of(self.model)(ids, start, stop)

    def step(self, ids: Tensor, owner: Tensor, start: int, stop: int) -> Tensor:  # noqa: ARG002
        return self.begin(ids, start, stop)

    def keep(self, rows: Tensor) -> None:
        pass


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
