"""Models that MLX computes (Apple silicon's GPU, or a CPU), through the networks of mlx-vlm.

Both families read finished text once and keep its keys and values: LLaDA 2 block by block, Nemotron from left to right.
Ids come in and logits go out as tensors of torch on the CPU.
"""

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.checkpoint.families import LLADA2, NEMOTRON, Family
from dgmark.checkpoint.folder import Checkpoint
from dgmark.checkpoint.tokenizer import read_tokenizer
from dgmark.errors import MissingExtra, SettingsError, install_hint
from dgmark.models.denoiser import CacheMode
from dgmark.models.loaded import LoadedModel, stated_facts
from dgmark.models.sessions.causal import check_exact, mask_block
from dgmark.models.sessions.rows import RowSession
from dgmark.models.weights import check_files, misfit

DEVICE = "mlx"
FAMILIES = (LLADA2, NEMOTRON)


@dataclass(frozen=True, kw_only=True)
class MlxDenoiser(LoadedModel):
    """A model that mlx-vlm's network computes."""

    network: Any = field(repr=False)

    def session(self, cache: CacheMode, padding: Int[Tensor, " batch"] | None = None) -> "MlxSession":
        """Open a session; a cache that is neither "none" nor "prefix", and padding, are SettingsErrors."""
        check_exact(cache)
        if padding is not None:
            raise SettingsError(f"{self.name} cannot leave padding out: decode prompts of one length together")
        return MlxSession(self.network, cache, self.block_multiple, self.mask_id)


class MlxSession(RowSession):
    """The forwards of one decode by mlx-vlm's network with its output matrix; see `CausalSession`."""

    def __init__(self, network: Any, cache: CacheMode, block: int | None, mask_id: int) -> None:
        super().__init__()
        self._network, self._mode, self._block, self._mask_id = network, cache, block, mask_id
        self._finished = _Finished(network, block)

    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Read the finished text before the block, and compute logits of [start, stop)."""
        self._drop_rows()
        if self._mode == "prefix":
            self._finished.extend(ids, self._window(start, stop)[0])
        return super().begin(ids, start, stop)

    def _select(self, rows: Tensor) -> None:
        self._finished = self._finished.of(rows)

    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Compute logits of [start, stop) on top of the finished text."""
        cuts = [start, stop]
        if self._mode == "prefix":
            finished = self._finished.of(owner)
        else:
            finished = _Finished(self._network, self._block)
            if self._block is not None:  # several blocks of the mask, one after the other
                cuts[1:1] = range(start - start % self._block + self._block, stop, self._block)
        parts = []
        for first, end in pairwise(cuts):
            low, high = self._window(first, end)
            finished.extend(ids, low)
            missing = max(high - ids.shape[1], 0)
            window = torch.nn.functional.pad(ids, (0, missing), value=self._mask_id)[:, low:high]
            parts.append(finished.logits(window)[:, first - low : end - low])
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    def _window(self, start: int, stop: int) -> tuple[int, int]:
        """The columns of one forward: the block of the mask around [start, stop), or these positions themselves."""
        return (start, stop) if self._block is None else mask_block(start, stop, self._block)


class _Finished:
    """Keys and values of finished text, by layer, and the logits of its last column."""

    def __init__(self, network: Any, block: int | None) -> None:
        from mlx_vlm.models.cache import KVCache

        self._network, self._block = network, block
        self._layers = [KVCache() for _ in network.layers]
        self._last: Any = None  # of text that is read from left to right

    def of(self, rows: Int[Tensor, " rows"]) -> "_Finished":
        """The finished text of these rows, in this order."""
        import mlx.core as mx

        keys = self._layers[0].keys
        if keys is None or torch.equal(rows, torch.arange(len(keys))):
            return self
        taken, index = _Finished(self._network, self._block), mx.array(rows.numpy())
        taken._last = None if self._last is None else self._last[index]
        for new, old in zip(taken._layers, self._layers, strict=True):
            new.state = [part[index] for part in old.state]
        return taken

    def extend(self, ids: Tensor, low: int) -> None:
        """Read the columns up to `low`: a block at a time, or from left to right."""
        import mlx.core as mx

        done = self._layers[0].offset
        if low < done:
            raise SettingsError(
                f"position {low} is before text that is finished up to {done}: begin blocks from left to right"
            )
        if low == done:
            return
        # from left to right, the last column stands alone, so that logits are computed of no other
        cuts = [done, max(low - 1, done), low]
        if self._block is not None:
            cuts = list(range(done, low + 1, self._block))
        for first, end in pairwise(cuts):
            if first < end:
                self._last = self._forward(ids[:, first:end], causal=self._block is None)[:, -1:]
        kept = [self._last] if self._block is None else []
        mx.eval(kept, [layer.state for layer in self._layers])

    def logits(self, window: Tensor) -> Tensor:
        """Logits of a window after the finished text, all columns of which see each other."""
        import mlx.core as mx

        logits = self._forward(window, causal=False)
        for layer in self._layers:
            layer.trim(window.shape[1])
        if self._block is None and self._last is not None:  # the text before a block predicts its first position
            logits = mx.concatenate([self._last, logits[:, 1:]], axis=1)
        return torch.from_numpy(np.array(logits.astype(mx.float32)))

    def _forward(self, ids: Tensor, *, causal: bool) -> Any:
        import mlx.core as mx

        return self._network(mx.array(ids.numpy()), cache=self._layers, use_causal_mask=causal).logits


def load_mlx(checkpoint: Checkpoint, family: Family, context_length: int) -> MlxDenoiser:
    """Load a checkpoint of one of `FAMILIES`, as published or quantized by mlx-vlm, into mlx-vlm's network."""
    if family not in FAMILIES:
        names = " and ".join(known.name for known in FAMILIES)
        raise SettingsError(f"MLX computes models of the families {names}, not {family.name}: leave --device mlx out")
    try:
        import mlx.core as mx
        import mlx.utils
        from mlx_vlm.models import llada2_moe, nemotron_labs_diffusion
        from mlx_vlm.utils import load_model_weights
    except ImportError as error:
        raise MissingExtra(f"device mlx needs mlx and mlx-vlm: {install_hint('mlx')} ({error})") from None
    kind = {LLADA2.name: llada2_moe, NEMOTRON.name: nemotron_labs_diffusion}[family.name]
    tokenizer = read_tokenizer(checkpoint.folder, checkpoint.name)
    facts = stated_facts(checkpoint, tokenizer, family)
    files = check_files(checkpoint.folder)
    try:
        model = kind.Model(kind.ModelConfig.from_dict(dict(checkpoint.config)))
        weights: dict[str, Any] = {}
        for file in files:
            weights.update(mx.load(str(file)))
        load_model_weights(model, dict(checkpoint.config), model.sanitize(weights), checkpoint.folder)
    except Exception as error:  # mlx-vlm's classes raise all kinds at invalid values
        raise misfit(checkpoint, error) from error
    kinds = {array.dtype for _, array in mlx.utils.tree_flatten(model.parameters())}
    floating = [name for name in ("bfloat16", "float16", "float32") if getattr(mx, name) in kinds]
    return MlxDenoiser(**facts, context_length=context_length, network=model.language_model, dtype=floating[0])


def unquantized(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint without what mlx-vlm adds to config.json when it quantizes."""
    added = ("quantization", "quantization_config") if "quantization" in checkpoint.config else ()
    return replace(checkpoint, config={name: of for name, of in checkpoint.config.items() if name not in added})
