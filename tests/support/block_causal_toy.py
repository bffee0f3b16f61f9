"""A toy model that reads a canvas block by block, as LLaDA 2 and SDAR do: no place sees a later block."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dgmark.models.denoiser import BlockOrigin, ConfidenceSource
from dgmark.models.toy import ToyDenoiser


@dataclass(frozen=True)
class BlockCausalToy(ToyDenoiser):
    """The toy, with logits that depend on the canvas up to the end of the place's own block.

    Attributes:
        block: tokens in a block; blocks count from the start of the canvas.
    """

    spread: float = 60.0
    end_ids: tuple[int, ...] = ()
    words: int = 60
    end_bias: float = -1e3
    forbidden_bias: float = -1e3
    block: int = 8
    block_origin: BlockOrigin = "canvas"
    confidence_source: ConfidenceSource = "sampling"

    def __call__(self, ids: Tensor) -> Tensor:
        edges = range(0, ids.shape[1], self.block)
        return torch.cat(
            [super(BlockCausalToy, self).__call__(ids[:, : low + self.block])[:, low:] for low in edges], 1
        )
