"""The specs of published watermarks: their options, which generator and detector must agree on. Knows no test.

What an option does stands at its field; a docstring says what a spec is, and what a field has no room for.
"""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from dgmark.errors import SettingsError
from dgmark.watermark.spec import WatermarkSpec
from dgmark_lab.baselines.prf import PRF_VERSION

MAX_OFFSET = 16

Form = Literal["normal", "predictive", "bidirectional", "predictive-bidirectional"]


def _option(default: Any, what: str, allowed: str, *, default_text: str | None = None, **limits: Any) -> Any:
    """A field that is an option: what it does, the values that it takes, its default in words, and its limits."""
    extra: dict[str, Any] = {"help": what} if default_text is None else {"help": what, "default_text": default_text}
    return Field(default, description=allowed, json_schema_extra=extra, **limits)


def _delta(default: float = 2.0) -> Any:
    return _option(default, "Bias on the logits.", "in 0..100", ge=0, le=100, allow_inf_nan=False)


def _new_only() -> Any:
    # as dgMARK does; in none of the papers
    return _option(False, "Favour only pairs that the text does not hold yet.", "true or false")


@dataclass(frozen=True, kw_only=True)
class PublishedSpec(WatermarkSpec):
    """What the specs of published watermarks share: the hash that their keyed bits come from."""

    prf: ClassVar[str] = PRF_VERSION


@dataclass(frozen=True, kw_only=True)
class GreenListSpec(PublishedSpec):
    """What watermarks with green lists share; with two neighbours the bias is added once for each."""

    gamma: float = _option(0.5, "Share of green tokens, or of green pairs.", "above 0 and below 1", gt=0, lt=1)
    delta: float = _delta()


@dataclass(frozen=True, kw_only=True)
class KgwSpec(GreenListSpec):
    """KGW: tokens on the green list of the token to their left are biased.

    Kirchenbauer et al., ICML 2023, Algorithm 2, with a context of one token. By default it decodes left to right, as in
    dgMARK's paper. Under any other strategy a position is biased only once its left neighbour is committed: the naive
    order-agnostic form.
    """

    rule: Literal["kgw"] = "kgw"


@dataclass(frozen=True, kw_only=True)
class UnigramSpec(GreenListSpec):
    """Unigram: tokens on the key's one green list are biased everywhere (Zhao et al., ICLR 2024)."""

    rule: Literal["unigram"] = "unigram"


@dataclass(frozen=True, kw_only=True)
class DMarkSpec(GreenListSpec):
    """DMark: some (left, right) pairs of tokens are green, and a position is biased by its known neighbours.

    Wu et al. 2025.

    Attributes:
        form: "normal" uses the left neighbour if it is committed; "predictive" predicts its likeliest token where it
            is masked; "bidirectional" uses the committed neighbours on both sides; "predictive-bidirectional" also
            predicts the left one where neither is committed.
    """

    rule: Literal["dmark"] = "dmark"
    form: Form = _option(
        "predictive-bidirectional",
        "Which neighbours a bias looks at, known or predicted.",
        f"one of: {', '.join(get_args(Form))}",
    )
    new_only: bool = _new_only()


@dataclass(frozen=True, kw_only=True)
class LrDwmSpec(GreenListSpec):
    """LR-DWM: each neighbour has a green list of its own, and a position is biased to those of its known neighbours.

    Raban, Fetaya, Chechik 2026 (arXiv 2601.12376). The lists of left and of right neighbours come from two hash keys.
    """

    rule: Literal["lr-dwm"] = "lr-dwm"
    new_only: bool = _new_only()


@dataclass(frozen=True, kw_only=True)
class PatternMarkSpec(PublishedSpec):
    """PATTERN-MARK with two alternating parts of the vocabulary: position i is biased to part (i + start) mod 2."""

    rule: Literal["pattern-mark"] = "pattern-mark"
    delta: float = _delta()
    pattern_length: int = _option(2, "Length in tokens of the patterns 0101... and 1010...", "in 2..16", ge=2, le=16)


def _split(value: Any) -> Any:
    """A list of numbers may be written as "-1,1"."""
    return value.split(",") if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True)
