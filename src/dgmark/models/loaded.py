"""What every model that `load_model` returns has in common, whichever runtime computes its logits."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from dgmark.checkpoint.families import Family
from dgmark.checkpoint.folder import Checkpoint
from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.errors import CheckpointFormat
from dgmark.models.denoiser import CacheMode, Session, Traits
from dgmark.models.special_ids import find_edit_ids, find_end_ids, find_mask_id


@dataclass(frozen=True, kw_only=True)
class LoadedModel(Traits, ABC):
    """A loaded model with its traits: a `Denoiser` and a `SessionDenoiser`."""

    tokenizer: Tokenizer
    mask_id: int
    end_ids: tuple[int, ...]
    vocab_size: int
    context_length: int
    family: Family

    @torch.inference_mode()
    def __call__(self, ids: Int[Tensor, "batch length"]) -> Float[Tensor, "batch length vocab"]:
        """Logits of every position, as if they were one block.

        A network that reads what stands before a block causally does so in a session that begins at that block.
        """
        return self.session("none").begin(ids, 0, ids.shape[1])

    @abstractmethod
    def session(self, cache: CacheMode, padding: Int[Tensor, " batch"] | None = None) -> Session:
        """Open a session; a cache that the model lacks, or padding that it cannot ignore, is a SettingsError."""


def stated_facts(checkpoint: Checkpoint, tokenizer: Tokenizer, family: Family) -> dict[str, Any]:
    """The fields of `LoadedModel` that the files of a checkpoint state, all but the context length.

    Files that do not fit together, such as a tokenizer with ids for which there are no logits, are a CheckpointFormat
    error.
    """
    if tokenizer.vocab_size > checkpoint.vocab_size:
        raise CheckpointFormat(
            f"{checkpoint.folder}: the tokenizer has {tokenizer.vocab_size} ids, the model {checkpoint.vocab_size}; "
            "they are not of one checkpoint"
        )
    block = family.block_of(checkpoint)
    mask_id, end_ids = find_mask_id(checkpoint, tokenizer, family), find_end_ids(checkpoint, tokenizer, family)
    return {
        "name": checkpoint.name,
        "tokenizer": tokenizer,
        "mask_id": mask_id,
        "end_ids": end_ids,
        "edit_ids": find_edit_ids(checkpoint, family, {mask_id, *end_ids}),
        "vocab_size": checkpoint.vocab_size,
        "family": family,
        "confidence_source": family.confidence_source,
        "block_origin": family.block_origin,
        "block_multiple": block,
        "defaults": family.defaults_with(block),
    }


def has_amx() -> bool:
    """Whether the CPU has matrix units."""
    supported = getattr(torch.cpu, "_is_amx_tile_supported", None)  # not yet public in torch
    return supported is not None and bool(supported())
