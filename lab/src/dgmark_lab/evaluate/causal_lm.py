"""Autoregressive models, which judge texts: any class that transformers knows as AutoModelForCausalLM.

They are not denoisers and decode nothing here; their checkpoints are read under the same rules as all others.
"""

from functools import partial

from torch import Tensor
from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, PreTrainedModel

from dgmark.checkpoint.families import Family
from dgmark.errors import SettingsError
from dgmark.models.architecture import Architecture, auto_class, auto_config
from dgmark.models.denoiser import CacheMode, Session

CAUSAL_LM = Family(
    name="causal-lm", title="Llama, Gemma and others, as judges", model_types=(), architectures=(), mask_tokens=()
)


def _open(_network: PreTrainedModel, _cache: CacheMode, _mask_id: int, _padding: Tensor | None) -> Session:
    raise SettingsError("an autoregressive model can only judge texts; decode with a diffusion model")


ARCHITECTURE = Architecture(
    CAUSAL_LM,
    partial(auto_config, classes=MODEL_FOR_CAUSAL_LM_MAPPING, kind="autoregressive model"),
    partial(auto_class, MODEL_FOR_CAUSAL_LM_MAPPING),
    _open,
    may_untie=True,
)