class GloaguenSpec(GreenListSpec):
    """KGW in expectation over the neighbours that are still masked: the energy's gradient tilts the logits by delta.

    A context is hashed as the sum of its tokens (SumHash).
    """

    rule: Literal["gloaguen"] = "gloaguen"
    offsets: Annotated[tuple[int, ...], BeforeValidator(_split)] = _option(
        (-1,), "Neighbours whose tokens make the context, such as -1,1.", "a list of whole numbers, such as -1 or -1,1"
    )
    top_k: int = _option(50, "Tokens and contexts of a position that an expectation runs over.", "at least 1", ge=1)

    def check(self) -> None:
        """Refuse offsets that are not neighbours."""
        super().check()
        if not self.offsets or len(set(self.offsets)) < len(self.offsets):
            raise SettingsError(f"offsets {self.offsets} are not distinct neighbours; give some, such as -1 or -1,1")
        if 0 in self.offsets or max(map(abs, self.offsets)) > MAX_OFFSET:
            raise SettingsError(f"offsets {self.offsets} must be neighbours at most {MAX_OFFSET} away, and not 0")


@dataclass(frozen=True, kw_only=True)
class CdMarkSpec(PublishedSpec):
    """CDMArk for a known message: each token's entry of one keyed vector is added to its logit everywhere.

    `delta` is the bias of an entry of one standard deviation.
    """

    rule: Literal["cdmark"] = "cdmark"
    delta: float = _delta()


@dataclass(frozen=True, kw_only=True)
class GumbelSpec(PublishedSpec):
    """Gumbel-max: the key's uniforms of (position mod period, token) decide the draw at a position.

    The detector tries all shifts of a period, and corrects p for them.
    """

    rule: Literal["gumbel"] = "gumbel"
    period: int = _option(256, "Positions after which the uniforms repeat.", "in 1..65536", ge=1, le=2**16)


@dataclass(frozen=True, kw_only=True)
class TangoSpec(PublishedSpec):
    """TANGO: tokens whose colour sums to 0 with that of a committed token two places away, on either side, are biased.

    Colours cut a keyed projection of the token embeddings, which are those of the key's model if none is named.
    """

    rule: Literal["tango"] = "tango"
    delta: float = _delta(5.0)
    classes: int = _option(3, "Number of colours.", "in 2..16", ge=2, le=16)
    lag: int = _option(2, "Distance of the two tokens of a pair.", "in 1..16", ge=1, le=16)
    colours: Literal["embeddings", "hash"] = _option(
        "embeddings",
        "Colours by the token embeddings, or drawn for each token alone (hash).",
        "one of: embeddings, hash",
    )
    embeddings: str = _option("", "Model whose embeddings are projected.", "a text", default_text="the key's")
    new_only: bool = _new_only()


@dataclass(frozen=True, kw_only=True)
class ReplayMarkSpec(PublishedSpec):
    """ReplayMark: draws are repeated where readings of the context by the model disagree, until the key's side comes.

    Readings mask what is left of the longest text, and each leaves out another part. The draw after the last repeated
    one is taken as it comes. A place is a carrier if its split exceeds `least_split`; a split of 1 is even. The key's
    model reads if no reader is named.
    """

    rule: Literal["replaymark"] = "replaymark"
    text_length: int = _option(256, "Tokens of the longest marked text.", "at least 1", ge=1)
    block: int = _option(32, "Tokens of a block.", "at least 1", ge=1)
    draw_temperature: float = _option(0.8, "Temperature of the draws.", "above 0", gt=0, allow_inf_nan=False)
    draws: int = _option(16, "Most draws at a carrier.", "at least 1", ge=1)
    readings: int = _option(8, "Readings of the context of a block.", "in 2..64", ge=2, le=64)
    least_split: float = _option(0.5, "Evenness that makes a place a carrier.", "in 0..1", ge=0, le=1)
    least_likely: float = _option(
        0.05, "Least probability of a repeated draw, over that of the likeliest token.", "in 0..1", ge=0, le=1
    )
    reader: str = _option("", "Model that reads the context.", "a text", default_text="the key's")
