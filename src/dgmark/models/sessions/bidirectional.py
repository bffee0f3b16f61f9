"""Sessions of bidirectional networks: whole forwards, or windows on cached keys and values (as in Fast-dLLM).

In a bidirectional network every key depends on every token, so a cache kept across a commit is an approximation.
"prefix" keeps the keys and values before the block, "dual" also those after it. One whole forward for each block renews
them.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.models.sessions.cache import WindowCache, cache_argument
from dgmark.models.sessions.rows import WindowSession, output_logits, padded_inputs, predicting


class BidirectionalSession(WindowSession):
    """The session of a decoder class of transformers with bidirectional attention; see `WindowSession`.

    With a shift, nothing predicts the first column after the padding; no block begins there.
    """

    @torch.inference_mode()
    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Run one whole forward, and keep its keys and values outside the block."""
        if self._mode == "none":
            return super().begin(ids, start, stop)
        self._drop_rows()
        self._cache = WindowCache()
        kept = cache_argument(self._network, self._cache)
        logits = self._whole(ids, start, stop, self._padding, use_cache=True, **kept)
        self._cache.settle_outside(*self._window(start, stop, ids.shape[1]))
        return logits

    def _window(self, start: int, stop: int, length: int) -> tuple[int, int]:
        """The columns that are not cached."""
        return max(start - self._shift, 0), stop if self._mode == "dual" else length

    def _whole(
        self, ids: Tensor, start: int, stop: int, padding: Tensor | None, use_cache: bool = False, **options: Any
    ) -> Tensor:
        if padding is not None:
            options |= padded_inputs(padding, ids.shape[1])
        hidden = self._network.base_model(input_ids=ids, use_cache=use_cache, **options).last_hidden_state
        return output_logits(self._network, hidden[:, predicting(start, stop, self._shift, ids.device)])
