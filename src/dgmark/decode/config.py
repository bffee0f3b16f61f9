"""The settings of one decode; invalid ones are refused at once."""

from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from dgmark.errors import BlockLengthError, SettingsError, UnknownStrategy

if TYPE_CHECKING:  # so that the command line reads the settings without importing torch
    from dgmark.models.denoiser import Denoiser

# beyond these limits, float32 cannot tell tokens apart by logits / temperature
_COLDEST, _HOTTEST = 1e-6, 1e6

STRATEGIES = ("random", "confidence", "entropy", "margin", "left_to_right")
NOISES = ("redrawn", "kept")
LOOKAHEAD_PROPOSALS = ("redrawn", "kept")
COMMITS = ("quota", "threshold", "factor")
SCHEDULES = ("llada", "dream")
CACHES = ("none", "prefix", "dual")


class Settings(TypedDict, total=False):
    """The fields of `DecodeConfig` as keyword arguments."""

    length: int
    block_length: int
    strategy: str
    temperature: float
    top_k: int | None
    top_p: float | None
    noise: Literal["redrawn", "kept"]
    lookahead: int
    lookahead_proposals: Literal["redrawn", "kept"]
    commit: Literal["quota", "threshold", "factor"]
    threshold: float
    factor: float
    steps: int | None
    schedule: Literal["llada", "dream"]
    cache: Literal["none", "prefix", "dual"]
    guard: float
    repetition_guard: bool
    round_trip_guard: bool


def _setting(value: Any, help: str, choices: tuple[str, ...] = (), default: str | None = None) -> Any:  # noqa: A002
    """A field with its text for the command line: a sentence of help, the choices, the default in words."""
    shown = default if default is not None or value is None else str(value)
    return field(default=value, metadata={"help": help, "choices": choices, "default": shown})


