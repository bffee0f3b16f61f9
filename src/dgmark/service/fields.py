"""The fields of requests and answers. A field that is not among them is an error, not ignored."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from dgmark.detection.evidence import DEFAULT_MAX_CROP, SMALLEST_FPR
from dgmark.detection.intact import Phase
from dgmark.detection.normalise import STEPS
from dgmark.detection.result import Mode, Verdict
from dgmark.detection.words import Limit

Name = Annotated[str, Field(min_length=1, max_length=200)]
Rate = Annotated[float, Field(ge=SMALLEST_FPR * 1000, lt=1)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
Step = Literal["nfc", "invisible", "homoglyphs", "quotes", "whitespace"]

MOST_RATES = 24
MOST_KEYS = 1000


class RequestFields(BaseModel):
    """A request, or a part of one: unknown fields are errors."""

    model_config = ConfigDict(extra="forbid")


_BOTH_KEYS: JsonDict = {
    "required": ["key", "keys"],
    "properties": {"key": {"type": "string"}, "keys": {"type": "array"}},
}


class Options(RequestFields):
    """How texts are checked."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"not": _BOTH_KEYS})

    key: Name | None = Field(None, description="Name of the key to look for.")
    keys: list[Name] | None = Field(
        None, min_length=1, max_length=MOST_KEYS, description="Names of several keys; by default all keys."
    )
    fpr: Rate | None = Field(None, description="False-positive rate to hold, over all keys together.")
    mode: Mode = Field("auto", description="auto: text edited or not; intact: only a crop; edited: expects edits.")
    phase: Phase = Field("any", description="any: tokens may be missing at the front; start: the text is complete.")
    max_crop: int = Field(
        DEFAULT_MAX_CROP, ge=0, le=100_000, description="With a rotating key: how many tokens may be missing."
    )
    normalise: list[Step] = Field([], max_length=len(STEPS), description="Disguises to undo if no mark is found.")

    @model_validator(mode="after")
    def _one_way_to_name_keys(self) -> "Options":
        if self.key is not None and self.keys is not None:
            raise ValueError("give key or keys, not both")
        return self


class OneText(Options):
    """One text, or the token ids of one response."""

    text: str | None = Field(None, description="The text.")
    token_ids: list[TokenId] | None = Field(None, description="The token ids of one response, in place of a text.")


class DetectRequest(OneText):
    """A text to check."""

    passages: bool = Field(False, description="Find the passages that carry the mark.")
    rates: list[Rate] = Field(
        [], max_length=MOST_RATES, description="Further false-positive rates to give the verdict at."
    )
    include_text: bool = Field(False, description="Repeat the exact text that was scored.")


class ReportRequest(OneText):
    """A text to report on."""

    name: Name = Field("text", description="What the report calls the text.")
    format: Literal["html", "json"] = Field("html", description="A page, or JSON.")


class Item(RequestFields):
    """One text of a batch."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "oneOf": [
                {"required": ["text"], "properties": {"text": {"type": "string"}}},
                {"required": ["token_ids"], "properties": {"token_ids": {"type": "array"}}},
            ]
        },
    )

    id: Name
    text: str | None = None
    token_ids: list[TokenId] | None = None

    @model_validator(mode="after")
    def _one_content(self) -> "Item":
        if (self.text is None) == (self.token_ids is None):
            raise ValueError("give text or token_ids, one of them")
        return self


class BatchRequest(Options):
    """Texts to check together."""

    texts: list[Item] = Field([], description="The texts.", json_schema_extra={"minItems": 1})


class AnswerFields(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(extra="forbid")


class Passage(AnswerFields):
    """Characters (ids) start to end carry the mark by themselves; p_value and rarity only in the full form."""

    start: int
    end: int
    p_value: float | None = None
    rarity: str | None = None


class TextFields(AnswerFields):
    """The text that was scored."""

    sha256: str
    length: int
    content: str | list[int] | None = None


class DocumentFields(AnswerFields):
    """The document that the text was read from."""

    kind: str
    notes: list[str]
    pages: int | None


class Worded(AnswerFields):
    """A verdict at a rate, and what it says in words."""

    verdict: Verdict
    fpr: float
    heading: str
    symbol: str
    sentence: str
    meaning: list[str]
    where: str


class AtRate(Worded):
    """The verdict at a further rate; passages are the numbers, from 0, of those that hold there."""

    rarity: str
    passages: list[int]


class _Checked(Worded):
    """What both forms of an answer say."""

    key: str | None
    keys_tested: int
    is_watermarked: bool
    watermarked: bool
    guaranteed: bool
    text: TextFields
    document: DocumentFields | None = None
    passages: list[Passage] | None = None


class PublicAnswer(_Checked):
    """What a text shows, without numbers that guide the removal of the mark."""

    form: Literal["public"]
    key_fingerprint: str | None


class FullAnswer(_Checked):
    """What a text shows, with all numbers; score and num_scored_tokens are vLLM's names, watermarked is SGLang's."""

    form: Literal["full"]
    key_fingerprint: str
    subkeys_tested: int | None = None
    at_rates: list[AtRate] | None = None
    rarity: str | None = None
    p_value: float
    z_score: float
    score: float
    num_scored_tokens: int
    green_fraction: float
    num_tokens_scored: int
    num_tokens_matched: int
    shift: int
    shifts_tested: int
    summary: str
    mode: Mode
    p_intact: float | None
    p_aligned: float | None
    draws: int
    edited_fraction: float | None
    z_window: float
    normalised: list[str]
    scheme: str
    p_published: float | None
    uncertain_because: Limit | None
    schema_: Annotated[int, Field(alias="schema")]


class BatchRow(FullAnswer):
    """One text of a batch."""

    id: str


class BadRow(AnswerFields):
    """A text of a batch that could not be checked."""

    id: str
    error: str


class BatchAnswer(AnswerFields):
    """The texts of a batch in order."""

    results: list[BatchRow | BadRow]


class KeyFields(AnswerFields):
    """The public contents of a key."""

    name: str
    key_fingerprint: str
    tokenizer: str


class ModelFields(AnswerFields):
    """A model that writes texts here.

    context_length, block_length and chat (whether it takes messages) are null until it is loaded.
    """

    name: str
    ready: bool
    context_length: int | None
    block_length: int | None
    chat: bool | None
    keys: list[str]
    policy: Literal["default", "enforced"]


class About(AnswerFields):
    """What the service is and holds; may_generate says whether you may have texts written."""

    dgmark: str
    keys: list[KeyFields]
    fpr: float
    form: Literal["full", "public"] | None
    signed: bool
    max_chars: int
    max_texts: int
    body_bytes: int
    models: list[ModelFields]
    may_generate: bool


class WrongField(AnswerFields):
    """A field that is wrong, and why."""

    param: str
    message: str


class Problem(AnswerFields):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    request_id: str
    errors: list[WrongField] | None = None


class OpenAIError(AnswerFields):
    """What OpenAI's interface says of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIProblem(AnswerFields):
    """An error on OpenAI's paths."""

    error: OpenAIError


def schema_of(model: type[BaseModel]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The schema of some fields for the OpenAPI document, and by name the schemas that it refers to."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    return schema, schema.pop("$defs", {})
