"""Sessions of bidirectional networks: whole forwards, or windows on cached keys and values (as Fast-dLLM's).

In a bidirectional network every key depends on every token, so a cache that outlives a commit is an approximation:
"prefix" keeps what stands before the block, "dual" also what stands behind it, both renewed by one whole forward a
block. The canvases of a lookahead share the cached keys: they lie side by side in one sequence, and a mask keeps them
apart.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers import Cache, PreTrainedModel

from dgmark.models.denoiser import CacheMode


class NetworkSession:
    """The session of a decoder class of transformers with bidirectional attention.

    Args:
        network: the network, with its output matrix.
        cache: "none", "prefix" or "dual".
        shift: 1 if the hidden state at i - 1 predicts position i (Dream), else 0.
    """

    def __init__(self, network: PreTrainedModel, cache: CacheMode, *, shift: int = 0) -> None:
        self._network = network
        self._mode = cache
        self._shift = shift
        self._cache = CanvasCache()

    @torch.inference_mode()
    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """One whole forward, from which the keys and values outside the block are kept."""
        if self._mode == "none":
            return self._whole(ids, start, stop)
        self._cache = CanvasCache()
        logits = self._whole(ids, start, stop, past_key_values=self._cache)
        self._cache.keep_outside(self._low(start), stop if self._mode == "dual" else ids.shape[1])
        return logits

    @torch.inference_mode()
    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """A forward of what is not cached."""
        if self._mode == "none":
            return self._whole(ids, start, stop)
        low, high = self._low(start), stop if self._mode == "dual" else ids.shape[1]
        rows, row, counts = torch.unique_consecutive(owner, return_inverse=True, return_counts=True)
        place = torch.arange(len(owner), device=ids.device) - (counts.cumsum(0) - counts)[row]
        hidden = self._side_by_side(ids[:, low:high], rows, row, place, low)
        return self._logits(hidden[:, start - self._shift - low : stop - self._shift - low])

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Nothing outlives a block here."""

    def _low(self, start: int) -> int:
        return max(start - self._shift, 0)

    def _whole(self, ids: Tensor, start: int, stop: int, **options: Any) -> Tensor:
        hidden = self._network.base_model(input_ids=ids, use_cache=bool(options), **options).last_hidden_state
        if not self._shift:
            return self._logits(hidden[:, start:stop])
        # position 0 has nothing before it and keeps its own logits
        return self._logits(hidden[:, (torch.arange(start, stop, device=ids.device) - self._shift).clamp(min=0)])

    def _side_by_side(self, windows: Tensor, rows: Tensor, row: Tensor, place: Tensor, low: int) -> Tensor:
        """Hidden states of each canvas's window, the windows of one row in one sequence over its shared cache."""
        width = windows.shape[1]
        several = int(place.max()) + 1
        packed = windows.new_zeros(len(rows), several, width)  # rows with fewer candidates compute some in vain
        packed[row, place] = windows
        mask = None if several == 1 else self._cache.apart(several, width, windows.device)
        positions = torch.arange(low, low + width, device=windows.device).repeat(several)
        hidden = self._network.base_model(
            input_ids=packed.view(len(rows), -1),
            position_ids=positions[None],
            attention_mask=mask,
            past_key_values=self._cache.over(rows),
            use_cache=True,
        ).last_hidden_state
        canvases: Tensor = hidden.view(len(rows), several, width, -1)[row, place]
        return canvases

    def _logits(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._network.get_output_embeddings()(hidden)  # type: ignore[no-untyped-call]
        return logits


class CanvasCache(Cache):
    """Keys and values of whole canvases; then those outside a window, with room for the window's own behind them.

    Keys carry their position, so their order is free. A window's keys are written into the room and forgotten with
    the next forward: nothing of the cache is ever copied for it.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._recorded: list[tuple[Tensor, Tensor]] = []
        self._kept: list[list[Tensor]] = []
        self._outside = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """All keys and values that the queries of this forward attend to."""
        if not self._kept:
            self._recorded.append((key_states, value_states))
            return key_states, value_states
        pair = self._kept[layer_idx]
        end = self._outside + key_states.shape[-2]
        for index, new in enumerate((key_states, value_states)):
            if pair[index].shape[-2] < end:  # more candidates than ever before
                room = new.new_empty(*new.shape[:2], end - self._outside, new.shape[-1])
                pair[index] = torch.cat([pair[index][:, :, : self._outside], room], -2)
            pair[index][:, :, self._outside : end] = new
        return pair[0][:, :, :end], pair[1][:, :, :end]

    def keep_outside(self, low: int, high: int) -> None:
        """Keep what was recorded outside [low, high), and room for that window."""
        for pair in self._recorded:
            self._kept.append([torch.cat([t[:, :, :low], t[:, :, high:], t[:, :, low:high]], -2) for t in pair])
        self._outside = self._recorded[0][0].shape[-2] - (high - low)
        self._recorded.clear()

    def over(self, rows: Int[Tensor, " rows"]) -> "CanvasCache":
        """The cache of these rows; itself if they are all."""
        if len(rows) == len(self._kept[0][0]):
            return self
        part = CanvasCache()
        part._outside = self._outside
        part._kept = [[tensor[rows] for tensor in pair] for pair in self._kept]
        return part

    def apart(self, several: int, width: int, device: torch.device) -> Bool[Tensor, "1 1 queries keys"]:
        """What each query may attend to: all that is cached, and its own window."""
        window = torch.arange(several, device=device).repeat_interleave(width)
        own = window[:, None] == window
        cached = torch.ones(len(window), self._outside, dtype=torch.bool, device=device)
        return torch.cat([cached, own], 1)[None, None]

    def get_seq_length(self, layer_idx: int = 0) -> int:  # noqa: ARG002 (transformers' signature)
        """Keys kept."""
        return self._outside

    def get_query_offset(self, layer_idx: int = 0) -> int:  # noqa: ARG002
        """No query is masked by its place."""
        return 0

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:  # noqa: ARG002
        """Keys that the queries see, and where they begin."""
        return self._outside + query_length, 0
