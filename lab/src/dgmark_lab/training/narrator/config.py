"""The settings of training a narrator: one TOML file, validated before anything starts."""

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from dgmark_lab.toml_files import Table
from dgmark_lab.training.config import RunConfig, Share


class Sampling(Table):
    """How to draw a token of the base's own texts."""

    temperature: PositiveFloat = 0.7
    top_p: float = Field(default=0.92, gt=0, le=1, description="keep the most likely tokens up to this probability")
    top_k: PositiveInt = Field(default=50, description="keep at most this many tokens")
    penalty: PositiveFloat = Field(
        default=1.1, description="lowers the logits of tokens that are in the text (Keskar et al. 2019)"
    )


class OwnTexts(Table):
    """The base's own texts."""

    texts: PositiveInt = Field(default=960, description="number of sampled texts; repetitive ones are left out")
    batch: PositiveInt = Field(default=96, description="texts sampled together")
    length: PositiveInt = Field(default=192, description="most tokens of a text")
    most_repeated: Share = Field(default=0.1, description="largest share of repeated 4-grams")
    seed: int = 0
    sampling: Sampling = Sampling()


class AdapterSettings(Table):
    """Settings of the adapters."""

    rank: PositiveInt = 32


class BlockRows(Table):
    """Settings of rows: how texts become rows."""

    context: PositiveInt = Field(description="most tokens before the response")
    response: PositiveInt = Field(description="tokens of a response")
    block_lengths: tuple[PositiveInt, ...] = Field(description="one is drawn for each row")
    late_block_lengths: tuple[PositiveInt, ...] = Field(default=(), description="block_lengths from step late_from on")
    late_from: int = Field(default=0, ge=0)
    batch: PositiveInt = Field(description="rows of a step")
    own_share: Share = Field(description="share of rows from the base's own texts; the others are from documents")
    start_share: Share = Field(default=0.5, description="share of rows that begin at the start of the text")
    mixture: tuple[str, ...] = Field(default=(), description="prefixes of the ids of documents to use; empty for all")

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
        """Return the block lengths of a step (from 0)."""
        late = self.late_block_lengths and step >= self.late_from
        return self.late_block_lengths if late else self.block_lengths


class BlockMasking(Table):
    """Which tokens of a block are masked."""

    ordered_share: Share = Field(description="share of rows that keep tokens roughly from left to right")
    spreads: tuple[PositiveFloat, ...] = Field(description="noise of that order in positions; one is drawn per block")
    largest_weight: PositiveFloat = Field(description="upper limit of block length / masked tokens")


class AdapterOptimizer(Table):
    """Settings of AdamW."""

    lr: PositiveFloat
    mask_lr: PositiveFloat = Field(description="learning rate of the mask embedding")
    betas: tuple[float, float] = (0.9, 0.98)
    clip_norm: PositiveFloat = 1.0


class NarratorConfig(RunConfig):
    """All settings of a stage."""

    own_texts: OwnTexts = OwnTexts()
    soft_targets: bool = Field(
        default=False,
        description="at a token of the base with nothing unmasked after it in its block, learn the base's odds",
    )
    adapter: AdapterSettings
    rows: BlockRows
    masking: BlockMasking
    optimizer: AdapterOptimizer
