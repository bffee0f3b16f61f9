"""What the decoding loop asks of a model: token ids in, logits out.

A family's shift, block mask, padding or dtype is the model's own business; the loop sees only this.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import ModelError, SettingsError
from dgmark.models.traits import traits_of


@runtime_checkable
class Denoiser(Protocol):
    """A masked diffusion model.

    A model may also have `traits`, or plain attributes with the names of single traits: see `dgmark.models.traits`.
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
                are counted from behind them. Passed only to a model whose trait `pads` is true. None for no padding.

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
    traits = traits_of(model)
    if padding is not None and not traits.pads:
        raise SettingsError(f"{traits.name} cannot leave padding out: decode prompts of one length together")
    if isinstance(model, SessionDenoiser):
        return model.session(cache) if padding is None else model.session(cache, padding)
    if cache != "none":
        raise SettingsError(f"{traits.name} has no cache {cache!r}: it offers no session; use cache none")
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
    """`(ids, start, stop) -> logits` of these positions, the cheapest way that the model offers.

    Where that is a whole forward, what it gives is held against the declared shape (`check_logits`).
    """
    if isinstance(model, WindowDenoiser):
        return model.window

    def window(ids: Tensor, start: int, stop: int) -> Tensor:
        logits = model(ids)
        check_logits(model, logits, *ids.shape)
        return logits[:, start:stop]

    return window


def check_logits(model: Denoiser, logits: object, canvases: int, window: int) -> None:
    """Refuse what is not logits of the declared shape.

    Args:
        model: the model that gave them.
        logits: what it gave.
        canvases: rows of ids that it was called with.
        window: positions that were wanted of each.

    Raises:
        ModelError: no tensor, or one of another shape than (canvases, window, vocab_size).
    """
    declared = (canvases, window, model.vocab_size)
    if isinstance(logits, Tensor) and tuple(logits.shape) == declared:
        return
    came = f"logits of shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
    raise ModelError(
        f"{traits_of(model).name} gave {came}, where {declared} was expected: {canvases} canvases, {window} positions, "
        f"and the {model.vocab_size} ids that its vocab_size declares"
    )
