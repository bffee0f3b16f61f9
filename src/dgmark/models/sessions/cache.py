"""Keys and values that outlive a forward, and windows of canvases computed on top of them.

The canvases of a lookahead share what is cached: their windows lie side by side in one sequence, and a mask keeps them
apart. Knows neither blocks nor when a cache is exact; the sessions do.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import Cache, PreTrainedModel


class WindowCache(Cache):
    """Keys and values of settled positions, with room behind them for those of a window.

    Keys carry their position, so their order is free. What a forward writes into the room is forgotten with the next
    forward unless it is settled: nothing of the cache is ever copied for a window. Layers may lie on several devices.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._pairs: list[list[Tensor]] = []
        self._part: tuple[Tensor, WindowCache] | None = None
        self.settled = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """All keys and values that the queries of this forward attend to."""
        if layer_idx == len(self._pairs):
            self._pairs.append([key_states, value_states])
            return key_states, value_states
        pair = self._pairs[layer_idx]
        end = self.settled + key_states.shape[-2]
        for index, new in enumerate((key_states, value_states)):
            if pair[index].shape[-2] < end:  # more room than ever before
                room = new.new_empty(*new.shape[:2], end - self.settled, new.shape[-1])
                pair[index] = torch.cat([pair[index][:, :, : self.settled], room], -2)
            pair[index][:, :, self.settled : end] = new
        return pair[0][:, :, :end], pair[1][:, :, :end]

    def settle(self, count: int) -> None:
        """The first `count` positions of the last forward stay."""
        self.settled += count
        self._part = None

    def settle_outside(self, low: int, high: int) -> None:
        """The positions of the first forward outside [low, high) stay, and their order is kept."""
        length = self._pairs[0][0].shape[-2]
        self._pairs = [
            [torch.cat([t[:, :, :low], t[:, :, high:], t[:, :, low:high]], -2) for t in pair] for pair in self._pairs
        ]
        self.settle(length - (high - low))

    def select(self, rows: Int[Tensor, " kept"]) -> None:
        """Only these rows stay, in this order."""
        self._pairs = [[tensor[rows.to(tensor.device)] for tensor in pair] for pair in self._pairs]
        self._part = None

    def over(self, rows: Int[Tensor, " rows"]) -> "WindowCache":
        """The cache of these rows, ascending; itself if they are all."""
        if not self._pairs or len(rows) == len(self._pairs[0][0]):
            return self
        if self._part is None or not torch.equal(self._part[0], rows):
            part = WindowCache()
            part.settled = self.settled
            part._pairs = [[tensor[rows.to(tensor.device)] for tensor in pair] for pair in self._pairs]
            self._part = (rows, part)
        return self._part[1]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002 (transformers' signature)
        """Keys that stay."""
        return self.settled

    def get_query_offset(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """No query is masked by its place."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:  # noqa: ARG002
        """Keys that the queries see, and where they begin."""
        return self.settled + query_length, 0


def forward_windows(
    network: PreTrainedModel,
    cache: WindowCache,
    windows: Int[Tensor, "canvases width"],
    owner: Int[Tensor, " canvases"],
    low: int,
    padding: Int[Tensor, " batch"] | None = None,
) -> Float[Tensor, "canvases width hidden"]:
    """Hidden states of windows that begin at column `low`, each over the cache of its row.

    Args:
        network: a decoder class of transformers with bidirectional attention.
        cache: of whole rows; its first keys are those of the columns before `low`.
        windows: token ids; several may stem from one row.
        owner: the row of the cache that each stems from, ascending.
        low: column of the canvas.
        padding: columns of padding at the left of each row of the cache, all before `low`.
    """
    rows, row, counts = torch.unique_consecutive(owner, return_inverse=True, return_counts=True)
    place = torch.arange(len(owner), device=windows.device) - (counts.cumsum(0) - counts)[row]
    width, several = windows.shape[1], int(counts.max())
    packed = windows.new_zeros(len(rows), several, width)  # rows with fewer canvases compute some in vain
    packed[row, place] = windows
    positions = torch.arange(low, low + width, device=windows.device).repeat(several)[None]
    padding = None if padding is None else padding[rows]
    mask = None
    if several > 1 or padding is not None:
        mask = _apart(several, width, cache.settled, windows.device)
    if mask is not None and padding is not None:
        positions = positions - padding[:, None]
        mask = mask & _behind(padding, mask.shape[-1])
    hidden: Tensor = network.base_model(
        input_ids=packed.view(len(rows), -1),
        position_ids=positions,
        attention_mask=mask,
        past_key_values=cache.over(rows),
        use_cache=True,
    ).last_hidden_state.to(windows.device)
    return hidden.view(len(rows), several, width, -1)[row, place]


def output_logits(network: PreTrainedModel, hidden: Float[Tensor, "... hidden"]) -> Float[Tensor, "... vocab"]:
    """Logits of hidden states, on the device that takes the network's ids."""
    logits: Tensor = network.get_output_embeddings()(hidden)  # type: ignore[no-untyped-call]
    return logits.to(network.device)


def _apart(several: int, width: int, cached: int, device: torch.device) -> Bool[Tensor, "1 1 queries keys"]:
    """What each query may attend to: all that is cached, and its own window."""
    window = torch.arange(several, device=device).repeat_interleave(width)
    own = window[:, None] == window
    return torch.cat([own.new_ones(len(window), cached), own], 1)[None, None]


def _behind(padding: Tensor, keys: int) -> Bool[Tensor, "rows 1 1 keys"]:
    """The keys that are no padding, which lies first."""
    return (torch.arange(keys, device=padding.device) >= padding[:, None])[:, None, None]