@dataclass(frozen=True)
class DecodeConfig:
    """How a response is decoded. Marked and unmarked text use the same settings; the mark itself is not among them.

    Attributes:
        length: length of the response in tokens.
        block_length: positions in a block. Blocks are filled left to right, the positions inside a block in any order.
        strategy: the reward that ranks masked positions: "random", "confidence", "entropy", "margin", or
            "left_to_right" (minus the place in the block).
        temperature: temperature of the sampling distribution; 0 takes the most likely token.
        top_k: sample from the k most likely tokens (and those tied with the k-th).
        top_p: sample from the smallest set of most likely tokens that together have at least this probability.
        lookahead: k of the one-step lookahead (paper section 3.4); 1 turns it off. Without a mark there is no
            lookahead.
        lookahead_proposals: with sampling, the tokens that the lookahead drew for the winner are "kept" for the next
            step, or "redrawn", so that the score is an estimate as in the paper.
        commit: how many positions a step commits. "quota": a number that follows from `steps`. "threshold": every
            preferred candidate whose confidence is above `threshold`. "factor": the
            preferred candidates that pass the `factor` rule. The last two commit at least one (Fast-dLLM).
        threshold: confidence limit for commit "threshold", in (0, 1).
        factor: for commit "factor", in (0, 2]: the n-th best is taken while its confidence >= 1 - factor / (n + 1).
        steps: steps of a whole response under commit "quota"; None is one for each token. Blocks share them evenly.
        schedule: how the tokens of a block are spread over its steps: as evenly as possible ("llada"), or as Dream does
            ("dream").
        cache: "none", or "prefix" or "dual", which keep keys and values outside the block between its steps. This is an
            approximation for bidirectional models.
        guard: tau in [0, 1]: a match is preferred only if its reward is at least tau times the best reward (strategy
            entropy: if it is at most ln(1/tau) below). 0, as in the paper, turns the guard off.
        repetition_guard: do not prefer a match that would prolong a loop of the position code's period.
        round_trip_guard: commit last what does not read back: tokens that the tokenizer, given their text, would not
            give again. Where no candidate of a step reads back, they are drawn again without the tokens that do not.
            For byte-level and WordPiece tokenizers; with others it does nothing.
    """

    length: int = _setting(256, "Length of the response in tokens.")
    block_length: int = _setting(
        32, "Tokens in a block; blocks are filled from left to right.", default="the model's own, or 32"
    )
    strategy: str = _setting("confidence", "How a step ranks the masked positions.", STRATEGIES)
    temperature: float = _setting(1.0, "Sampling temperature; 0 always takes the most likely token.")
    top_k: int | None = _setting(None, "Sample from the k most likely tokens only.")
    top_p: float | None = _setting(None, "Sample from the most likely tokens that together have this probability.")
    noise: Literal["redrawn", "kept"] = _setting(
        "redrawn", "Draw every masked position anew at each step, or keep each position's random numbers.", NOISES
    )
    lookahead: int = _setting(
        1, "Choices that each step compares by looking one step ahead, each at the cost of a forward; 1 turns it off."
    )
    lookahead_proposals: Literal["redrawn", "kept"] = _setting(
        "redrawn",
        "With --lookahead: what the next step does with the tokens drawn while looking ahead.",
        LOOKAHEAD_PROPOSALS,
    )
    commit: Literal["quota", "threshold", "factor"] = _setting(
        "quota", "What sets the number of tokens that a step commits.", COMMITS
    )
    threshold: float = _setting(0.9, "With --commit threshold: commit tokens with a confidence above this.")
    factor: float = _setting(1.0, "With --commit factor: larger values commit more tokens in a step.")
    steps: int | None = _setting(
        None, "With --commit quota: steps of the whole response.", default="one for each token"
    )
    schedule: Literal["llada", "dream"] = _setting(
        "llada", "How the tokens of a block are spread over its steps.", SCHEDULES
    )
    cache: Literal["none", "prefix", "dual"] = _setting(
        "none",
        "Which keys and values to keep between steps; approximate for most models.",
        CACHES,
        "the model's own, or none",
    )
    guard: float = _setting(
        0.0, "Prefer a match only if its reward is at least this share of the best; 0 turns the guard off.", default="0"
    )
    repetition_guard: bool = _setting(False, "Do not prefer a match that prolongs a loop.", default="off")
    round_trip_guard: bool = _setting(
        True, "Commit last what would not be read back from the text as the same tokens.", default="on"
    )

    def __post_init__(self) -> None:
        self._check_types()
        self._check_blocks()
        self._check_proposals()
        self._check_lookahead()
        self._check_commits()
        _one_of("cache", self.cache, CACHES)
        if not 0 <= self.guard <= 1:
            raise SettingsError(f"guard {self.guard} is not in 0..1; 0 turns it off")
        if self.guard and self.strategy == "random":
            raise SettingsError(
                "the rewards of strategy random are noise, so a guard has nothing to compare: use guard 0"
            )
        if self.guard and self.strategy == "left_to_right":
            raise SettingsError(
                "the rewards of strategy left_to_right are places and say nothing of quality: use guard 0"
            )

    @classmethod
    def of(cls, model: "Denoiser", **settings: Unpack[Settings]) -> "DecodeConfig":
        """Complete settings with the model's own defaults, then with those of this class.

        Raises:
            SettingsError: a setting is unknown, or invalid for this model or for any.
        """
        from dgmark.models.traits import traits_of

        unknown = sorted(settings.keys() - {one.name for one in fields(cls)})
        if unknown:
            raise SettingsError(f"there is no setting {', '.join(unknown)}; the settings are those of DecodeConfig")
        traits = traits_of(model)
        config = cls(**{**traits.defaults, **settings})
        multiple = traits.block_multiple
        if multiple is not None and multiple % config.block_length:
            raise BlockLengthError(
                f"{traits.name} attends in blocks of {multiple}: block length {config.block_length} does not divide "
                "it; use one that does"
            )
        return config

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is taken (temperature 0)."""
        return self.temperature == 0

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain JSON values."""
        return asdict(self)

    def _check_types(self) -> None:
        for name in ("length", "block_length", "lookahead", "top_k", "steps"):
            value = getattr(self, name)
            if type(value) is not int and not (value is None and name in ("top_k", "steps")):
                raise SettingsError(f"{name.replace('_', ' ')} {value!r} is not a whole number")
        for name in ("temperature", "top_p", "threshold", "factor", "guard"):
            value = getattr(self, name)
            if type(value) not in (int, float) and not (value is None and name == "top_p"):
                raise SettingsError(f"{name.replace('_', ' ')} {value!r} is not a number")

        if type(self.repetition_guard) is not bool:
            raise SettingsError(f"repetition guard {self.repetition_guard!r} is neither True nor False")

    def _check_blocks(self) -> None:
        if self.length < 1 or self.block_length < 1:
            raise SettingsError(f"length {self.length} and block length {self.block_length} must be at least 1")
        if self.length % self.block_length:
            below, above = self.length // self.block_length, self.length // self.block_length + 1
            raise BlockLengthError(
                f"length {self.length} is not a multiple of block length {self.block_length}: "
                f"use {below * self.block_length or self.block_length} or {above * self.block_length}"
            )

    def _check_proposals(self) -> None:
        if self.strategy not in STRATEGIES:
            raise UnknownStrategy(f"strategy {self.strategy!r} is not one of: {', '.join(STRATEGIES)}")
        if self.temperature != 0 and not _COLDEST <= self.temperature <= _HOTTEST:
            raise SettingsError(f"temperature {self.temperature} is neither 0 nor in {_COLDEST:g}..{_HOTTEST:g}")
        if self.top_k is not None and self.top_k < 1:
            raise SettingsError(f"top-k {self.top_k} keeps no token; give at least 1")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise SettingsError(f"top-p {self.top_p} is not in (0, 1]")
        if self.greedy and (self.top_k is not None or self.top_p is not None):
            raise SettingsError(
                "temperature 0 takes the most likely token: top-k and top-p have no meaning; leave them out"
            )
        _one_of("noise", self.noise, NOISES)
        if self.strategy == "margin" and not self.greedy:
            raise SettingsError("strategy margin proposes the most likely token: it needs temperature 0")

    def _check_lookahead(self) -> None:
        _one_of("lookahead proposals", self.lookahead_proposals, LOOKAHEAD_PROPOSALS)
        if self.lookahead < 1:
            raise SettingsError(f"lookahead {self.lookahead} looks at no candidate; 1 turns it off")
        if self.lookahead == 1:
            return
        if self.strategy == "random":
            raise SettingsError(
                "the rewards of strategy random are noise, so lookahead has no best candidates: use lookahead 1"
            )

    def _check_commits(self) -> None:
        _one_of("commit", self.commit, COMMITS)
        _one_of("schedule", self.schedule, SCHEDULES)
        if not 0 < self.threshold < 1:
            raise SettingsError(f"threshold {self.threshold} is not between 0 and 1")
        if not 0 < self.factor <= 2:
            raise SettingsError(f"factor {self.factor} is not in (0, 2]")
        if self.commit != "quota" and self.strategy != "confidence":
            raise SettingsError(f"commit {self.commit} compares confidences: it needs strategy confidence")
        if self.commit != "quota" and self.steps is not None:
            raise SettingsError(f"commit {self.commit} takes as many steps as it needs: leave steps out")
        if self.steps is None:
            return
        blocks = self.length // self.block_length
        if not blocks <= self.steps <= self.length or self.steps % blocks:
            raise SettingsError(
                f"steps {self.steps} must be a multiple of the {blocks} blocks, and at most one a token ({self.length})"
            )


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise SettingsError(f"{name} {value!r} is not one of: {', '.join(known)}")
