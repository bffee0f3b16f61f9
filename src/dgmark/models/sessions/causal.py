"""Sessions of networks in which no column sees a later block, so that the cache of finished text is exact.

`BlockCausalSession` (LLaDA 2, SDAR): attention is bidirectional inside a block, causal between blocks. Blocks are those
of the network's own mask; a decoded block is one of them or is inside one.

`CausalPrefixSession` (the narrator): the decoded block is bidirectional, the text before it is read left to right, as
by the autoregressive model that the network was.

The state that predicts the first position of a block may belong to finished text; it does not change while the block is
decoded.
"""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from dgmark.errors import SettingsError
from dgmark.models.denoiser import BlockOrigin, CacheMode
from dgmark.models.sessions.rows import WindowSession, output_logits, padded_inputs, predicting


def check_exact(cache: CacheMode) -> None:
    """Refuse a cache that a model does not have whose cache of finished text is exact."""
    if cache not in ("none", "prefix"):
        raise SettingsError(
            f"there is no cache {cache!r} in a model that sees nothing behind a block; use prefix, it is exact"
        )


def mask_block(start: int, stop: int, block: int, offset: int = 0, origin: BlockOrigin = "canvas") -> tuple[int, int]:
    """The columns of the mask's block that the positions [start, stop) are in, where a block begins at `offset`.

    Raises:
        SettingsError: they are in more than one.
    """
    high = ((start - offset) // block + 1) * block + offset
    if stop > high:
        raise SettingsError(
            f"the positions [{start}, {stop}) are in no single block of {block}: decode in blocks whose "
            f"length divides {block}, counted from the start of the {origin}"
        )
    return max(high - block, 0), high


class _ExactSession(WindowSession):
    """A session that caches finished text.

    Args:
        network: a decoder class of transformers, with its output matrix.
        cache: "none", or "prefix" for the exact cache of finished text.
        shift: 1 if the hidden state at i - 1 predicts position i, else 0.
        padding: number of padding columns at the left of each row of the first `begin`.

    Raises:
        SettingsError: the cache is neither "none" nor "prefix".
    """

    _first_from_text: bool  # whether the state before a block predicts its first position

    def __init__(
        self, network: PreTrainedModel, cache: CacheMode, shift: int, padding: Int[Tensor, " batch"] | None = None
    ) -> None:
        check_exact(cache)
        super().__init__(network, cache, padding)
        self._shift = shift
        self._last: Tensor | None = None  # hidden states of the last column of the cache

    @torch.inference_mode()
    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Cache the finished text before the block, and compute logits of [start, stop)."""
        rows = self._select()
        if rows is not None:
            self._cache.select(rows)
            self._last = None if self._last is None else self._last[rows]
        if self._mode == "prefix":
            self._extend(ids, self._window(start, stop, ids.shape[1])[0])
        return self.step(ids, torch.arange(len(ids), device=ids.device), start, stop)

    def _whole(self, ids: Tensor, start: int, stop: int, padding: Tensor | None) -> Tensor:
        """Logits of [start, stop) by one forward of all columns that they see."""
        end = self._end(stop)
        options = {} if padding is None else {"position_ids": padded_inputs(padding, end)["position_ids"]}
        hidden = self._network.base_model(
            input_ids=self._columns(ids, end),
            attention_mask=self._mask(0, end, ids.device, padding, start),
            use_cache=False,
            **options,
        ).last_hidden_state
        predictors = predicting(start, stop, self._shift, ids.device)
        if self._first_from_text:
            predictors[0] = max(start - 1, 0)
        return output_logits(self._network, hidden[:, predictors])

    def _states(self, hidden: Tensor, owner: Tensor, start: int, stop: int) -> Tensor:
        states = super()._states(hidden, owner, start, stop)
        if start == 0 and self._first_from_text and self._last is not None:
            states = torch.cat([self._last[owner], states[:, 1:]], 1)
        return states

    def _extend(self, ids: Tensor, low: int) -> None:
        """Cache the finished columns before `low`, and keep the last of their hidden states."""
        done = self._cache.settled
        if low < done:
            raise SettingsError(
                f"position {low} is before text that is finished up to {done}: begin blocks from left to right"
            )
        if low == done:
            return
        positions = torch.arange(low, device=ids.device)[None]
        if self._padding is not None:
            positions = padded_inputs(self._padding, low)["position_ids"]
        hidden = self._network.base_model(
            input_ids=ids[:, done:low],
            position_ids=positions[:, done:],
            attention_mask=self._mask(done, low, ids.device, self._padding, low),
            past_key_values=self._cache,
            use_cache=True,
        ).last_hidden_state
        self._last = hidden[:, -1:].to(ids.device)
        self._cache.settle(low - done)

    def _mask(
        self, first: int, stop: int, device: torch.device, padding: Tensor | None, start: int
    ) -> Bool[Tensor, "rows 1 queries keys"]:
        """What the columns [first, stop) see before `stop`, where a block begins at `start`."""
        column = torch.arange(stop, device=device)
        visible = self._visible(column[first:, None], column, start)
        if padding is None:
            return visible[None, None]
        itself = column == column[first:, None]  # each padding column must see at least one column
        return (visible & (column >= padding[:, None])[:, None] | itself)[:, None]

    @abstractmethod
    def _end(self, stop: int) -> int:
        """The end of the columns that those before `stop` see."""

    @abstractmethod
    def _visible(self, query: Tensor, key: Tensor, start: int) -> Bool[Tensor, "queries keys"]:
        """Which columns see which, where a block begins at `start`."""


class BlockCausalSession(_ExactSession):
    """The session of a network that was trained with a block-causal mask.

    Args:
        network: a decoder class of transformers, with its output matrix.
        cache: "none", or "prefix" for the exact cache of finished blocks.
        block: positions in a block of the mask.
        mask_id: the id that fills the last block up to its end, as in training.
        origin: "canvas" counts the blocks from column 0, "response" from the start of the first `begin`.
        shift: 1 if the hidden state at i - 1 predicts position i, else 0.
        padding: number of padding columns at the left of each row of the first `begin`; only where blocks are counted
            from the response.

    Raises:
        SettingsError: the cache is neither "none" nor "prefix", or there is padding where blocks are counted from it.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        cache: CacheMode,
        *,
        block: int,
        mask_id: int,
        origin: BlockOrigin = "canvas",
        shift: int = 0,
        padding: Int[Tensor, " batch"] | None = None,
    ) -> None:
        super().__init__(network, cache, shift, padding)
        if padding is not None and origin == "canvas":
            raise SettingsError("blocks are counted from the first column: decode prompts of one length together")
        self._block, self._mask_id, self._origin = block, mask_id, origin
        self._first_from_text = shift == 1
        self._offset = 0 if origin == "canvas" else None  # a column at which a block begins

    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Cache the finished blocks, and compute logits of [start, stop)."""
        if self._offset is None:
            self._offset = start
        return super().begin(ids, start, stop)

    def _number(self, column: Any) -> Any:
        """The number of the block that a column, or each of a tensor of columns, is in."""
        return (column - (self._offset or 0)) // self._block

    def _window(self, start: int, stop: int, length: int) -> tuple[int, int]:  # noqa: ARG002
        return mask_block(start, stop, self._block, self._offset or 0, self._origin)

    def _end(self, stop: int) -> int:
        end: int = (self._number(stop - 1) + 1) * self._block + (self._offset or 0)
        return end

    def _columns(self, ids: Tensor, end: int) -> Tensor:
        missing = end - ids.shape[1]
        return ids[:, :end] if missing <= 0 else torch.nn.functional.pad(ids, (0, missing), value=self._mask_id)

    def _visible(self, query: Tensor, key: Tensor, start: int) -> Tensor:  # noqa: ARG002
        visible: Tensor = self._number(query) >= self._number(key)
        return visible


class CausalPrefixSession(_ExactSession):
    """The session of a network that reads finished text left to right.

    The positions [start, stop) of a `begin` are the block; the columns after it are not seen. Nothing predicts the
    first column after the padding; no block begins there.
    """

    _first_from_text = True

    def _window(self, start: int, stop: int, length: int) -> tuple[int, int]:  # noqa: ARG002
        return start, stop

    def _end(self, stop: int) -> int:
        return stop

    def _visible(self, query: Tensor, key: Tensor, start: int) -> Tensor:
        return (key <= query) | (query >= start)
