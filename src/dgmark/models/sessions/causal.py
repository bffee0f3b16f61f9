"""Sessions of networks in which no column sees a later block, so that the cache of finished text is exact.

Networks with blocks in their mask (LLaDA 2, SDAR): attention is bidirectional inside a block, causal between blocks. A
decoded block is one of them or is inside one.

Networks without (Nemotron, the narrator): the decoded block is bidirectional, the text before it is read left to right,
as by the autoregressive model that the network was.

The state that predicts the first position of a block may belong to finished text; it does not change while the block is
decoded.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from dgmark.errors import SettingsError
from dgmark.models.denoiser import BlockOrigin, CacheMode
from dgmark.models.host import on_device
from dgmark.models.sessions.cache import cache_argument
from dgmark.models.sessions.rows import WindowSession, output_logits, padded_inputs, predicting


def check_exact(cache: CacheMode) -> None:
    """Refuse a cache that a model does not have whose cache of finished text is exact."""
    if cache not in ("none", "prefix"):
        raise SettingsError(
            f"there is no cache {cache!r} in a model that sees nothing after a block; use prefix, it is exact"
        )


def mask_block(start: int, stop: int, block: int, offset: int = 0, origin: BlockOrigin = "canvas") -> tuple[int, int]:
    """The columns of the mask's block that the positions [start, stop) are in, where a block begins at `offset`.

    Positions in more than one block are a SettingsError.
    """
    high = ((start - offset) // block + 1) * block + offset
    if stop > high:
        raise SettingsError(
            f"the positions [{start}, {stop}) are in no single block of {block}: decode in blocks whose "
            f"length divides {block}, counted from the start of the {origin}"
        )
    return max(high - block, 0), high


class CausalSession(WindowSession):
    """The session of a network that sees nothing after a block.

    The positions [start, stop) of a `begin` are the decoded block. Where the text before it predicts its first
    position, nothing predicts the first column after the padding; no block begins there.

    Args:
        network: a decoder class of transformers, with its output matrix.
        cache: "none", or "prefix" for the exact cache of finished text.
        block: positions in a block of the network's mask; None if it reads finished text from left to right.
        mask_id: the id that fills the last block up to its end, as in training.
        origin: "canvas" counts the blocks from column 0, "response" from the start of the first `begin`.
        shift: 1 if the hidden state at i - 1 predicts position i, else 0.
        padding: number of padding columns at the left of each row of the first `begin`.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        cache: CacheMode,
        *,
        block: int | None,
        mask_id: int,
        origin: BlockOrigin,
        shift: int,
        padding: Int[Tensor, " batch"] | None = None,
    ) -> None:
        check_exact(cache)
        if padding is not None and origin == "canvas":
            raise SettingsError("blocks are counted from the first column: decode prompts of one length together")
        super().__init__(network, cache, shift=shift, padding=padding)
        self._block, self._mask_id, self._origin = block, mask_id, origin
        self._offset = 0 if origin == "canvas" else None  # a column at which a block begins
        self._first_from_text = block is None or shift == 1  # whether the state before a block predicts its first
        self._last: Tensor | None = None  # hidden states of the last column of the cache

    @torch.inference_mode()
    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Cache the finished text before the block, and compute logits of [start, stop)."""
        if self._offset is None:
            self._offset = start
        self._drop_rows()
        if self._mode == "prefix":
            self._extend(ids, self._window(start, stop, ids.shape[1])[0])
        return super().begin(ids, start, stop)

    def _select(self, rows: Tensor) -> None:
        super()._select(rows)
        self._cache.select(rows)
        self._last = None if self._last is None else self._last[on_device(rows, self._last.device)]

    def _window(self, start: int, stop: int, length: int) -> tuple[int, int]:  # noqa: ARG002
        if self._block is None:
            return start, stop
        return mask_block(start, stop, self._block, self._offset or 0, self._origin)

    def _columns(self, ids: Tensor, end: int) -> Tensor:
        missing = end - ids.shape[1]
        return ids[:, :end] if missing <= 0 else torch.nn.functional.pad(ids, (0, missing), value=self._mask_id)

    def _whole(self, ids: Tensor, start: int, stop: int, padding: Tensor | None) -> Tensor:
        """Logits of [start, stop) by one forward of all columns that they see."""
        end = self._window(stop - 1, stop, ids.shape[1])[1]
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
            states = torch.cat([self._last[on_device(owner, states.device)], states[:, 1:]], 1)
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
            use_cache=True,
            **cache_argument(self._network, self._cache),
        ).last_hidden_state
        self._last = hidden[:, -1:].to(ids.device)
        self._cache.settle(low - done)

    def _mask(
        self, first: int, stop: int, device: torch.device, padding: Tensor | None, start: int
    ) -> Bool[Tensor, "rows 1 queries keys"]:
        """What the columns [first, stop) see before `stop`, where the decoded block begins at `start`."""
        key = torch.arange(stop, device=device)
        query = key[first:, None]
        if self._block is None:
            visible = (key <= query) | (query >= start)
        else:
            number = (key - (self._offset or 0)) // self._block
            visible = number <= number[first:, None]
        if padding is None:
            return visible[None, None]
        # each padding column must see at least one column
        return (visible & (key >= padding[:, None])[:, None] | (key == query))[:, None]
