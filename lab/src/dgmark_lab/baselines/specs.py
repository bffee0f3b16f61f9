"""The specs of published watermarks: their options, which generator and detector must agree on. Knows no test."""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass

from dgmark.errors import SettingsError
from dgmark.watermark.spec import WatermarkSpec
from dgmark_lab.baselines.prf import PRF_VERSION

MAX_OFFSET = 16

Form = Literal["normal", "predictive", "bidirectional", "predictive-bidirectional"]
# share of green pairs; bias on the logits
Gamma = Annotated[
    float,
    Field(
        gt=0,
        lt=1,
        description="above 0 and below 1",
        json_schema_extra={"help": "Share of green tokens, or of green pairs."},
    ),
]
Delta = Annotated[
    float,
    Field(
        ge=0,
        le=100,
        allow_inf_nan=False,
        description="in 0..100",
        json_schema_extra={"help": "Bias on the logits."},
    ),
]
NewOnly = Annotated[
    bool,
    Field(
        description="true or false", json_schema_extra={"help": "Favour only pairs that the text does not hold yet."}
    ),
]


@dataclass(frozen=True, kw_only=True)
class PublishedSpec(WatermarkSpec):
    """What the specs of published watermarks share: the hash that their keyed bits come from."""

    prf: ClassVar[str] = PRF_VERSION


@dataclass(frozen=True, kw_only=True)
class GreenListSpec(PublishedSpec):
    """What watermarks with green lists share.

    Attributes:
        gamma: share of green tokens, or of green pairs.
        delta: bias on the logits of green tokens; with two neighbours it is added once for each.
    """

    gamma: Gamma = 0.5
    delta: Delta = 2.0


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
        new_only: favour only pairs that the text does not hold yet (as dgMARK does; not in the paper).
    """

    rule: Literal["dmark"] = "dmark"
    form: Annotated[
        Form,
        Field(
            description=f"one of: {', '.join(get_args(Form))}",
            json_schema_extra={"help": "Which neighbours a bias looks at, known or predicted."},
        ),
    ] = "predictive-bidirectional"
    new_only: NewOnly = False


@dataclass(frozen=True, kw_only=True)
class LrDwmSpec(GreenListSpec):
    """LR-DWM: each neighbour has a green list of its own, and a position is biased to those of its known neighbours.

    Raban, Fetaya, Chechik 2026 (arXiv 2601.12376). The lists of left and of right neighbours come from two hash keys.

    Attributes:
        new_only: favour only pairs that the text does not hold yet (as dgMARK does; not in the paper).
    """

    rule: Literal["lr-dwm"] = "lr-dwm"
    new_only: NewOnly = False


@dataclass(frozen=True, kw_only=True)
class PatternMarkSpec(PublishedSpec):
    """PATTERN-MARK with two alternating parts of the vocabulary: position i is biased to part (i + start) mod 2.

    Attributes:
        delta: bias on the logits of the position's part.
        pattern_length: m, the length in tokens of the target patterns, 0101... and 1010...
    """

    rule: Literal["pattern-mark"] = "pattern-mark"
    delta: Delta = 2.0
    pattern_length: Annotated[
        int,
        Field(
            ge=2,
            le=16,
            description="in 2..16",
            json_schema_extra={"help": "Length in tokens of the alternating patterns."},
        ),
    ] = 2


def _split(value: Any) -> Any:
    """A list of numbers may be written as "-1,1"."""
    return value.split(",") if isinstance(value, str) else value


@dataclass(frozen=True, kw_only=True)
class GloaguenSpec(PublishedSpec):
    """KGW in expectation over the neighbours that are still masked: the energy's gradient tilts the logits.

    Attributes:
        gamma: share of green tokens.
        delta: strength of the tilt.
        offsets: the neighbours whose tokens make the context, which is hashed as their sum (SumHash).
        top_k: how many tokens and how many contexts of a position the expectation runs over.
    """

    rule: Literal["gloaguen"] = "gloaguen"
    gamma: Gamma = 0.5
    delta: Delta = 2.0
    offsets: Annotated[
        tuple[int, ...],
        BeforeValidator(_split),
        Field(
            description="a list of whole numbers, such as -1 or -1,1",
            json_schema_extra={"help": "Neighbours whose tokens make the context, such as -1,1."},
        ),
    ] = (-1,)
    top_k: Annotated[
        int,
        Field(
            ge=1,
            description="at least 1",
            json_schema_extra={"help": "Tokens and contexts of a position that an expectation runs over."},
        ),
    ] = 50

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

    Attributes:
        delta: the bias of an entry of one standard deviation.
    """

    rule: Literal["cdmark"] = "cdmark"
    delta: Delta = 2.0


