"""The fields of requests and answers. A field that is not among them is an error, not ignored."""

from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, create_model, model_validator

from dgmark.arguments.checks import MAX_TEXT_NAME, check_name
from dgmark.detection.detector import MIN_FPR
from dgmark.detection.reading.disguises.normalise import STEPS
from dgmark.detection.results.detection import DETECTION_FIELDS, Detection
from dgmark.detection.results.figures import PairFigures, Phase, PositionFigures, Verdict
from dgmark.detection.statistics.position import DEFAULT_MAX_CROP
from dgmark.report.joined import MAX_REPORTS
from dgmark_service.error_answers import ErrorAnswer

Name = Annotated[str, Field(min_length=1, max_length=200)]
TextName = Annotated[Name, AfterValidator(lambda name: check_name(name, "a text", MAX_TEXT_NAME) or name)]
Rate = Annotated[float, Field(ge=MIN_FPR * 1000, lt=1)]
TokenId = Annotated[int, Field(strict=True, ge=0, lt=2**31)]
T = TypeVar("T")
MAX_ITEMS = 1_000_000
# the first wrong item ends the check; a field with a number of its own is a `Few`, as the inner number would count
Few = Annotated[list[T], Field(fail_fast=True)]
Items = Annotated[Few[T], Field(max_length=MAX_ITEMS)]
Step = Literal["ansi", "nfc", "invisible", "compatibility", "homoglyphs", "quotes", "whitespace", "capitals"]

MAX_KEYS = 1000
MAX_TEXTS = 100  # of one request


class RequestFields(BaseModel):
    """A request, or a part of one. An unknown field is an error.

    Its rules between fields are checked, and stated in its JSON schema; a field is given if it is not null.

    Attributes:
        one_of: exactly one of these fields is given; a document in a form counts as one.
        one_at_most: at most one of these is given.
        needs: fields that need others: the field, the other one, and its value, or None for any.
    """

    model_config = ConfigDict(extra="forbid", json_schema_extra=lambda schema, model: model.describe(schema))
    one_of: ClassVar[tuple[str, ...]] = ()
    one_at_most: ClassVar[tuple[str, ...]] = ()
    needs: ClassVar[tuple[tuple[str, str, Any], ...]] = ()

    @classmethod
    def describe(cls, schema: dict[str, Any]) -> None:
        """Add the rules to the JSON schema."""
        rules: list[Any] = [{"oneOf": [given(name) for name in cls.one_of]}] if cls.one_of else []
        rules += [{"not": {"allOf": [given(name) for name in cls.one_at_most]}}] if cls.one_at_most else []
        rules += [{"anyOf": [{"not": given(field)}, given(other, value)]} for field, other, value in cls.needs]
        if rules:
            schema["allOf"] = rules

    @model_validator(mode="after")
    def _check_rules(self, info: ValidationInfo) -> "RequestFields":
        given = {name for name, value in self if value is not None}
        documents = info.context or {}  # {"document": whether there is one}, where there can be one
        if self.one_of and len(given & {*self.one_of}) + sum(documents.values()) != 1:
            raise ErrorAnswer(400, f"give {' or '.join([*self.one_of, *documents])}: one of them", param=self.one_of[0])
        if self.one_at_most and given >= {*self.one_at_most}:
            raise ErrorAnswer(400, f"give {' or '.join(self.one_at_most)}, not both", param=self.one_at_most[-1])
        for field, other, value in self.needs:
            if field in given and (other not in given or value not in (None, getattr(self, other))):
                what = other if value is None else f"{other} {str(value).lower()}"
                raise ErrorAnswer(400, f"{field} needs {what}: add it, or leave {field} out", param=field)
        return self


