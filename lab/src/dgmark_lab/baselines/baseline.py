"""What all baselines have in common: a name, options as plain values, and a detector built on a score."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Int

from dgmark.checkpoint.tokenizer import Tokenizer
from dgmark.detection.detector import DEFAULT_FPR
from dgmark.watermark.key import WatermarkKey, check_key
from dgmark_lab.baselines.detector import SchemeDetector
from dgmark_lab.baselines.prf import SubKey
from dgmark_lab.baselines.score import Score

if TYPE_CHECKING:
    from dgmark.decode.steering import Steering
    from dgmark.models.denoiser import Denoiser


@dataclass(frozen=True)
class Baseline(ABC):
    """A watermarking scheme. Its options are the fields of the subclass; generator and detector need the same ones."""

    name: ClassVar[str]
    # decoding settings to use where the user gives none
    defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def to_dict(self) -> dict[str, Any]:
        """Name and options as plain JSON values."""
        options = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return {"name": self.name, **options}

    def subkey(self, key: WatermarkKey, use: str = "") -> SubKey:
        """Derive the key's subkey for this scheme; a scheme that needs several gives each a `use`.

        Raises:
            SettingsError: the key has no secret.
        """
        return SubKey.of(key, f"{self.name}/{use}" if use else self.name)

    @abstractmethod
    def steering(self, key: WatermarkKey, model: "Denoiser") -> "Steering":
        """Return how the scheme steers the decoding loop on this model under this key.

        Raises:
            SettingsError: the key has no secret.
        """

    @abstractmethod
    def score(
        self, key: WatermarkKey, ids: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"], fpr: float
    ) -> Score:
        """Score tokens at their positions (0-based, ascending).

        Raises:
            SettingsError: the key has no secret.
        """

    def detector(
        self, key: WatermarkKey, *, fpr: float = DEFAULT_FPR, tokenizer: Tokenizer | str | None = None
    ) -> SchemeDetector:
        """Return a detector of this scheme with these options under `key`.

        Raises:
            SettingsError: `key` is not a key or has no secret, or `fpr` is not a valid rate.
            TokenizerMismatch: the tokenizer is not the key's.
        """
        check_key(key)
        self.subkey(key)
        return SchemeDetector(self.to_dict(), self.score, key, fpr=fpr, tokenizer=tokenizer)
