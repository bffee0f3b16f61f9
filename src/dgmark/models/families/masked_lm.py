"""Masked language models (BERT, RoBERTa, ModernBERT and others) as masked diffusion models, by whole forwards.

Any class that transformers has as AutoModelForMaskedLM: encoders predict masked positions in place, which is all that
a decode asks.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import CONFIG_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, PretrainedConfig, PreTrainedModel

from dgmark.checkpoint.families import MASKED_LM
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.architecture import Architecture, own_config
from dgmark.models.denoiser import CacheMode, Session

# Where the position ids of a class begin: at 0, or behind the padding token's id. Others count for themselves.
_FROM_ZERO = ("bert", "modernbert")
_BEHIND_PADDING = ("roberta", "xlm-roberta", "camembert")
# Those that count for themselves, from behind the padding token's id; their table of positions is shorter by as much.
_COUNT_BEHIND_PADDING = (
    "data2vec-text",
    "esm",
    "ibert",
    "longformer",
    "luke",
    "mpnet",
    "roberta-prelayernorm",
    "xlm-roberta-xl",
    "xmod",
)


class MaskedLmSession:
    """Whole forwards of an encoder.

    Args:
        network: an encoder with a head for masked language modelling.
        padding: columns at the left of each row of the first `begin` that are no part of it.
    """

    def __init__(self, network: PreTrainedModel, padding: Int[Tensor, " batch"] | None = None) -> None:
        self._network = network
        self._counts = takes_positions(network)
        self._padding = padding
        self._kept: Tensor | None = None

    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Logits of [start, stop)."""
        if self._padding is not None and self._kept is not None:
            self._padding = self._padding[self._kept]
        self._kept = None
        return self._whole(ids, self._padding, start, stop)

    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Logits of [start, stop)."""
        return self._whole(ids, None if self._padding is None else self._padding[owner], start, stop)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """These rows' padding goes on."""
        self._kept = rows

    @torch.inference_mode()
    def _whole(self, ids: Tensor, padding: Tensor | None, start: int, stop: int) -> Tensor:
        if padding is None:
            padding = ids.new_zeros(len(ids))
        column = torch.arange(ids.shape[1], device=ids.device) - padding[:, None]
        inputs = {"input_ids": ids, "attention_mask": (column >= 0).long()}
        if self._counts:
            # RoBERTa would count from the ids, and take a padding token in a text for padding
            inputs["position_ids"] = column.clamp(min=0) + first_position(self._network.config)
        logits: Tensor = self._network(**inputs, return_dict=True).logits
        return logits[:, start:stop].to(ids.device)


def takes_positions(network: PreTrainedModel) -> bool:
    """Whether the positions of tokens can be stated; where they cannot, rows must not be padded."""
    return network.config.model_type in (*_FROM_ZERO, *_BEHIND_PADDING)


def first_position(config: PretrainedConfig) -> int:
    """The position id of the first token."""
    if config.model_type == "mpnet":
        return 2  # whatever its padding token is
    behind = config.model_type in (*_BEHIND_PADDING, *_COUNT_BEHIND_PADDING)
    return (config.pad_token_id or 0) + 1 if behind else 0


def masked_lm_config(checkpoint: Checkpoint) -> PretrainedConfig:
    """The checkpoint's own configuration.

    Raises:
        CheckpointFormat: transformers has no class for masked language modelling of this model_type.
    """
    model_type = str(checkpoint.config.get("model_type"))
    if model_type not in CONFIG_MAPPING or CONFIG_MAPPING[model_type] not in MODEL_FOR_MASKED_LM_MAPPING:
        raise CheckpointFormat(
            f"{checkpoint.folder}: transformers has no masked language model of model_type {model_type!r}"
        )
    if checkpoint.config.get("is_decoder"):
        raise CheckpointFormat(f"{checkpoint.folder}: is_decoder is true, so it attends to what stands before alone")
    config: PretrainedConfig = CONFIG_MAPPING[model_type].from_dict(own_config(checkpoint))
    return config


def _network(config: PretrainedConfig) -> type[PreTrainedModel]:
    network: Any = MODEL_FOR_MASKED_LM_MAPPING[type(config)]
    found: type[PreTrainedModel] = network[0] if isinstance(network, tuple) else network
    return found


def _open(network: PreTrainedModel, cache: CacheMode, _: int, padding: Tensor | None) -> Session:
    if cache != "none":
        raise SettingsError(f"an encoder has no keys and values to keep: there is no cache {cache!r}; use cache none")
    return MaskedLmSession(network, padding)


ARCHITECTURE = Architecture(
    MASKED_LM,
    masked_lm_config,
    _network,
    _open,
    unused=r"(^|\.)(pooler|seq_relationship|sop_classifier)\.",  # heads for whole texts
    pads=takes_positions,
    may_untie=True,
)
