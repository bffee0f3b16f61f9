"""Masked language models (BERT, RoBERTa, ModernBERT and others) as masked diffusion models, by whole forwards.

Any class in transformers' AutoModelForMaskedLM will do: these encoders predict masked positions in place, and a decode
needs nothing else.
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

# Where the position ids of a class begin: at 0, or after the padding token's id. Other classes count on their own.
_FROM_ZERO = ("bert", "modernbert")
_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert")
# These count on their own, from after the padding token's id, so their table holds that many positions less.
_OWN_COUNT_AFTER_PADDING = (
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
        padding: number of padding columns at the left of each row of the first `begin`.
    """

    def __init__(self, network: PreTrainedModel, padding: Int[Tensor, " batch"] | None = None) -> None:
        self._network = network
        self._counts = takes_positions(network)
        self._padding = padding
        self._rows_to_keep: Tensor | None = None

    def begin(self, ids: Int[Tensor, "batch length"], start: int, stop: int) -> Float[Tensor, "batch window vocab"]:
        """Logits of [start, stop)."""
        if self._padding is not None and self._rows_to_keep is not None:
            self._padding = self._padding[self._rows_to_keep]
        self._rows_to_keep = None
        return self._whole(ids, self._padding, start, stop)

    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Logits of [start, stop)."""
        return self._whole(ids, None if self._padding is None else self._padding[owner], start, stop)

    def keep(self, rows: Int[Tensor, " kept"]) -> None:
        """Keep the padding of these rows."""
        self._rows_to_keep = rows

    @torch.inference_mode()
    def _whole(self, ids: Tensor, padding: Tensor | None, start: int, stop: int) -> Tensor:
        if padding is None:
            padding = ids.new_zeros(len(ids))
        column = torch.arange(ids.shape[1], device=ids.device) - padding[:, None]
        inputs = {"input_ids": ids, "attention_mask": (column >= 0).long()}
        if self._counts:
            # RoBERTa would derive positions from the ids, and treat a padding token in a text as padding
            inputs["position_ids"] = column.clamp(min=0) + first_position(self._network.config)
        logits: Tensor = self._network(**inputs, return_dict=True).logits
        return logits[:, start:stop].to(ids.device)


def takes_positions(network: PreTrainedModel) -> bool:
    """Whether the network accepts position ids; if it does not, rows must not be padded."""
    return network.config.model_type in (*_FROM_ZERO, *_AFTER_PADDING)


def first_position(config: PretrainedConfig) -> int:
    """The position id of the first token."""
    if config.model_type == "mpnet":
        return 2  # for any padding token
    after_padding = config.model_type in (*_AFTER_PADDING, *_OWN_COUNT_AFTER_PADDING)
    return (config.pad_token_id or 0) + 1 if after_padding else 0


def masked_lm_config(checkpoint: Checkpoint) -> PretrainedConfig:
    """The checkpoint's own configuration.

    Raises:
        CheckpointFormat: transformers has no masked language model of this model_type, or the model is a decoder.
    """
    model_type = str(checkpoint.config.get("model_type"))
    if model_type not in CONFIG_MAPPING or CONFIG_MAPPING[model_type] not in MODEL_FOR_MASKED_LM_MAPPING:
        raise CheckpointFormat(
            f"{checkpoint.folder}: transformers has no masked language model of model_type {model_type!r}"
        )
    if checkpoint.config.get("is_decoder"):
        raise CheckpointFormat(
            f"{checkpoint.folder}: is_decoder is true, so each position sees only those before it; an encoder is needed"
        )
    config: PretrainedConfig = CONFIG_MAPPING[model_type].from_dict(own_config(checkpoint))
    return config


def _network(config: PretrainedConfig) -> type[PreTrainedModel]:
    network: Any = MODEL_FOR_MASKED_LM_MAPPING[type(config)]
    network_class: type[PreTrainedModel] = network[0] if isinstance(network, tuple) else network
    return network_class


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
