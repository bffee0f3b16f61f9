"""A checkpoint as a `Denoiser`: network, tokenizer and special ids, under the rules of its family."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from dgmark.checkpoint.families import Family
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.models.architecture import Architecture
from dgmark.models.denoiser import BlockOrigin, CacheMode, ConfidenceSource, Session


@dataclass(frozen=True)
class NetworkDenoiser:
    """A loaded model: `Denoiser`, `WindowDenoiser` and `SessionDenoiser`."""

    name: str
    tokenizer: Tokenizer
    mask_id: int
    end_ids: tuple[int, ...]
    vocab_size: int
    context_length: int
    network: PreTrainedModel = field(repr=False)
    architecture: Architecture = field(repr=False)
    quantization: str | None = None

    @property
    def family(self) -> Family:
        """The family it belongs to."""
        return self.architecture.family

    @property
    def device(self) -> torch.device:
        """Where it takes its ids."""
        return self.network.device

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the weights and of the forward."""
        return self.network.dtype

    @property
    def defaults(self) -> Mapping[str, Any]:
        """See `dgmark.models.denoiser.defaults_of`."""
        return self.family.defaults

    @property
    def confidence_source(self) -> ConfidenceSource:
        """See `dgmark.models.denoiser.confidence_of`."""
        return self.family.confidence_source

    @property
    def block_origin(self) -> BlockOrigin:
        """See `dgmark.models.denoiser.block_origin_of`."""
        return "response" if self.block_multiple is None else "canvas"

    @property
    def block_multiple(self) -> int | None:
        """See `dgmark.models.denoiser.block_multiple_of`."""
        return self.family.block_multiple

    @property
    def sees_ahead(self) -> bool:
        """See `dgmark.models.denoiser.sees_ahead_of`."""
        return self.family.sees_ahead

    @property
    def pads(self) -> bool:
        """See `dgmark.models.denoiser.pads_of`."""
        return self.architecture.pads(self.network)

    @torch.inference_mode()
    def __call__(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Logits of every position."""
        return self.window(ids, 0, ids.shape[1])

    @torch.inference_mode()
    def window(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Logits of the positions [start, stop): the output matrix is applied to these alone."""
        return self.session("none").begin(ids, start, stop)

    def session(self, cache: CacheMode, padding: Int[Tensor, " batch"] | None = None) -> Session:
        """The forwards of one decode.

        Raises:
            SettingsError: the family has no such cache, or cannot leave padding out.
        """
        return self.architecture.open_session(self.network, cache, self.mask_id, padding)
