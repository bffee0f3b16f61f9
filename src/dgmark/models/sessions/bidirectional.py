"""Sessions of bidirectional networks: whole forwards, or windows on cached keys and values (as Fast-dLLM's).

In a bidirectional network every key depends on every token, so a cache that outlives a commit is an approximation:
"prefix" keeps what stands before the block, "dual" also what stands behind it, both renewed by one whole forward a
block.
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
        padding: columns at the left of each row of the first `begin` that are no part of it. With a shift, the first
            column behind the padding has nothing before it that would predict it; no block begins there.
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
        self._kept: Tensor | None = None
        self._cache = WindowCache()

    @torch.inference_mode()
    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """One whole forward, from which the keys and values outside the block are kept."""
        if self._padding is not None and self._kept is not None:
            self._padding = self._padding[self._kept]
        self._kept = None
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
        """A forward of what is not cached."""
        if self._mode == "none":
            return self._whole(ids, start, stop, None if self._padding is None else self._padding[owner])
        low, high = self._low(start), stop if self._mode == "dual" else ids.shape[1]
        hidden = forward_windows(self._network, self._cache, ids[:, low:high], owner, low, self._padding)
        return output_logits(self._network, hidden[:, self._predicting(start, stop, ids.device) - low])

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Of what is cached nothing outlives a block; of the padding, these rows'."""
        self._kept = rows

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
    """What a network of transformers is told of padding at the left: whom to attend to, and where positions begin."""
    column = torch.arange(length, device=padding.device) - padding[:, None]
    return {"attention_mask": column >= 0, "position_ids": column.clamp(min=0)}
