"""What the decoding loop asks of a model: token ids in, logits out.

A family's shift, block mask, padding or dtype is the model's own business; the loop sees only this.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import SettingsError


@runtime_checkable
class Denoiser(Protocol):
    """A masked diffusion model.

    More is read where a model has it, each through the function `*_of` below that says what it means: `name`, `device`,
    `dtype`, `quantization`, `defaults`, `confidence_source`, `block_origin`, `block_multiple`, `sees_ahead`, `pads`.
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


# The distribution that rewards are taken from.
ConfidenceSource = Literal["model", "sampling"]
# What the first block starts at.
BlockOrigin = Literal["response", "canvas"]
CacheMode = Literal["none", "prefix", "dual"]


@runtime_checkable
class Session(Protocol):
    """The forwards of one decode, free to remember between them what the cache setting allows.

    A block is begun once, then stepped through. All canvases of a decode have one length, and one number of columns of
    padding a row, fixed when the session is opened. Nothing before a block that is begun changes after it.
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
        """Only these rows of the last `begin` go on; the next `begin` has them in this order.

        Until then `step` counts rows as the last `begin` did. Of several calls the last holds.
        """
        ...


@runtime_checkable
class SessionDenoiser(Protocol):
    """A model that has sessions of its own, and so may cache."""

    def session(self, cache: CacheMode, padding: Int[Tensor, " batch"] | None = None) -> Session:
        """A session with this cache.

        Args:
            cache: what is remembered between forwards.
            padding: columns at the left of each row that are no part of it: nothing attends to them, and positions
                are counted from behind them. Passed only to a model whose `pads` is true. None for no padding.

        Raises:
            SettingsError: the model has no such cache.
        """
        ...


def open_session(model: Denoiser, cache: CacheMode = "none", padding: Int[Tensor, " batch"] | None = None) -> Session:
    """A session of `model`; one that offers none of its own is asked for whole forwards.

    Args:
        model: the model.
        cache: what its session remembers between forwards.
        padding: columns of padding at the left of each row of the first `begin`; None, or all 0, for none.

    Raises:
        SettingsError: the model has no such cache, or cannot leave padding out.
    """
    if padding is not None and not padding.any():
        padding = None
    if padding is not None and not pads_of(model):
        raise SettingsError(f"{name_of(model)} cannot leave padding out: decode prompts of one length together")
    if isinstance(model, SessionDenoiser):
        return model.session(cache) if padding is None else model.session(cache, padding)
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
    """Number format of the model's forward, like "float32", or "bfloat16+int4" with its `quantization`.

    None if it does not tell.
    """
    dtype = getattr(model, "dtype", None)
    quantization = getattr(model, "quantization", None)
    if dtype is None:
        return None
    return str(dtype).removeprefix("torch.") + (f"+{quantization}" if quantization else "")


def defaults_of(model: Denoiser) -> Mapping[str, Any]:
    """Decoding settings to use where the user gives none: what the paper ran this family with.

    Keys are arguments of `dgmark.generate`, such as `block_length` and `cache`; {} if the model states none.
    """
    defaults: Mapping[str, Any] = getattr(model, "defaults", {})
    return defaults


def confidence_of(model: Denoiser) -> ConfidenceSource:
    """The distribution that rewards are taken from.

    "model" (LLaDA, and the default): softmax of the logits, neither tempered nor filtered. "sampling" (Dream, LLaDA2):
    the very distribution that the token is drawn from: logits / temperature, top-k and top-p applied, renormalised.
    At temperature 0 both are the softmax of the logits.
    """
    source: ConfidenceSource = getattr(model, "confidence_source", "model")
    return source


def block_origin_of(model: Denoiser) -> BlockOrigin:
    """What the first block starts at.

    "response" (the default): the first generated position. "canvas" (LLaDA2): position 0 of the canvas, so that block b
    is the positions [b * block_length, (b + 1) * block_length) of prompt and response together: the first block that is
    decoded begins in the prompt unless the prompt is a whole number of blocks, and the last may be cut short by the end
    of the canvas.
    """
    origin: BlockOrigin = getattr(model, "block_origin", "response")
    return origin


def block_multiple_of(model: Denoiser) -> int | None:
    """Positions of a block of the model's own attention mask (LLaDA2: 32); None if it attends to the whole canvas.

    Such blocks lie from position 0 of the canvas on, and a position sees its own and earlier ones. A block that is
    decoded must lie inside one of them: `block_length` divides this number, and `block_origin` is "canvas". The length
    of the canvas is free: the model itself fills its last block up with masks.
    """
    multiple: int | None = getattr(model, "block_multiple", None)
    return multiple


def sees_ahead_of(model: Denoiser) -> bool:
    """Whether what stands behind the block being decoded is seen; by default if the model has no `block_multiple`."""
    return bool(getattr(model, "sees_ahead", block_multiple_of(model) is None))


def pads_of(model: Denoiser) -> bool:
    """Whether sessions of the model take padding: rows with prompts of different lengths in one batch."""
    return bool(getattr(model, "pads", False))
