"""What the sessions of all runtimes share: the rows with their padding. And forwards of a window on a cache."""

from abc import ABC, abstractmethod

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from dgmark.models.denoiser import CacheMode
from dgmark.models.host import on_device
from dgmark.models.sessions.cache import WindowCache, forward_windows


class RowSession(ABC):
    """The rows of a decode; see `dgmark.models.denoiser.Session`.

    Args:
        padding: number of padding columns at the left of each row of the first `begin`.
    """

    def __init__(self, padding: Int[Tensor, " batch"] | None = None) -> None:
        self._padding = padding
        self._rows_to_keep: Tensor | None = None

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep only these rows, from the next `begin` on."""
        self._rows_to_keep = rows

    @torch.inference_mode()
    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Drop the rows that are not kept, and compute logits of [start, stop)."""
        self._drop_rows()
        return self.step(ids, torch.arange(len(ids)), start, stop)

    @abstractmethod
    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Compute logits of [start, stop)."""

    def _drop_rows(self) -> None:
        rows, self._rows_to_keep = self._rows_to_keep, None
        if rows is not None:
            self._select(rows)

    def _select(self, rows: Tensor) -> None:
        self._padding = self._padding_of(rows)

    def _padding_of(self, rows: Tensor) -> Tensor | None:
        return None if self._padding is None else self._padding[on_device(rows, self._padding.device)]


class WindowSession(RowSession):
    """Rows whose forwards may be of a window on top of cached keys and values; see `CausalSession`."""

    def __init__(
        self,
        network: PreTrainedModel,
        cache: CacheMode,
        *,
        shift: int = 0,
        padding: Int[Tensor, " batch"] | None = None,
    ) -> None:
        super().__init__(padding)
        self._network, self._mode, self._shift = network, cache, shift
        self._cache = WindowCache()

    @torch.inference_mode()
    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Run a forward of the window around [start, stop), or, without a cache, of all columns that it sees."""
        if self._mode == "none":
            return self._whole(ids, start, stop, self._padding_of(owner))
        low, high = self._window(start, stop, ids.shape[1])
        window = self._columns(ids, high)[:, low:]
        hidden = forward_windows(self._network, self._cache, window, owner, low, self._padding)
        return output_logits(self._network, self._states(hidden, owner, start - low, stop - low))

    @abstractmethod
    def _whole(self, ids: Tensor, start: int, stop: int, padding: Tensor | None) -> Tensor:
        """Logits of [start, stop) by one forward of all columns that they see."""

    @abstractmethod
    def _window(self, start: int, stop: int, length: int) -> tuple[int, int]:
        """The columns of one forward of the window; the others are cached or not seen."""

    def _columns(self, ids: Tensor, end: int) -> Tensor:
        """The first `end` columns."""
        return ids[:, :end]

    def _states(self, hidden: Tensor, owner: Tensor, start: int, stop: int) -> Tensor:  # noqa: ARG002
        """The hidden states that predict [start, stop), counted from the first column of the window."""
        return hidden[:, predicting(start, stop, self._shift, hidden.device)]


def padded_inputs(padding: Int[Tensor, " batch"], length: int) -> dict[str, Tensor]:
    """Inputs that describe padding at the left to a network of transformers: attention mask and position ids."""
    column = torch.arange(length, device=padding.device) - padding[:, None]
    return {"attention_mask": column >= 0, "position_ids": column.clamp(min=0)}


def predicting(start: int, stop: int, shift: int, device: torch.device) -> Int[Tensor, " window"]:
    """The positions whose hidden states predict [start, stop); position 0 keeps its own logits."""
    return (torch.arange(start, stop, device=device) - shift).clamp(min=0)


def output_logits(network: PreTrainedModel, hidden: Float[Tensor, "... hidden"]) -> Float[Tensor, "... vocab"]:
    """Logits of hidden states, on the device that takes the network's ids."""
    logits: Tensor = network.get_output_embeddings()(hidden)  # type: ignore[no-untyped-call]
    return logits.to(network.device)
