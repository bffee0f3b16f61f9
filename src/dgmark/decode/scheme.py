"""The interface of watermarking schemes other than dgMARK, as generation uses it."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from dgmark.decode.steering import Steering
from dgmark.models.denoiser import Denoiser
from dgmark.watermark.key import WatermarkKey


@runtime_checkable
class Scheme(Protocol):
    """A watermarking scheme; `dgmark_lab.baselines.baseline` makes one by name."""

    @property
    def name(self) -> str:
        """The scheme's name in rows."""
        ...

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Decoding settings for those that the user leaves out."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The name and the options as plain JSON values."""
        ...

    def steering(self, key: WatermarkKey, model: Denoiser) -> Steering:
        """How the scheme steers the loop on this model with this key."""
        ...
