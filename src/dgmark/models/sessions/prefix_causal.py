"""Sessions of networks with a causal prefix: a block is bidirectional, the text before it is read left to right.

Such a network was autoregressive and still reads finished text that way, so the keys and values of finished blocks are
exact and computed once. The hidden state at i - 1 predicts position i. The state that predicts the first position of a
block belongs to finished text, and does not change while the block is decoded.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from dgmark.errors import SettingsError
from dgmark.models.denoiser import CacheMode
from dgmark.models.sessions.bidirectional import padded_inputs
from dgmark.models.sessions.block_causal import check_exact
from dgmark.models.sessions.cache import WindowCache, forward_windows, output_logits


class CausalPrefixSession:
    """The session of a decoder class of transformers that reads finished text left to right.

    The positions [start, stop) of a `begin` are the block; the columns after it are not seen.

    Args:
        network: the network, with its output matrix.
        cache: "none", or "prefix" for the exact cache of finished text.
        padding: number of padding columns at the left of each row of the first `begin`. Nothing predicts the first
            column after the padding; no block begins there.

    Raises:
        SettingsError: the cache is neither "none" nor "prefix".
    """

    def __init__(
        self, network: PreTrainedModel, cache: CacheMode, *, padding: Int[Tensor, " batch"] | None = None
    ) -> None:
        check_exact(cache)
        self._network = network
        self._mode = cache
        self._padding = padding
        self._rows_to_keep: Tensor | None = None
        self._cache = WindowCache()
        self._first: Tensor | None = None  # hidden states just before the block

    @torch.inference_mode()
    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Cache all columns before the block, and compute logits of [start, stop)."""
        self._select()
        if self._mode == "prefix":
            self._extend(ids, start)
        return self.step(ids, torch.arange(len(ids), device=ids.device), start, stop)

    @torch.inference_mode()
    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Run a forward of the block, or, without a cache, of all columns up to its end."""
        if self._mode == "none":
            return self._whole(ids, start, stop, None if self._padding is None else self._padding[owner])
        hidden = forward_windows(self._network, self._cache, ids[:, start:stop], owner, start, self._padding)
        return output_logits(
            self._network, torch.cat([hidden[:, :1] if self._first is None else self._first[owner], hidden[:, :-1]], 1)
        )

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep the finished text of only these rows cached, from the next `begin` on."""
        self._rows_to_keep = rows

    def _select(self) -> None:
        rows, self._rows_to_keep = self._rows_to_keep, None
        if rows is None:
            return
        self._cache.select(rows)
        self._padding = None if self._padding is None else self._padding[rows]
        self._first = None if self._first is None else self._first[rows]

    def _extend(self, ids: Tensor, start: int) -> None:
        """Cache the columns before `start`, and keep the last of their hidden states."""
        done = self._cache.settled
        if start < done:
            raise SettingsError(
                f"position {start} is before text that is finished up to {done}: begin blocks from left to right"
            )
        if start == done:
            return
        options = {} if self._padding is None else padded_inputs(self._padding, start)
        positions = options.get("position_ids", torch.arange(start, device=ids.device)[None])
        hidden = self._network.base_model(
            input_ids=ids[:, done:start],
            position_ids=positions[:, done:],
            attention_mask=self._mask(start, start, ids.device, self._padding, done),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        self._first = hidden[:, -1:].to(ids.device)
        self._cache.settle(start - done)

    def _whole(self, ids: Tensor, start: int, stop: int, padding: Tensor | None) -> Tensor:
        options = {} if padding is None else {"position_ids": padded_inputs(padding, stop)["position_ids"]}
        hidden = self._network.base_model(
            input_ids=ids[:, :stop],
            attention_mask=self._mask(start, stop, ids.device, padding),
            use_cache=False,
            **options,
        ).last_hidden_state
        predicting = (torch.arange(start, stop, device=ids.device) - 1).clamp(min=0)
        return output_logits(self._network, hidden[:, predicting])

    @staticmethod
    def _mask(
        start: int, stop: int, device: torch.device, padding: Tensor | None, first: int = 0
    ) -> Bool[Tensor, "rows 1 queries keys"]:
        """What the columns [first, stop) see before `stop`: themselves and earlier columns; from `start` on, all."""
        column = torch.arange(stop, device=device)
        visible = (column <= column[first:, None]) | (column[first:] >= start)[:, None]
        if padding is None:
            return visible[None, None]
        itself = column == column[first:, None]  # each padding column must see at least one column
        return (visible & (column >= padding[:, None])[:, None] | itself)[:, None]
