"""Masked language models (BERT, RoBERTa, ModernBERT and others) as masked diffusion models, by whole forwards.

Any class in transformers' AutoModelForMaskedLM will do: these encoders predict masked positions in place, and a decode
needs nothing else.
"""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers import MODEL_FOR_MASKED_LM_MAPPING, PretrainedConfig, PreTrainedModel

from dgmark.checkpoint.families import MASKED_LM
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.architecture import Architecture, auto_class, auto_config
from dgmark.models.denoiser import CacheMode
from dgmark.models.sessions.rows import RowSession, padded_inputs

# Where the position ids of a class begin: at 0, or after the padding token's id. Other classes count on their own, most
# of them from after the padding token's id, so their table holds that many positions less.
_FROM_ZERO = ("bert", "modernbert")
_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert")


class EncoderSession(RowSession):
    """Whole forwards of an encoder with a head for masked language modelling.

    Args:
        network: the encoder with its head.
        cache: "none".
        padding: number of padding columns at the left of each row of the first `begin`.

    Raises:
        SettingsError: a cache is asked for.
    """

    def __init__(
        self, network: PreTrainedModel, cache: CacheMode, padding: Int[Tensor, " batch"] | None = None
    ) -> None:
        if cache != "none":
            raise SettingsError(
                f"an encoder has no keys and values to keep: there is no cache {cache!r}; use cache none"
            )
        super().__init__(padding)
        self._network = network

    @torch.inference_mode()
    def step(
        self, ids: Int[Tensor, "canvases length"], owner: Int[Tensor, " canvases"], start: int, stop: int
    ) -> Float[Tensor, "canvases window vocab"]:
        """Logits of [start, stop)."""
        padding = self._padding_of(owner)
        inputs = padded_inputs(ids.new_zeros(len(ids)) if padding is None else padding, ids.shape[1])
        # RoBERTa would derive positions from the ids, and treat a padding token in a text as padding
        positions = inputs.pop("position_ids") + first_position(self._network.config)
        if takes_positions(self._network):
            inputs["position_ids"] = positions
        inputs["attention_mask"] = inputs["attention_mask"].long()
        logits: Tensor = self._network(input_ids=ids, **inputs, return_dict=True).logits
        return logits[:, start:stop].to(ids.device)


def takes_positions(network: PreTrainedModel) -> bool:
    """Whether the network accepts position ids; if it does not, rows must not be padded."""
    return network.config.model_type in (*_FROM_ZERO, *_AFTER_PADDING)


def first_position(config: PretrainedConfig) -> int:
    """The position id of the first token."""
    return 0 if config.model_type in _FROM_ZERO else (config.pad_token_id or 0) + 1


def masked_lm_config(checkpoint: Checkpoint) -> PretrainedConfig:
    """The checkpoint's own configuration.

    Raises:
        CheckpointFormat: transformers has no masked language model of this model_type, or the model is a decoder.
    """
    config = auto_config(checkpoint, MODEL_FOR_MASKED_LM_MAPPING, "masked language model")
    if checkpoint.config.get("is_decoder"):
        raise CheckpointFormat(
            f"{checkpoint.folder}: is_decoder is true, so each position sees only those before it; an encoder is needed"
        )
    return config


ARCHITECTURE = Architecture(
    MASKED_LM,
    masked_lm_config,
    partial(auto_class, classes=MODEL_FOR_MASKED_LM_MAPPING),
    unused=r"(^|\.)(pooler|seq_relationship|sop_classifier)\.",  # heads for whole texts
)