def given(name: str, value: str | bool | None = None) -> dict[str, Any]:
    """The field is there and not null; with `value`, it has this one."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}} if value is None else {"const": value}}}


class TextToCheck(RequestFields):
    """A text, and how it is checked."""

    one_of: ClassVar[tuple[str, ...]] = ("text",)
    one_at_most = ("key", "keys")
    text: str | None = Field(None, description="The text.")
    key: Name | None = Field(None, description="Name of the key to look for.")
    keys: Items[Name] | None = Field(
        None, min_length=1, max_length=MAX_KEYS, description="In place of key, names of several; by default all keys."
    )
    fpr: Rate | None = Field(
        None, description="False-positive rate over all keys; if not the service's, the heading says so."
    )
    phase: Phase | None = Field(
        None,
        description="Position keys: any (the default) if tokens may be missing at the front, start if the text is "
        "complete.",
    )
    max_crop: int | None = Field(
        None,
        ge=0,
        le=100_000,
        description=f"Rotating keys: how many tokens may be missing; by default {DEFAULT_MAX_CROP}.",
    )
    normalise: Few[Step] = Field([], max_length=len(STEPS), description="Disguises to undo if no mark is found.")


class DetectRequest(TextToCheck):
    """A text to check."""

    one_of = ("text", "texts", "token_ids")
    texts: Items[str] | None = Field(
        None, min_length=1, max_length=MAX_TEXTS, description="Several texts, in place of one; each gets its answer."
    )
    token_ids: Items[TokenId] | None = Field(None, description="The token ids of one response, in place of a text.")
    spans: bool = Field(False, description="Find the spans that carry the mark.")
    include_text: bool = Field(False, description="Repeat the exact text that was scored.")


class ReportRequest(TextToCheck):
    """A text to report on."""

    name: TextName = Field("text", description="What the report calls the text.")
    format: Literal["html", "json"] = Field("html", description="A page, or JSON.")


class JoinRequest(RequestFields):
    """Reports to join."""

    reports: Few[str] = Field(
        min_length=1, max_length=MAX_REPORTS, description="JSON reports of this service, each exactly as it was made."
    )
    name: TextName = Field("several texts", description="What the joined report calls them.")
    unanswered: Few[TextName] = Field(
        [],
        max_length=MAX_REPORTS,
        description="Names of documents that were to be checked with them: they are listed without an answer.",
    )
    format: Literal["html", "json"] = Field("html", description="A page, or JSON.")


class AnswerFields(BaseModel):
    """An answer, or a part of one."""

    model_config = ConfigDict(extra="forbid")


class SpanFields(AnswerFields):
    """Characters (ids) start to end carry the mark by themselves; p_value and rarity only in the full form."""

    start: int
    end: int
    p_value: float | None = None
    rarity: str | None = None


class ShadeFields(AnswerFields):
    """Characters start to end are matching tokens; level says from 1 to 3 how much they count."""

    start: int
    end: int
    level: int


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


class _Checked(AnswerFields):
    """What both forms of an answer say; fpr_rarity is fpr in words, such as "1 in 10,000"."""

    verdict: Verdict
    fpr: float
    fpr_rarity: str
    fpr_chosen_by: Literal["service", "request"]
    heading: str
    symbol: str
    sentence: str
    meaning: list[str]
    where: str
    marked_share: float | None
    in_part: bool
    key: str | None
    key_name: str | None
    keys_tested: int
    is_watermarked: bool
    guaranteed: bool
    text: TextFields
    document: DocumentFields | None = None
    spans: list[SpanFields] | None = None


class PublicAnswer(_Checked):
    """What a text shows, without numbers that guide the removal of the mark."""

    form: Literal["public"]
    key_fingerprint: str | None


_Row = create_model(  # type: ignore[call-overload]
    "_Row",
    __base__=_Checked,
    **{
        field.name: (field.type, ...)
        for field in fields(Detection)
        if field.name in DETECTION_FIELDS and field.name not in (*_Checked.model_fields, "figures", "spans")
    },
)


class FullAnswer(_Row):
    """What a text shows, with all numbers: the fields of a row of `dgmark detect` and more.

    matched_by_chance says from how many to how many of its pairs (or tokens) would match by chance: the mean under one
    key, sub-key and shift, and the median under the best of all that were tried. shades says which tokens of the spans
    match, where a language model weighs them.
    """

    form: Literal["full"]
    summary: str
    figures: PairFigures | PositionFigures | dict[str, Any]  # of a rule that another package adds
    subkeys_tested: int | None = None
    rarity: str
    matched_by_chance: tuple[int, int]
    shades: list[ShadeFields] | None = None
    schema_: Annotated[int, Field(alias="schema")]


class ErrorOfText(AnswerFields):
    """Why one of several texts has no answer."""

    error: "Problem"


class ListAnswer(AnswerFields):
    """The answers about several texts, in their order."""

    results: list[FullAnswer | PublicAnswer | ErrorOfText]


class VerifyAnswer(AnswerFields):
    """Whether the signature of a report holds; if it does, who signed it, and what the report states.

    own says whether this service signed it, and created when, by the clock of whoever did. If the signature does not
    hold, reason says what is wrong, and key_id which key the file names, if it names one.
    """

    valid: bool
    detail: str
    reason: Literal["unsigned", "changed", "untrusted", "no_report"] | None = None
    own: bool = False
    key_id: str | None = None
    signer: str | None = None
    created: str | None = None
    name: str | None = None
    heading: str | None = None
    key_fingerprint: str | None = None
    key_name: str | None = None
    key_commitment: dict[str, str] | None = None


class KeyFields(AnswerFields):
    """The public contents of a key: name is that of its file, key_name whose texts it marks.

    expected_match is the share of the pairs or tokens that match in a typical text of its model, null if it is not
    known; tokens_needed is how long the median text must be to be found at the service's fpr, null if over 100,000 or
    if the key's rule does not say what to expect; tokens_needed_by_share, where the service writes, is the same of a
    text of which this share was replaced; max_chars is the longest text on which the key's sub-keys can be tried within
    the time of a request.
    """

    name: str
    key_name: str | None
    key_fingerprint: str
    tokenizer: str
    expected_match: float | None
    tokens_needed: int | None
    tokens_needed_by_share: dict[str, int | None]
    max_chars: int


class ModelFields(AnswerFields):
    """A model that writes texts here.

    context_length, block_length and chat (whether it takes messages) are null until it is loaded.
    """

    name: str
    ready: bool
    context_length: int | None = None
    block_length: int | None = None
    chat: bool | None = None
    keys: list[str]
    policy: Literal["default", "enforced"]


class About(AnswerFields):
    """What the service is and holds; form is that of the answers you get, null if you may not check texts.

    may_generate says whether you may have texts written, takes_tokens whether an access token could let you do more,
    and token is the name of the one that you have sent.
    sample is a text that can be checked at once, where the service is a demonstration.
    """

    dgmark: str
    keys: list[KeyFields]
    fpr: float
    form: Literal["full", "public"] | None
    signed: bool
    max_chars: int
    body_bytes: int
    models: list[ModelFields]
    may_generate: bool
    takes_tokens: bool
    token: str | None
    sample: str | None = None


class InvalidField(AnswerFields):
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
    errors: list[InvalidField] | None = None


class OpenAIError(AnswerFields):
    """What OpenAI's interface says of an error."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIProblem(AnswerFields):
    """An error on OpenAI's paths."""

    error: OpenAIError
