"""The settings of one decode, refused at once where they cannot be meant."""

from dataclasses import asdict, dataclass
from typing import Any

from dgmark.errors import BlockLengthError, SettingsError, UnknownStrategy

# beyond these, logits / temperature leaves the range in which float32 still tells tokens apart
_COLDEST, _HOTTEST = 1e-6, 1e6

STRATEGIES = ("random", "confidence", "entropy", "margin")


@dataclass(frozen=True)
class DecodeConfig:
    """How a response is decoded. The mark is no setting here: marked and unmarked text share every one of these.

    Attributes:
        length: response tokens.
        block_length: positions of a block; blocks are filled left to right, positions within one in any order.
        strategy: the reward that orders positions: "random", "confidence", "entropy" or "margin".
        temperature: of the sampling distribution; 0 takes the most likely token.
        top_k: sample among the k most likely tokens (and those tied with the k-th).
        top_p: sample among the fewest most likely tokens that hold at least this probability.
    """

    length: int = 256
    block_length: int = 32
    strategy: str = "confidence"
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if self.length < 1 or self.block_length < 1:
            raise SettingsError(f"length {self.length} and block length {self.block_length} must be at least 1")
        if self.length % self.block_length:
            below, above = self.length // self.block_length, self.length // self.block_length + 1
            raise BlockLengthError(
                f"length {self.length} is not a multiple of block length {self.block_length}: "
                f"use {below * self.block_length or self.block_length} or {above * self.block_length}"
            )
        if self.strategy not in STRATEGIES:
            raise UnknownStrategy(f"strategy {self.strategy!r} is not one of: {', '.join(STRATEGIES)}")
        if self.temperature != 0 and not _COLDEST <= self.temperature <= _HOTTEST:
            raise SettingsError(f"temperature {self.temperature} is neither 0 nor in {_COLDEST:g}..{_HOTTEST:g}")
        if self.top_k is not None and self.top_k < 1:
            raise SettingsError(f"top-k {self.top_k} keeps no token; give at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise SettingsError(f"top-p {self.top_p} is not in (0, 1]")
        if self.greedy and (self.top_k is not None or self.top_p is not None):
            raise SettingsError("temperature 0 takes the most likely token: top-k and top-p have no meaning there")
        if self.strategy == "margin" and not self.greedy:
            raise SettingsError("strategy margin proposes the most likely token: it needs temperature 0")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken instead of a sample."""
        return self.temperature == 0

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        return asdict(self)
