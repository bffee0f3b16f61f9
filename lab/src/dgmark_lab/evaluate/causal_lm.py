"""Autoregressive models, which judge texts: any class that transformers knows as AutoModelForCausalLM.

They are not denoisers and decode nothing here; their checkpoints are read under the same rules as all others.
"""

from typing import Any

from torch import Tensor
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, PretrainedConfig, PreTrainedModel

from dgmark.checkpoint.families import Family
from dgmark.checkpoint.folder import Checkpoint
from dgmark.errors import CheckpointFormat, SettingsError
from dgmark.models.architecture import Architecture, own_config
from dgmark.models.denoiser import CacheMode, Session

CAUSAL_LM = Family(
    name="causal-lm", title="Llama, Gemma and others, as judges", model_types=(), architectures=(), mask_tokens=()
)


def causal_lm_config(checkpoint: Checkpoint) -> PretrainedConfig:
    """Build transformers' configuration from the checkpoint's.

    Raises:
        CheckpointFormat: transformers has no autoregressive class for this model_type.
    """
    model_type = str(checkpoint.config.get("model_type"))
    if model_type not in CONFIG_MAPPING or CONFIG_MAPPING[model_type] not in MODEL_FOR_CAUSAL_LM_MAPPING:
        code = "; dgmark runs no code from a checkpoint" if "auto_map" in checkpoint.config else ""
        raise CheckpointFormat(
            f"{checkpoint.folder}: transformers has no autoregressive model for model_type {model_type!r}{code}"
        )
    config: PretrainedConfig = CONFIG_MAPPING[model_type].from_dict(own_config(checkpoint))
    return config


def _network(config: PretrainedConfig) -> type[PreTrainedModel]:
    entry: Any = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
    network: type[PreTrainedModel] = entry[0] if isinstance(entry, tuple) else entry
    return network


def _open(_network: PreTrainedModel, _cache: CacheMode, _mask_id: int, _padding: Tensor | None) -> Session:
    raise SettingsError("an autoregressive model can only judge texts; decode with a diffusion model")


ARCHITECTURE = Architecture(CAUSAL_LM, causal_lm_config, _network, _open, may_untie=True)
