"""The settings of training a narrator: one TOML file, checked before anything starts."""

from pathlib import Path

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from dgmark.errors import SettingsError
from training.config import Record, Schedule, Section, Share, read_toml, what_is_wrong


class Sampling(Section):
    """How a token of the base's own texts is drawn."""

    temperature: PositiveFloat = 0.7
    top_p: float = Field(default=0.92, gt=0, le=1, description="the most likely tokens with this share are kept")
    top_k: PositiveInt = Field(default=50, description="and at most so many")
    penalty: PositiveFloat = Field(
        default=1.1, description="lowers the logits of tokens that the text has (Keskar et al. 2019)"
    )


class OwnTexts(Section):
    """The base's own texts."""

    texts: PositiveInt = Field(default=960, description="sampled; those that repeat themselves are left out")
    batch: PositiveInt = Field(default=96, description="sampled together")
    length: PositiveInt = Field(default=192, description="tokens, at most")
    most_repeated: Share = Field(default=0.1, description="4-grams that stood in the text before")
    seed: int = 0
    sampling: Sampling = Sampling()


class AdapterSettings(Section):
    """What is trained beside the base."""

    rank: PositiveInt = 32


class BlockRows(Section):
    """How texts become rows."""

    context: PositiveInt = Field(description="tokens before the response, at most")
    response: PositiveInt = Field(description="tokens of a response")
    block_lengths: tuple[PositiveInt, ...] = Field(description="one is drawn for each row")
    late_block_lengths: tuple[PositiveInt, ...] = Field(default=(), description="instead, from step late_from on")
    late_from: int = Field(default=0, ge=0)
    batch: PositiveInt = Field(description="rows of a step")
    own_share: Share = Field(description="rows of the base's own texts; the others are of the documents")
    start_share: Share = Field(default=0.5, description="rows that begin where the text does")
    mixture: tuple[str, ...] = Field(default=(), description="documents whose id begins so; all if empty")

    @model_validator(mode="after")
    def _blocks_fit(self) -> "BlockRows":
        for name in ("block_lengths", "late_block_lengths"):
            lengths = getattr(self, name)
            if any(self.response % block for block in lengths):
                raise ValueError(f"{name} {list(lengths)} must divide response {self.response}")
        if not self.block_lengths:
            raise ValueError("block_lengths is empty")
        return self

    def lengths_at(self, step: int) -> tuple[int, ...]:
        """The block lengths of a step (from 0)."""
        late = self.late_block_lengths and step >= self.late_from
        return self.late_block_lengths if late else self.block_lengths


class BlockMasking(Section):
    """Which tokens of a block are masked."""

    ordered_share: Share = Field(description="rows whose tokens are kept about from the left")
    spreads: tuple[PositiveFloat, ...] = Field(description="positions by which that order is blurred; one a block")
    largest_weight: PositiveFloat = Field(description="cap of block length / masked tokens")


class AdapterOptimizer(Section):
    """AdamW."""

    lr: PositiveFloat
    mask_lr: PositiveFloat = Field(description="of the mask embedding")
    betas: tuple[float, float] = (0.9, 0.98)
    clip_norm: PositiveFloat = 1.0


class NarratorConfig(Section):
    """All settings."""

    seed: int = 0
    own_texts: OwnTexts = OwnTexts()
    soft_targets: bool = Field(
        default=False,
        description="where a block shows nothing behind a token of the base, learn the base's odds, not the one drawn",
    )
    adapter: AdapterSettings
    rows: BlockRows
    masking: BlockMasking
    optimizer: AdapterOptimizer
    schedule: Schedule
    record: Record


def read_narrator_config(path: Path) -> NarratorConfig:
    """The settings of a TOML file.

    Raises:
        SettingsError: no such file, no TOML, or an invalid key or value.
    """
    try:
        return NarratorConfig.model_validate(read_toml(path))
    except ValidationError as error:
        raise SettingsError(f"{path}: {what_is_wrong(error)}") from error
