"""The settings of a training run: one TOML file, validated before anything starts."""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from dgmark.errors import SettingsError

Kind = Literal["storyteller", "judge"]
Share = Annotated[float, Field(ge=0, le=1)]

ROUNDING = 1e-9  # error of sums of shares written in decimals


class Section(BaseModel):
    """A table of a settings file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LlamaNetwork(Section):
    """A Llama: as masked diffusion model ("llada", bidirectional) or as autoregressive one ("llama")."""

    type: Literal["llada", "llama"]
    width: PositiveInt
    blocks: PositiveInt
    heads: PositiveInt
    hidden: PositiveInt = Field(description="width of the SwiGLU layer")
    context: PositiveInt = Field(description="largest number of positions")
    rope_theta: PositiveFloat = 10_000.0

    @model_validator(mode="after")
    def _heads_divide(self) -> "LlamaNetwork":
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} is not an even number of dimensions for each of {self.heads} heads")
        return self


class TokenizerSettings(Section):
    """The tokenizer: the built-in model's, or a new one trained on the data."""

    source: Literal["storyteller", "new"] = "storyteller"
    vocab_size: int = Field(default=8192, ge=300, le=65_536, description="size of a new tokenizer")


class Rows(Section):
    """Settings of rows: how documents become rows."""

    length: PositiveInt = Field(description="tokens of a row")
    batch: PositiveInt = Field(description="rows of a step")
    end_share: Share = Field(
        default=0.12, description="share of full rows that are cut after a sentence and filled with end tokens"
    )
    short_share: Share = Field(default=0.0, description="share of steps whose rows are cut to one of short_lengths")
    short_lengths: tuple[PositiveInt, ...] = ()
    pack_share: Share = Field(
        default=0.0,
        description="share of the rows with an early end that are filled with beginnings of other documents",
    )
    mixture: dict[str, PositiveFloat] = Field(
        default={}, description="share of rows by prefix of the document's id; the other documents get the rest"
    )

    @model_validator(mode="after")
    def _lengths(self) -> "Rows":
        if any(short > self.length for short in self.short_lengths):
            raise ValueError(f"short_lengths {list(self.short_lengths)} must not exceed length {self.length}")
        if (self.short_share > 0) != bool(self.short_lengths):
            raise ValueError("short_share and short_lengths go together: give both or neither")
        if sum(self.mixture.values()) > 1 + ROUNDING:
            raise ValueError(f"the shares in mixture sum to {sum(self.mixture.values()):g}, more than 1")
        return self


class Masking(Section):
    """The masked diffusion objective."""

    smallest_t: float = Field(default=1e-3, ge=0, lt=1, description="times are drawn from (smallest_t, 1]")
    prefix_share: Share = Field(default=0.5, description="share of rows that keep a prefix unmasked")
    prefix_min: PositiveInt = 8
    prefix_max: PositiveInt = 96

    @model_validator(mode="after")
    def _prefix(self) -> "Masking":
        if self.prefix_min > self.prefix_max:
            raise ValueError(f"prefix_min {self.prefix_min} is more than prefix_max {self.prefix_max}")
        return self


class Schedule(Section):
    """A trapezoid: linear warm-up, constant, linear decay to zero. All numbers are steps."""

    steps: PositiveInt
    warmup_steps: PositiveInt
    decay_steps: PositiveInt

    @model_validator(mode="after")
    def _fits(self) -> "Schedule":
        if self.warmup_steps + self.decay_steps > self.steps:
            raise ValueError(f"warm-up {self.warmup_steps} and decay {self.decay_steps} exceed {self.steps} steps")
        return self

    @property
    def decay_start(self) -> int:
        """The first step of the decay."""
        return self.steps - self.decay_steps


class OptimizerSettings(Section):
    """Muon for the matrices of the blocks, AdamW for the rest."""

    muon_lr: PositiveFloat = 0.02
    muon_momentum: Share = 0.95
    adamw_lr: PositiveFloat = 2e-3
    adamw_betas: tuple[Share, Share] = (0.9, 0.95)
    weight_decay: float = Field(default=0.0, ge=0)
    clip_norm: PositiveFloat = 1.0
    ema_decay: float = Field(default=0.999, ge=0, lt=1)


