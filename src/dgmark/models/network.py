"""A checkpoint as a `Denoiser`: network, tokenizer and special ids, used as its family requires."""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import PreTrainedModel

from dgmark.checkpoint.families import Family
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.models.architecture import Architecture
from dgmark.models.denoiser import CacheMode, Session
from dgmark.models.traits import Traits


@dataclass(frozen=True)
class NetworkDenoiser:
    """A loaded model; it is a `Denoiser`, a `WindowDenoiser` and a `SessionDenoiser`."""

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
        """The model's family."""
        return self.architecture.family

    @property
    def device(self) -> torch.device:
        """The device on which the model takes its ids."""
        return self.network.device

    @property
    def dtype(self) -> torch.dtype:
        """Number format of the weights and of the forward."""
        return self.network.dtype

    @property
    def traits(self) -> Traits:
        """The traits of the model, from its family and its network."""
        return Traits(
            name=self.name,
            device=self.device,
            dtype=self.dtype,
            quantization=self.quantization,
            defaults=self.family.defaults,
            confidence_source=self.family.confidence_source,
            block_origin="response" if self.family.block_multiple is None else "canvas",
            block_multiple=self.family.block_multiple,
            pads=self.architecture.pads(self.network),
        )

    @torch.inference_mode()
    def __call__(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Logits of every position."""
        return self.window(ids, 0, ids.shape[1])

    @torch.inference_mode()
    def window(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Logits of the positions [start, stop); the output matrix is applied to these alone."""
        return self.session("none").begin(ids, start, stop)

    def session(self, cache: CacheMode, padding: Int[Tensor, " batch"] | None = None) -> Session:
        """Open a session, which runs the forwards of one decode.

        Raises:
            SettingsError: the family has no such cache, or cannot ignore padding.
        """
        return self.architecture.open_session(self.network, cache, self.mask_id, padding)
