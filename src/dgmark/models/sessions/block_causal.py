"""Sessions of networks with a block-causal mask (LLaDA 2): attention is bidirectional inside a block, causal between.

Columns before a block do not see it, so the keys and values of finished blocks are exact and computed once. Blocks are
those of the network's own mask, counted from column 0 of the canvas; a decoded block is one of them or is inside one.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from dgmark.errors import SettingsError
from dgmark.models.denoiser import CacheMode
from dgmark.models.sessions.cache import WindowCache, forward_windows, output_logits


def check_exact(cache: CacheMode) -> None:
    """Refuse caches that have no use in networks where no column sees a later block.

    Raises:
        SettingsError: the cache is neither "none" nor "prefix".
    """
    if cache not in ("none", "prefix"):
        raise SettingsError(
            f"there is no cache {cache!r} in a model that sees nothing behind a block; use prefix, it is exact"
        )


class BlockCausalSession:
    """The session of a decoder class of transformers that was trained with a block-causal mask.

    Args:
        network: the network, with its output matrix.
        cache: "none", or "prefix" for the exact cache of finished blocks.
        block: positions in a block of the mask.
        mask_id: the id that fills the last block up to its end, as in training.

    Raises:
        SettingsError: the cache is neither "none" nor "prefix".
    """

    def __init__(self, network: PreTrainedModel, cache: CacheMode, *, block: int, mask_id: int) -> None:
        check_exact(cache)
        self._network = network
        self._mode = cache
        self._block = block
        self._mask_id = mask_id
        self._rows_to_keep: Tensor | None = None
        self._cache = WindowCache()

    @torch.inference_mode()
    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Cache the finished blocks before the block, and compute logits of [start, stop)."""
        if self._mode == "prefix":
            self._extend(ids, self._low(start, stop))
        return self.step(ids, torch.arange(len(ids), device=ids.device), start, stop)

    @torch.inference_mode()
    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Run a forward of the block around [start, stop), or, without a cache, of all columns up to its end."""
        if self._mode == "none":
            return self.whole(ids, start, stop)
        low = self._low(start, stop)
        window = self._filled(ids, low + self._block)[:, low:]
        hidden = forward_windows(self._network, self._cache, window, owner, low)
        return output_logits(self._network, hidden[:, start - low : stop - low])

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep the finished blocks of only these rows cached, from the next `begin` on."""
        self._rows_to_keep = rows

    @torch.inference_mode()
    def whole(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Logits of [start, stop), in any blocks, by one forward of all columns that they see."""
        end = -(-stop // self._block) * self._block
        hidden = self._network.base_model(
            input_ids=self._filled(ids, end), attention_mask=self._mask(0, end, ids.device), use_cache=False
        ).last_hidden_state
        return output_logits(self._network, hidden[:, start:stop])

    def _extend(self, ids: Tensor, low: int) -> None:
        """Cache the finished blocks before `low`."""
        if self._rows_to_keep is not None:
            self._cache.select(self._rows_to_keep)
            self._rows_to_keep = None
        done = self._cache.settled
        if done < low:
            self._network.base_model(
                input_ids=ids[:, done:low],
                position_ids=torch.arange(done, low, device=ids.device)[None],
                attention_mask=self._mask(done, low, ids.device),
                past_key_values=self._cache,
                use_cache=True,
            )
            self._cache.settle(low - done)

    def _low(self, start: int, stop: int) -> int:
        low = start // self._block * self._block
        if stop > low + self._block or low < self._cache.settled:
            raise SettingsError(
                f"the positions [{start}, {stop}) are in no single block of {self._block} at or after the last one: "
                f"decode in blocks whose length divides {self._block}, counted from the start of the canvas"
            )
        return low

    def _filled(self, ids: Tensor, end: int) -> Tensor:
        """The first `end` columns, filled up with masks if the canvas is shorter."""
        missing = end - ids.shape[1]
        return ids[:, :end] if missing <= 0 else torch.nn.functional.pad(ids, (0, missing), value=self._mask_id)

    def _mask(self, start: int, stop: int, device: torch.device) -> Bool[Tensor, "1 1 queries keys"]:
        block = torch.arange(stop, device=device) // self._block
        return (block[start:, None] >= block)[None, None]
