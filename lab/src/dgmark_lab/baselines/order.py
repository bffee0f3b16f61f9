"""dgMARK itself as one scheme among the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import DEFAULT_FPR, Detector
from dgmark.watermark.key import WatermarkKey

if TYPE_CHECKING:
    from dgmark.decode.steering import Steering
    from dgmark.models.denoiser import Denoiser


@dataclass(frozen=True)
class DgMark:
    """dgMARK: candidates in their position's matching set are committed first; the key holds its settings."""

    name: ClassVar[str] = "dgmark"
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def to_dict(self) -> dict[str, Any]:
        """The name; there are no options."""
        return {"name": self.name}

    def steering(self, key: WatermarkKey, model: "Denoiser") -> "Steering":
        """The key's matching sets; the logits stay unchanged."""
        from dgmark.decode.matching import KeyMatching
        from dgmark.decode.steering import Steering
        from dgmark.models.denoiser import traits_of

        return Steering(KeyMatching(key, traits_of(model).device))

    def detector(
        self, key: WatermarkKey, *, fpr: float = DEFAULT_FPR, tokenizer: Tokenizer | str | None = None
    ) -> Detector:
        """Return `dgmark.Detector` with its own defaults."""
        return Detector(key, tokenizer=tokenizer, fpr=fpr)