@dataclass(frozen=True, kw_only=True)
class GumbelSpec(PublishedSpec):
    """Gumbel-max: the key's uniforms of (position mod period, token) decide the draw at a position.

    Attributes:
        period: m, positions after which the uniforms repeat; the detector tries m shifts and corrects p for them.
    """

    rule: Literal["gumbel"] = "gumbel"
    period: Annotated[
        int,
        Field(
            ge=1,
            le=2**16,
            description="in 1..65536",
            json_schema_extra={"help": "Positions after which the uniforms repeat."},
        ),
    ] = 256


@dataclass(frozen=True, kw_only=True)
class TangoSpec(PublishedSpec):
    """TANGO: tokens whose colour sums to 0 with that of a committed token two places away, on either side, are biased.

    Attributes:
        delta: bias on the logits of the one class that completes the pair.
        classes: number of colours.
        lag: distance of the two tokens of a pair.
        colours: "embeddings" cuts a keyed projection of the token embeddings; "hash" draws each token's colour alone.
        embeddings: the model whose input embeddings are projected; by default that of the key's tokenizer.
        new_only: favour only pairs that the text does not hold yet (as dgMARK does; not in the paper).
    """

    rule: Literal["tango"] = "tango"
    delta: Delta = 5.0
    classes: Annotated[
        int, Field(ge=2, le=16, description="in 2..16", json_schema_extra={"help": "Number of colours."})
    ] = 3
    lag: Annotated[
        int,
        Field(ge=1, le=16, description="in 1..16", json_schema_extra={"help": "Distance of the two tokens of a pair."}),
    ] = 2
    colours: Annotated[
        Literal["embeddings", "hash"],
        Field(
            description="one of: embeddings, hash",
            json_schema_extra={"help": "Colours by the token embeddings, or each token's alone."},
        ),
    ] = "embeddings"
    embeddings: Annotated[
        str,
        Field(
            description="a text",
            json_schema_extra={"help": "Model whose embeddings are projected.", "default_text": "the key's"},
        ),
    ] = ""
    new_only: NewOnly = False


@dataclass(frozen=True, kw_only=True)
class ReplayMarkSpec(PublishedSpec):
    """ReplayMark: draws are repeated where readings of the context by the model disagree, until the key's side comes.

    Attributes:
        text_length: tokens of the longest text; readings mask as many as are left of them.
        block: tokens of a block.
        draw_temperature: the temperature of the draws, which says how even a split is.
        draws: R, the most draws of a carrier before one that is taken as it comes.
        readings: readings of the context before a block; each leaves out another part.
        least_split: the share that a split must exceed, 1 being even, for a place to be a carrier.
        least_likely: the probability, over that of the likeliest token, that a repeated draw must reach.
        reader: the model that reads; by default that of the key's tokenizer.
    """

    rule: Literal["replaymark"] = "replaymark"
    text_length: Annotated[
        int, Field(ge=1, description="at least 1", json_schema_extra={"help": "Tokens of the longest marked text."})
    ] = 256
    block: Annotated[int, Field(ge=1, description="at least 1", json_schema_extra={"help": "Tokens of a block."})] = 32
    draw_temperature: Annotated[
        float,
        Field(
            gt=0,
            allow_inf_nan=False,
            description="above 0",
            json_schema_extra={"help": "Temperature of the draws."},
        ),
    ] = 0.8
    draws: Annotated[
        int, Field(ge=1, description="at least 1", json_schema_extra={"help": "Most draws at a carrier."})
    ] = 16
    readings: Annotated[
        int,
        Field(ge=2, le=64, description="in 2..64", json_schema_extra={"help": "Readings of the context of a block."}),
    ] = 8
    least_split: Annotated[
        float,
        Field(ge=0, le=1, description="in 0..1", json_schema_extra={"help": "Evenness that makes a place a carrier."}),
    ] = 0.5
    least_likely: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="in 0..1",
            json_schema_extra={"help": "Least probability of a repeated draw, over that of the likeliest token."},
        ),
    ] = 0.05
    reader: Annotated[
        str,
        Field(
            description="a text",
            json_schema_extra={"help": "Model that reads the context.", "default_text": "the key's"},
        ),
    ] = ""
