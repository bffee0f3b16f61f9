"""What it takes to run a family: the class of transformers, its configuration, the names of its tensors."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from dgmark.checkpoint import Checkpoint
from dgmark.errors import CheckpointFormat
from dgmark.families import Family
from dgmark.models.denoiser import CacheMode, Session

# (network, cache, mask id, padding) -> the forwards of one decode; the mask id is for filling a canvas up.
OpenSession = Callable[[PreTrainedModel, CacheMode, int, Tensor | None], Session]


@dataclass(frozen=True)
class Architecture:
    """How the checkpoints of a family become networks.

    Attributes:
        family: the family.
        config: the configuration of transformers' class, from the checkpoint's own.
        network: transformers' class for a configuration.
        open_session: the forwards of a decode.
        renamings: names of tensors in the published layout (regular expressions) to those of the class.
        unused: names of tensors (a regular expression) that a checkpoint may hold for other uses than decoding.
        pads: whether sessions of a network take padding.
    """

    family: Family
    config: Callable[[Checkpoint], PretrainedConfig]
    network: Callable[[PretrainedConfig], type[PreTrainedModel]]
    open_session: OpenSession
    renamings: Mapping[str, str] = field(default_factory=dict)
    unused: str | None = None
    pads: Callable[[PreTrainedModel], bool] = lambda _: True

    def native_config(self, checkpoint: Checkpoint) -> PretrainedConfig:
        """The configuration of transformers' class.

        Raises:
            CheckpointFormat: the checkpoint's own lacks a field, or states what the class cannot be.
        """
        try:
            config = self.config(checkpoint)
        except (ValueError, TypeError, StrictDataclassError) as error:
            raise CheckpointFormat(f"{checkpoint.folder / 'config.json'} cannot be meant: {error}") from error
        if "quantization_config" in checkpoint.config:
            config.quantization_config = checkpoint.config["quantization_config"]
        return config
