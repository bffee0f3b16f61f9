"""The settings of one decode: each field states its type, its limits and its help once.

The options of the command line, the fields of HTTP requests and the reference page are made from `setting_fields`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypedDict, get_args

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from dgmark.arguments.checks import instance, refused_in_words, shown
from dgmark.errors import SettingsError

if TYPE_CHECKING:  # so that the command line reads the settings without importing torch
    from dgmark.models.denoiser import Denoiser

# beyond these limits, float32 cannot tell tokens apart by logits / temperature
_MIN_TEMPERATURE, _MAX_TEMPERATURE = 1e-6, 1e6

Settings = dict[str, Any]
"""Fields of `DecodeConfig` by name."""

Strategy = Literal["random", "confidence", "entropy", "margin", "left_to_right"]
Noise = Literal["redrawn", "fixed"]
Commit = Literal["quota", "threshold"]
Schedule = Literal["llada", "dream"]
Cache = Literal["none", "prefix", "dual"]
Edits = Literal["replace", "levenshtein"]


class DecodeSettings(TypedDict, total=False):
    """The fields of `DecodeConfig` as arguments, so that type checkers and editors know them."""

    length: int
    block_length: int
    strategy: Strategy
    temperature: float
    top_k: int | None
    top_p: float | None
    alpha: float | None
    bias: float
    noise: Noise
    lookahead: int
    commit: Commit
    threshold: float
    edit_threshold: float | None
    edits: Edits
    steps: int | None
    schedule: Schedule
    cache: Cache
    min_relative_reward: float
    round_trip_check: bool


_TEMPERATURES: dict[str, Any] = {
    "anyOf": [{"const": 0}, {"type": "number", "minimum": _MIN_TEMPERATURE, "maximum": _MAX_TEMPERATURE}]
}


def _warm_enough(temperature: float) -> float:
    if 0 < temperature < _MIN_TEMPERATURE:
        raise ValueError(f"must be 0 or at least {_MIN_TEMPERATURE:g}")
    return temperature


def _default_text(text: str) -> dict[str, Any]:
    """The default in words, where the value of the field does not say what happens."""
    return {"default_text": text}


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False))
class DecodeConfig:
    """How a response is decoded. Marked and unmarked text use the same settings; the mark itself is not among them.

    `setting_fields` and the page "Decoding options" describe each field.

    Raises:
        SettingsError: a setting is unknown or invalid, or two do not go together.
    """

    length: int = Field(default=256, ge=1, description="Length of the response in tokens.")
    block_length: int = Field(
        default=32,
        ge=1,
        description="Tokens in a block; blocks are filled from left to right. The last one may be shorter.",
        json_schema_extra=_default_text("the model's own, or 32"),
    )
    strategy: Strategy = Field(default="confidence", description="How a step ranks the masked positions.")
    temperature: Annotated[float, AfterValidator(_warm_enough), WithJsonSchema(_TEMPERATURES)] = Field(
        default=1.0, ge=0, le=_MAX_TEMPERATURE, description="Sampling temperature; 0 takes the most likely token."
    )
    top_k: int | None = Field(default=None, ge=1, description="Sample from the k most likely tokens only.")
    top_p: float | None = Field(
        default=None, gt=0, le=1, description="Sample from the most likely tokens that together have this probability."
    )
    alpha: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="How far a keyed draw goes towards the key's bits: 1 is as far as an unbiased draw can go, 0 is a "
        "plain draw.",
        json_schema_extra=_default_text("1 under rule bigram, 0 under rule position"),
    )
    bias: float = Field(
        default=0.0,
        ge=0,
        le=20,
        description="Multiply a token's probability by e^bias for each bit of 1 that it completes. It marks at "
        "temperature 0 too, and changes what the model says.",
    )
    noise: Noise = Field(
        default="redrawn", description="Draw every masked position anew at each step, or fix its random numbers."
    )
    lookahead: int = Field(
        default=1,
        ge=1,
        description="Choices that each step compares by looking one step ahead, each at the cost of a forward; 1 turns "
        "it off.",
    )
    commit: Commit = Field(default="quota", description="What sets how many tokens a step commits.")
    threshold: float = Field(
        default=0.9, gt=0, lt=1, description="With commit threshold: commit tokens with a confidence above this."
    )
    edit_threshold: float | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="Replace a committed token of the block by another of a higher confidence than this (LLaDA 2.1). "
        "An edit may not lose a match.",
        json_schema_extra=_default_text("tokens stay as they are"),
    )
    edits: Edits = Field(
        default="replace",
        description="Which edits there are: an edit threshold's replacements, or deletions and insertions, too "
        "(LLaDA 2.2).",
        json_schema_extra=_default_text("the model's own, or replace"),
    )
    steps: int | None = Field(
        default=None,
        ge=1,
        description="With commit quota: steps of the whole response, shared evenly by its blocks.",
        json_schema_extra=_default_text("one for each token"),
    )
    schedule: Schedule = Field(
        default="llada", description="How the tokens of a block are spread over its steps: evenly, or as Dream does."
    )
    cache: Cache = Field(
        default="none",
        description="Which keys and values to keep between steps; approximate for most models.",
        json_schema_extra=_default_text("the model's own, or none"),
    )
    min_relative_reward: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="Prefer a match only if its reward is at least this share of the best; 0 prefers all.",
        json_schema_extra=_default_text("0"),
    )
    round_trip_check: bool = Field(
        default=True,
        description="Commit last the tokens that do not survive re-tokenization of the text.",
        json_schema_extra=_default_text("on"),
    )

    @classmethod
    def of(cls, model: "Denoiser", **settings: Any) -> "DecodeConfig":
        """Complete settings with the model's own defaults, then with those of this class.

        Raises:
            SettingsError: a setting is unknown, or invalid for this model or for any.
        """
        from dgmark.models.denoiser import check_model, traits_of

        check_model(model)
        traits = traits_of(model)
        config = cls(**{**traits.defaults, **settings})
        multiple = traits.block_multiple
        if multiple is not None and multiple % config.block_length:
            raise SettingsError(
                f"{traits.name} attends in blocks of {multiple}: block length {config.block_length} does not divide "
                "it; use one that does"
            )
        if config.inserts and traits.edit_ids is None:
            raise SettingsError(f"{traits.name} neither deletes nor inserts: use edits replace")
        if config.inserts and multiple not in (None, config.block_length):
            raise SettingsError(
                f"edits levenshtein decodes whole blocks of {multiple}: use that block length, or edits replace"
            )
        return config

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken (temperature 0)."""
        return self.temperature == 0

    @property
    def inserts(self) -> bool:
        """Whether tokens may be deleted and inserted."""
        return self.edits == "levenshtein"

    @property
    def block_count(self) -> int:
        """The blocks of the response; the last one is shorter if the length is not a multiple of the block length."""
        return -(-self.length // self.block_length)

    def to_dict(self) -> Settings:
        """The settings as plain JSON values."""
        return asdict(self)

    _refuse = refused_in_words(lambda _, error: "; ".join(map(_problem, error.errors())))

    @model_validator(mode="after")
    def _check_combinations(self) -> "DecodeConfig":
        self._check_strategy()
        self._check_steps()
        return self

    def _check_strategy(self) -> None:
        if self.greedy and (self.top_k is not None or self.top_p is not None):
            raise SettingsError(
                "temperature 0 takes the most likely token: top-k and top-p have no meaning; leave them out"
            )
        if self.strategy == "margin" and not self.greedy:
            raise SettingsError("strategy margin proposes the most likely token: it needs temperature 0")
        if self.lookahead > 1 and self.strategy == "random":
            raise SettingsError(
                "the rewards of strategy random are noise, so lookahead has no best candidates: use lookahead 1"
            )
        if self.min_relative_reward and self.strategy in ("random", "left_to_right"):
            raise SettingsError(
                f"the rewards of strategy {self.strategy} say nothing of quality, so min_relative_reward has nothing "
                "to compare: use 0"
            )
        if self.commit == "threshold" and self.strategy != "confidence":
            raise SettingsError("commit threshold compares confidences: it needs strategy confidence")
        if self.edit_threshold is not None and self.strategy != "confidence":
            raise SettingsError("edits compare confidences: with an edit threshold, use strategy confidence")
        if self.inserts:
            needed = {"commit": "threshold", "lookahead": 1, "min_relative_reward": 0}
            for name, value in needed.items():
                if getattr(self, name) != value:
                    raise SettingsError(f"edits levenshtein needs {name} {value}: use that, or edits replace")

    def _check_steps(self) -> None:
        if self.steps is None:
            return
        if self.commit == "threshold":
            raise SettingsError("commit threshold takes as many steps as it needs: leave steps out")
        most = self.block_count * self.block_length
        if self.steps > most or self.steps % self.block_count:
            raise SettingsError(
                f"steps {self.steps} must be a multiple of the {self.block_count} blocks, "
                f"and at most {most}, one a token"
            )


def _pydantic_fields() -> dict[str, FieldInfo]:
    return DecodeConfig.__pydantic_fields__  # type: ignore[attr-defined,no-any-return]


def settings_of(config: DecodeConfig | None, settings: Mapping[str, Any]) -> Settings:
    """The settings of a call that takes a whole `DecodeConfig` or single settings; both are a SettingsError."""
    if config is None:
        return dict(settings)
    if settings:
        raise SettingsError(
            f"config holds all settings, and {', '.join(settings)} came beside it: put them into the config, with "
            "dataclasses.replace, or leave the config out"
        )
    return instance("config", config, DecodeConfig).to_dict()


class SettingField(NamedTuple):
    """A field of `DecodeConfig`, for those who make options, request fields or pages of it.

    Attributes:
        name: its name; the option is the same with hyphens.
        type: its type with the limits of its values, as pydantic takes it.
        choices: the values of a field that has a list of them; else ().
        default: its default.
        default_text: the default in words; None if there is nothing to say.
        help: what it does, in a sentence or two.
    """

    name: str
    type: Any
    choices: tuple[str, ...]
    default: Any
    default_text: str | None
    help: str


def setting_fields() -> list[SettingField]:
    """The fields of `DecodeConfig` in their order."""
    fields = []
    for name, field in _pydantic_fields().items():
        annotation: Any = field.annotation
        extra: Any = field.json_schema_extra or {}
        default_text = extra.get("default_text", None if field.default is None else str(field.default))
        fields.append(
            SettingField(
                name=name,
                type=Annotated[(annotation, *field.metadata)] if field.metadata else annotation,
                choices=get_args(annotation) if isinstance(field.default, str) else (),
                default=field.default,
                default_text=default_text,
                help=str(field.description),
            )
        )
    return fields


def _problem(error: Any) -> str:
    """What is wrong with one setting, and what is allowed."""
    place, names = error["loc"][0], list(_pydantic_fields())
    name = names[place] if isinstance(place, int) else place
    if error["type"] == "unexpected_keyword_argument":
        return f"there is no setting {name}; the settings are {', '.join(names)}"
    allowed = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{name} {shown(error['input'])} {allowed}"
