"""Keys and values that are kept after a forward, and windows of canvases computed on top of them.

The canvases of a lookahead share the cache: their windows are side by side in one sequence, and a mask separates them.
This module knows neither blocks nor when a cache is exact; the sessions do.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import Cache, PreTrainedModel

from dgmark.models.host import on_device


class WindowCache(Cache):
    """Keys and values of settled positions, followed by room for those of a window.

    Keys carry their position, so they may be in any order. The next forward overwrites the room unless its content is
    settled; so the cache is never copied for a window. Layers may be on several devices.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._pairs: list[list[Tensor]] = []
        self._part: tuple[Tensor, WindowCache] | None = None
        self.settled = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store new keys and values; return all that the queries of this forward attend to."""
        if layer_idx == len(self._pairs):
            self._pairs.append([key_states, value_states])
            return key_states, value_states
        pair = self._pairs[layer_idx]
        end = self.settled + key_states.shape[-2]
        for index, new in enumerate((key_states, value_states)):
            if pair[index].shape[-2] < end:  # the room is too small
                room = new.new_empty(*new.shape[:2], end - self.settled, new.shape[-1])
                pair[index] = torch.cat([pair[index][:, :, : self.settled], room], -2)
            pair[index][:, :, self.settled : end] = new
        return pair[0][:, :, :end], pair[1][:, :, :end]

    def settle(self, count: int) -> None:
        """Settle the first `count` positions of the last forward."""
        self.settled += count
        self._part = None

    def settle_outside(self, low: int, high: int) -> None:
        """Settle the positions of the first forward outside [low, high), in the same order."""
        length = self._pairs[0][0].shape[-2]
        self._pairs = [
            [torch.cat([t[:, :, :low], t[:, :, high:], t[:, :, low:high]], -2) for t in pair] for pair in self._pairs
        ]
        self.settle(length - (high - low))

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep only these rows, in this order."""
        self._pairs = self._of_rows(rows)
        self._part = None

    def over(self, rows: Int[Tensor, " rows"]) -> "WindowCache":
        """The cache of these rows (ascending); the cache itself if these are all rows."""
        if not self._pairs or len(rows) == len(self._pairs[0][0]):
            return self
        if self._part is None or not torch.equal(self._part[0], rows):
            part = WindowCache()
            part.settled = self.settled
            part._pairs = self._of_rows(rows)
            self._part = (rows, part)
        return self._part[1]

    def _of_rows(self, rows: Tensor) -> list[list[Tensor]]:
        return [[tensor[on_device(rows, tensor.device)] for tensor in pair] for pair in self._pairs]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002 (transformers' signature)
        """Number of settled keys."""
        return self.settled

    def get_query_offset(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """0, because no query is masked by its place."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:  # noqa: ARG002
        """The number of keys that the queries see, and the first of them."""
        return self.settled + query_length, 0


def cache_argument(network: PreTrainedModel, cache: WindowCache) -> dict[str, WindowCache]:
    """The cache under the name that the network's forward has for it."""
    return {_cache_name(type(network.base_model).forward): cache}


@functools.cache
def _cache_name(forward: Callable[..., object]) -> str:
    """`cache` from transformers 5.24 on, `past_key_values` before."""
    return "cache" if "cache" in inspect.signature(forward).parameters else "past_key_values"


def forward_windows(
    network: PreTrainedModel,
    cache: WindowCache,
    windows: Int[Tensor, "canvases width"],
    owner: Int[Tensor, " canvases"],
    low: int,
    padding: Int[Tensor, " batch"] | None = None,
) -> Float[Tensor, "canvases width hidden"]:
    """Compute the hidden states of windows that begin at column `low`, each with the cache of its row.

    Args:
        network: a decoder class of transformers with bidirectional attention.
        cache: the cache of whole rows; its first keys are those of the columns before `low`.
        windows: token ids; several windows may come from one row.
        owner: the row of the cache that each window comes from, ascending, on the CPU.
        low: the windows' first column in the canvas.
        padding: number of padding columns at the left of each row of the cache, all before `low`.
    """
    rows, row, counts = torch.unique_consecutive(owner, return_inverse=True, return_counts=True)
    width, several, at = windows.shape[1], int(counts.max()), None
    positions = torch.arange(low, low + width, device=windows.device).repeat(several)[None]
    padding = None if padding is None else padding[on_device(rows, padding.device)]
    mask = None
    if several > 1 or padding is not None:
        mask = _window_mask(several, width, cache.settled, windows.device)
        if padding is not None:  # whose keys come first
            positions = positions - padding[:, None]
            key = torch.arange(mask.shape[-1], device=padding.device)
            mask = mask & (key >= padding[:, None])[:, None, None]
    if several > 1:  # one after the other; rows with fewer windows compute some that are not used
        place = torch.arange(len(owner)) - (counts.cumsum(0) - counts)[row]
        at = tuple(on_device(index, windows.device) for index in (row, place))
        windows = windows.new_zeros(len(rows), several, width).index_put(at, windows).view(len(rows), -1)
    hidden: Tensor = network.base_model(
        input_ids=windows,
        position_ids=positions,
        attention_mask=mask,
        use_cache=True,
        **cache_argument(network, cache.over(rows)),
    ).last_hidden_state.to(windows.device)
    return hidden if at is None else hidden.view(len(rows), several, width, -1)[at]


def _window_mask(several: int, width: int, cached: int, device: torch.device) -> Bool[Tensor, "1 1 queries keys"]:
    """The keys that each query may attend to: all that are cached, and those of its own window."""
    window = torch.arange(several, device=device).repeat_interleave(width)
    own = window[:, None] == window
    return torch.cat([own.new_ones(len(window), cached), own], 1)[None, None]
