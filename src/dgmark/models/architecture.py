"""How a family is run: the class of transformers, its configuration, the names of its tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig, PreTrainedModel

from dgmark.checkpoint.families import Family
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat

Config = TypeVar("Config", bound=PretrainedConfig)

# fields that most decoders have in common with transformers' classes
SIZES = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("max_position_embeddings", "rms_norm_eps"),
)

# Fields of config.json that say what to load and run and do not describe the network.
_NOT_PASSED_ON = (
    "quantization_config",
    "transformers_weights",
    "attn_implementation",
    "_attn_implementation",
    "experts_implementation",
    "_experts_implementation",
)


def own_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """The fields of config.json that describe the network, also in nested configurations (Gemma 3 has one for text)."""

    def network_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: network_fields(value) if isinstance(value, dict) else value
            for name, value in fields.items()
            if name not in _NOT_PASSED_ON
        }

    return network_fields(checkpoint.config)


def stated_theta(checkpoint: Checkpoint) -> float | None:
    """The base of the rotary frequencies, which stands in `rope_parameters` (transformers 5), beside it, or nowhere."""
    places = (checkpoint.config, checkpoint.config.get("rope_parameters") or {})
    stated = {float(place["rope_theta"]) for place in places if place.get("rope_theta") is not None}
    if len(stated) > 1:
        raise CheckpointFormat(
            f"{checkpoint.folder / 'config.json'} states rope_theta as {' and as '.join(map(str, sorted(stated)))}: "
            "leave the one that the model was trained with"
        )
    return next(iter(stated), None)


def decoder_config(
    kind: type[Config],
    checkpoint: Checkpoint,
    names: Mapping[str, str],
    supported: Mapping[str, tuple[Any, ...]],
    **fields: Any,
) -> Config:
    """A configuration for a decoder class of transformers, with attention left to the masks of the session.

    Args:
        kind: the class of the configuration.
        checkpoint: the checkpoint, whose vocabulary, tied embeddings and base of the rotary frequencies are taken over.
        names: fields of the configuration, and their names in config.json.
        supported: switches in config.json with the values that can be loaded, first the one of a missing switch.
        fields: further fields of the configuration; they go before those that are taken over.
    """
    source = checkpoint.config
    fields = dict(zip(names, checkpoint.require(*names.values()), strict=True)) | fields
    for name, values in supported.items():
        if source.get(name, values[0]) not in values:
            raise CheckpointFormat(f"{checkpoint.folder}: {name} is {source[name]!r}, only {values[0]!r} can be loaded")
    if (theta := stated_theta(checkpoint)) is None:
        raise CheckpointFormat(f"{checkpoint.folder / 'config.json'} lacks 'rope_theta': fetch the checkpoint again")
    rotary = {"rope_type": "default", **(source.get("rope_parameters") or {}), "rope_theta": theta}
    rotary |= fields.pop("rope_parameters", {})
    tied = fields.pop("tie_word_embeddings", source.get("tie_word_embeddings", False))
    build: Any = kind  # each class has fields of its own
    config: Config = build(
        **fields, vocab_size=checkpoint.vocab_size, tie_word_embeddings=bool(tied), rope_parameters=rotary
    )
    config.is_causal = False
    return config


def causal_config(checkpoint: Checkpoint) -> PretrainedConfig:
    """The checkpoint's own configuration, for transformers' autoregressive class of its model_type.

    It is a CheckpointFormat error that transformers has no such class.
    """
    model_type = str(checkpoint.config.get("model_type"))
    if model_type not in CONFIG_MAPPING or CONFIG_MAPPING[model_type] not in MODEL_FOR_CAUSAL_LM_MAPPING:
        code = "; dgmark runs no code from a checkpoint" if "auto_map" in checkpoint.config else ""
        raise CheckpointFormat(
            f"{checkpoint.folder}: transformers has no autoregressive model of model_type {model_type!r}{code}"
        )
    fields, theta = own_config(checkpoint), stated_theta(checkpoint)
    rotary = fields.get("rope_parameters") or {}
    by_layers = any(isinstance(part, dict) for part in rotary.values())  # as Gemma 3 has them, each with its own base
    if theta is not None and rotary and not by_layers:  # beside them transformers reads no base
        fields["rope_parameters"] = {**rotary, "rope_theta": theta}
    config: PretrainedConfig = CONFIG_MAPPING[model_type].from_dict(fields)
    return config


def causal_class(config: PretrainedConfig) -> type[PreTrainedModel]:
    """Transformers' decoder class of a configuration."""
    entry: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    network: type[PreTrainedModel] = entry[0] if isinstance(entry, tuple) else entry
    return network


@dataclass(frozen=True)
class Architecture:
    """How the checkpoints of a family become networks.

    Attributes:
        family: the family.
        config: makes the configuration of transformers' class from the checkpoint's own.
        network: finds transformers' class for a configuration.
        renamings: names of tensors in the published layout (regular expressions), and their names in the class.
    """

    family: Family
    config: Callable[[Checkpoint], PretrainedConfig]
    network: Callable[[PretrainedConfig], type[PreTrainedModel]] = causal_class
    renamings: Mapping[str, str] = field(default_factory=dict)

    def native_config(self, checkpoint: Checkpoint) -> PretrainedConfig:
        """The configuration of transformers' class; one that it does not support is a CheckpointFormat error."""
        path = checkpoint.folder / "config.json"
        if checkpoint.config.get("transformers_weights") is not None:
            # transformers would load the named file, even if it is a pickle
            raise CheckpointFormat(
                f"{path} names a file of weights (transformers_weights); only model.safetensors and its shards are "
                "loaded"
            )
        if checkpoint.config.get("quantization_config"):
            raise CheckpointFormat(f"{path}: the weights are quantized; take the checkpoint in bf16, fp16 or fp32")
        try:
            return self.config(checkpoint)
        except CheckpointFormat:
            raise
        except Exception as error:  # transformers' classes raise all kinds at invalid values
            raise CheckpointFormat(f"{path} is invalid: {str(error) or type(error).__name__}") from error
