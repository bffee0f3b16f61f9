"""What the sessions of networks share: the padding of each row, and which rows the next block keeps."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from dgmark.models.denoiser import CacheMode


class RowSession:
    """The rows of a decode.

    Args:
        network: the network.
        cache: what the session keeps between forwards.
        padding: number of padding columns at the left of each row of the first `begin`.
    """

    def __init__(
        self, network: PreTrainedModel, cache: CacheMode, padding: Int[Tensor, " batch"] | None = None
    ) -> None:
        self._network, self._mode, self._padding = network, cache, padding
        self._rows_to_keep: Tensor | None = None

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep only these rows, from the next `begin` on."""
        self._rows_to_keep = rows

    def _select(self) -> Tensor | None:
        """Drop the rows that are not kept; return those that are, or None if all are."""
        rows, self._rows_to_keep = self._rows_to_keep, None
        if rows is not None:
            self._padding = self._padding_of(rows)
        return rows

    def _padding_of(self, rows: Tensor) -> Tensor | None:
        return None if self._padding is None else self._padding[rows]


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
