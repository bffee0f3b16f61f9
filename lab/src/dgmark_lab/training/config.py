"""The settings of training runs: one TOML file for each, validated before anything starts."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from dgmark.errors import SettingsError
from dgmark_lab.toml_files import Table, read_toml

FOLDER = Path(__file__).parent
Kind = Literal["storyteller", "judge"]
Share = Annotated[float, Field(ge=0, le=1)]


class LlamaNetwork(Table):
    """The sizes of a Llama: bidirectional as a storyteller, causal as a judge."""

    width: PositiveInt
    blocks: PositiveInt
    heads: PositiveInt
    hidden: PositiveInt = Field(description="width of the SwiGLU layer")
    context: PositiveInt = Field(description="largest number of positions")


class Rows(Table):
    """Settings of rows: how documents become rows."""

    length: PositiveInt = Field(description="tokens of a row")
    batch: PositiveInt = Field(description="rows of a step")
    end_share: Share = Field(
        default=0.12, description="share of full rows that are cut after a sentence and filled with end tokens"
    )
    short_share: Share = Field(default=0.0, description="share of steps whose rows are cut to one of short_lengths")
    short_lengths: tuple[PositiveInt, ...] = ()

    @model_validator(mode="after")
    def _lengths(self) -> "Rows":
        if any(short > self.length for short in self.short_lengths):
            raise ValueError(f"short_lengths {list(self.short_lengths)} must not exceed length {self.length}")
        if self.short_share > 0 and not self.short_lengths:
            raise ValueError("short_share needs short_lengths")
        return self


class Masking(Table):
    """The masked diffusion objective."""

    smallest_t: float = Field(default=1e-3, ge=0, lt=1, description="times are drawn from (smallest_t, 1]")
    prefix_share: Share = Field(default=0.5, description="share of rows that keep a prefix unmasked")
    prefix_min: PositiveInt = 8
    prefix_max: PositiveInt = 96


class Schedule(Table):
    """A trapezoid: linear warm-up, constant, linear decay to zero. All numbers are steps."""

    steps: PositiveInt
    warmup_steps: PositiveInt
    decay_steps: PositiveInt

    @model_validator(mode="after")
    def _fits(self) -> "Schedule":
        if self.warmup_steps + self.decay_steps > self.steps:
            raise ValueError(f"warm-up {self.warmup_steps} and decay {self.decay_steps} exceed {self.steps} steps")
        return self


class OptimizerSettings(Table):
    """Muon for the matrices of the blocks, AdamW for the rest."""

    muon_lr: PositiveFloat = 0.02
    adamw_lr: PositiveFloat = 2e-3
    weight_decay: float = Field(default=0.0, ge=0)
    clip_norm: PositiveFloat = 1.0
    ema_decay: float = Field(default=0.999, ge=0, lt=1)


class Record(Table):
    """How often to log, evaluate and save; it may change when a run is resumed."""

    log_steps: PositiveInt = 10
    evaluate_steps: PositiveInt = 500
    evaluate_rows: PositiveInt = 64
    save_seconds: PositiveFloat = 300.0


class RunConfig(Table):
    """The settings that every run has."""

    seed: int = Field(default=0, ge=0)
    schedule: Schedule
    record: Record = Record()


class TrainingConfig(RunConfig):
    """All settings of a run of the storyteller, or of the judge, which masks nothing."""

    kind: Kind
    network: LlamaNetwork
    rows: Rows
    masking: Masking | None = None
    optimizer: OptimizerSettings = OptimizerSettings()

    @model_validator(mode="after")
    def _fits(self) -> "TrainingConfig":
        if (self.masking is not None) != (self.kind == "storyteller"):
            raise ValueError("a storyteller needs the section [masking]; a judge has none")
        if self.network.width % (2 * self.network.heads):
            raise ValueError(f"width {self.network.width} is not even for each of {self.network.heads} heads")
        if self.masking is not None and self.masking.prefix_min > self.masking.prefix_max:
            raise ValueError(f"prefix_min is more than prefix_max {self.masking.prefix_max}")
        if self.rows.length > self.network.context:
            raise ValueError(f"rows of {self.rows.length} tokens exceed the context {self.network.context}")
        return self


def read_config(path: Path, kind: Kind) -> TrainingConfig:
    """Read the settings of a TOML file that describes this kind of model.

    Raises:
        SettingsError: the file is missing, not TOML, has an invalid key or value, or describes another kind of model.
    """
    config = read_toml(path, TrainingConfig)
    if config.kind != kind:
        raise SettingsError(f"{path} describes a {config.kind}: run `dgmark-lab train {config.kind}` with it")
    return config


# ---- the narrator ----


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


class BlockRows(Table):
    """Settings of rows: how texts become rows."""

    context: PositiveInt = Field(description="most tokens before the response")
    response: PositiveInt = Field(description="tokens of a response")
    block_lengths: tuple[PositiveInt, ...] = Field(min_length=1, description="one is drawn for each row")
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
    clip_norm: PositiveFloat = 1.0


class NarratorConfig(RunConfig):
    """All settings of a stage."""

    own_texts: OwnTexts = OwnTexts()
    soft_targets: bool = Field(
        default=False,
        description="at a token of the base with nothing unmasked after it in its block, learn the base's odds",
    )
    rank: PositiveInt = Field(default=32, description="rank of the adapters")
    rows: BlockRows
    masking: BlockMasking
    optimizer: AdapterOptimizer