class Speed(Section):
    """Settings that change only the speed; they may change when a run is resumed."""

    micro_rows: PositiveInt | None = Field(default=None, description="rows of one forward; by default the whole batch")
    autocast: Literal["auto", "bf16", "off"] = "auto"
    compile: bool = False
    workers: PositiveInt = Field(default=2, description="threads that prepare batches ahead")


class Record(Section):
    """How often to log, evaluate and save."""

    log_steps: PositiveInt = 10
    evaluate_steps: PositiveInt = 500
    evaluate_rows: PositiveInt = 64
    save_seconds: PositiveFloat = 300.0


class Card(Section):
    """Text of the model card that no measurement provides."""

    name: str
    purpose: str
    data: str
    data_licence: str
    licence: str = "Apache-2.0"


class TrainingConfig(Section):
    """All settings of a run."""

    kind: Kind
    seed: int = Field(default=0, ge=0)
    network: LlamaNetwork
    tokenizer: TokenizerSettings = TokenizerSettings()
    rows: Rows
    masking: Masking | None = None
    schedule: Schedule
    optimizer: OptimizerSettings = OptimizerSettings()
    speed: Speed = Speed()
    record: Record = Record()
    card: Card

    @model_validator(mode="after")
    def _fits(self) -> "TrainingConfig":
        needed = "llama" if self.kind == "judge" else "llada"
        if self.network.type != needed:
            raise ValueError(f"a {self.kind} needs network.type {needed}, not {self.network.type}")
        if (self.masking is not None) != (self.kind == "storyteller"):
            raise ValueError("a storyteller needs the section [masking]; a judge has none")
        if self.rows.length > self.network.context:
            raise ValueError(f"rows of {self.rows.length} tokens exceed the context {self.network.context}")
        if self.speed.micro_rows is not None and self.rows.batch % self.speed.micro_rows:
            raise ValueError(f"speed.micro_rows {self.speed.micro_rows} does not divide rows.batch {self.rows.batch}")
        shortest = min((*self.rows.short_lengths, self.rows.length))
        if self.masking is not None and self.masking.prefix_max >= shortest:
            raise ValueError(
                f"prefix_max {self.masking.prefix_max} leaves nothing to mask in rows of {shortest} tokens"
            )
        return self


# Sections that may change when a run is resumed.
FREE_SECTIONS = ("speed", "record", "card")


def read_config(path: Path, kind: Kind) -> TrainingConfig:
    """Read the settings of a TOML file.

    Raises:
        SettingsError: the file is missing, not TOML, has an invalid key or value, or describes another kind of model.
    """
    config = check_config(read_toml(path), str(path))
    if config.kind != kind:
        raise SettingsError(
            f"{path} describes a {config.kind}: use python -m dgmark_lab.training.{config.kind} with it"
        )
    return config


def read_toml(path: Path) -> dict[str, Any]:
    """Read the content of a settings file.

    Raises:
        SettingsError: the file is missing or not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}; give --config a TOML file") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not valid TOML: {error}") from error


def describe_problems(error: ValidationError) -> str:
    """List every invalid key and the reason."""
    return "; ".join(f"{'.'.join(map(str, one['loc'])) or 'file'}: {one['msg']}" for one in error.errors())


def check_config(content: dict[str, Any], source: str) -> TrainingConfig:
    """Validate the settings of a parsed TOML file.

    Raises:
        SettingsError: a key or value is invalid; the message lists each and the reason.
    """
    try:
        return TrainingConfig.model_validate(content)
    except ValidationError as error:
        raise SettingsError(f"{source}: {describe_problems(error)}") from error


def differing_keys(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """List the dotted names of the values in which two settings, as plain dicts, differ."""
    names: list[str] = []
    for key in [*old, *(key for key in new if key not in old)]:
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            names += differing_keys(before, after, f"{prefix}{key}.")
        elif before != after:
            names.append(prefix + key)
    return names
