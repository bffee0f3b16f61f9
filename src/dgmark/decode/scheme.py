"""What generation asks of a watermarking scheme; `dgmark.lab.baselines` makes them."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from dgmark.decode.steering import Steering
from dgmark.models.denoiser import Denoiser
from dgmark.watermark.key import WatermarkKey


@runtime_checkable
class Scheme(Protocol):
    """A watermarking scheme as generation asks for it; `dgmark.lab.baselines.scheme` makes them."""

    @property
    def name(self) -> str:
        """What rows call it."""
        ...

    @property
    def defaults(self) -> Mapping[str, Any]:
        """Decoding settings to use where the user gives none."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Name and options as plain JSON values."""
        ...

    def steering(self, key: WatermarkKey, model: Denoiser) -> Steering:
        """How it steers the loop on this model under this key."""
        ...
