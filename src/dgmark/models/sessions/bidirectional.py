"""Sessions of bidirectional networks: whole forwards, or windows on cached keys and values (as in Fast-dLLM).

In a bidirectional network every key depends on every token, so a cache kept across a commit is an approximation.
"prefix" keeps the keys and values before the block, "dual" also those after it. One whole forward for each block renews
them.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from dgmark.models.denoiser import CacheMode
from dgmark.models.sessions.cache import WindowCache, forward_windows, output_logits


class NetworkSession:
    """The session of a decoder class of transformers with bidirectional attention.

    Args:
        network: the network, with its output matrix.
        cache: "none", "prefix" or "dual".
        shift: 1 if the hidden state at i - 1 predicts position i (Dream), else 0.
        padding: number of padding columns at the left of each row of the first `begin`. With a shift, nothing predicts
            the first column after the padding; no block begins there.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        cache: CacheMode,
        *,
        shift: int = 0,
        padding: Int[Tensor, " batch"] | None = None,
    ) -> None:
        self._network = network
        self._mode = cache
        self._shift = shift
        self._padding = padding
        self._rows_to_keep: Tensor | None = None
        self._cache = WindowCache()

    @torch.inference_mode()
    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Run one whole forward, and keep its keys and values outside the block."""
        if self._padding is not None and self._rows_to_keep is not None:
            self._padding = self._padding[self._rows_to_keep]
        self._rows_to_keep = None
        if self._mode == "none":
            return self._whole(ids, start, stop, self._padding)
        self._cache = WindowCache()
        logits = self._whole(ids, start, stop, self._padding, past_key_values=self._cache)
        self._cache.settle_outside(self._low(start), stop if self._mode == "dual" else ids.shape[1])
        return logits

    @torch.inference_mode()
    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Run a forward of the columns that are not cached."""
        if self._mode == "none":
            return self._whole(ids, start, stop, None if self._padding is None else self._padding[owner])
        low, high = self._low(start), stop if self._mode == "dual" else ids.shape[1]
        hidden = forward_windows(self._network, self._cache, ids[:, low:high], owner, low, self._padding)
        return output_logits(self._network, hidden[:, self._predicting(start, stop, ids.device) - low])

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep the padding of these rows; the cache is renewed for each block anyway."""
        self._rows_to_keep = rows

    def _low(self, start: int) -> int:
        return max(start - self._shift, 0)

    def _whole(self, ids: Tensor, start: int, stop: int, padding: Tensor | None, **options: Any) -> Tensor:
        if padding is not None:
            options |= padded_inputs(padding, ids.shape[1])
        hidden = self._network.base_model(
            input_ids=ids, use_cache="past_key_values" in options, **options
        ).last_hidden_state
        if not self._shift:
            return output_logits(self._network, hidden[:, start:stop])
        return output_logits(self._network, hidden[:, self._predicting(start, stop, ids.device)])

    def _predicting(self, start: int, stop: int, device: torch.device) -> Int[Tensor, " window"]:
        """The positions whose hidden states predict [start, stop)."""
        # position 0 has nothing before it and keeps its own logits
        return (torch.arange(start, stop, device=device) - self._shift).clamp(min=0)


def padded_inputs(padding: Int[Tensor, " batch"], length: int) -> dict[str, Tensor]:
    """Inputs that describe padding at the left to a network of transformers: attention mask and position ids."""
    column = torch.arange(length, device=padding.device) - padding[:, None]
    return {"attention_mask": column >= 0, "position_ids": column.clamp(min=0)}
