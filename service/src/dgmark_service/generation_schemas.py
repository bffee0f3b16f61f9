"""The fields of requests for texts and of their answers."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, ConfigDict, Field, create_model, field_validator, model_validator

from dgmark.decode.config import setting_fields
from dgmark.detection.results.figures import Verdict
from dgmark.watermark.policy import MarkingRequest
from dgmark_service.jobs import REQUEST_SETTINGS
from dgmark_service.schemas import AnswerFields, Few, Items, Name, RequestFields, TokenId, given

MAX_TOKENS = 1_000_000
MAX_LOOKAHEAD = 8  # each costs a forward a step
MAX_MESSAGES = 1000
Stop = Annotated[str, Field(min_length=1, max_length=200)]


class Watermark(RequestFields):
    """How a text is to be marked."""

    enabled: bool = Field(True, description="Whether the text is marked.")
    key_id: Name | None = Field(None, description="Name of the key; by default the model's first.")
    subkey: int | None = Field(
        None, ge=0, lt=2**16, description="Sub-key of a key that has several, if requests may choose it: the payload."
    )


class TextPart(RequestFields):
    """A part of a message."""

    type: Literal["text"]
    text: str

    @model_validator(mode="before")
    @classmethod
    def _is_text(cls, value: object) -> object:
        if isinstance(value, dict) and value.get("type", "text") != "text":
            raise ValueError("the parts of a message are texts here: leave out images, sounds and files")
        return value


class Message(RequestFields):
    """A message of a conversation; an assistant's may have no content. Other fields are not used."""

    model_config = ConfigDict(
        extra="ignore", json_schema_extra={"anyOf": [given("role", "assistant"), given("content")]}
    )

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Items[TextPart] | None = Field(None, validate_default=True)

    @field_validator("content")
    @classmethod
    def _of_an_assistant(cls, value: object, info: Any) -> object:
        if value is None and info.data.get("role", "assistant") != "assistant":
            raise ValueError("it must be a text or a list of texts: only an assistant's may be null")
        return value

    @property
    def turn(self) -> tuple[str, str]:
        """The role, as templates call it, and what it says, its parts joined."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content or ())
        return "system" if self.role == "developer" else self.role, text


def _ends_with_user(messages: list[Message]) -> list[Message]:
    systems = [place for place, message in enumerate(messages) if message.role in ("system", "developer")]
    if systems not in ([], [0]) or messages[-1].role != "user":
        raise ValueError("the last message is a user's, and only the first one may be the system's")
    return messages


Messages = Annotated[Few[Message], Field(min_length=1, max_length=MAX_MESSAGES), AfterValidator(_ends_with_user)]


_DecodingFields = create_model(  # type: ignore[call-overload]
    "_DecodingFields",
    __base__=RequestFields,
    **{
        one.name: (
            one.type | None,
            Field(None, le=MAX_LOOKAHEAD if one.name == "lookahead" else None, description=one.help),
        )
        for one in setting_fields()
        if one.name in REQUEST_SETTINGS
    },
)


class DecodingRequest(_DecodingFields):
    """How tokens are written; what is left out follows the service's settings for the model.

    Attributes:
        prefix: what the ids of its texts begin with.
    """

    needs: ClassVar[tuple[tuple[str, str, Any], ...]] = (("threshold", "commit", "threshold"),)
    prefix: ClassVar[str]
    model: Name | None = Field(None, description="Name of the model; by default the service's first.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="Seed; by default the system draws one.")
    watermark: bool | Watermark | None = Field(None, description="Whether and how to mark the text; by default yes.")

    @property
    def marking_request(self) -> MarkingRequest:
        """What the request says about the mark."""
        if isinstance(self.watermark, Watermark):
            return MarkingRequest(self.watermark.enabled, self.watermark.key_id, self.watermark.subkey)
        return MarkingRequest(self.watermark)

    @property
    def stops(self) -> list[str]:
        """What ends the text where it would first occur in it."""
        return []

    def decoding(self) -> dict[str, Any]:
        """The settings of `DecodeConfig` that the request names."""
        settings: dict[str, Any] = self.model_dump(include=set(REQUEST_SETTINGS), exclude_none=True)
        if settings.get("temperature") == 0 and settings.get("top_p") == 1:
            del settings["top_p"]  # clients send it beside a temperature of 0, and it says nothing
        steps = getattr(self, "num_denoising_steps", None)
        return settings if steps is None else {**settings, "steps": steps}


class CheckedRequest(DecodingRequest):
    """A text that may be checked once it is written."""

    check: bool = Field(False, description="Look for the mark in the text, as a checker with the same key would.")


class SamplingRequest(DecodingRequest):
    """How a text of its own length is written."""

    max_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="The most tokens of the text; by default 256."
    )
    num_denoising_steps: int | None = Field(None, ge=1, description="Steps of the text; by default one a token.")

    @property
    def prompts(self) -> list[Any]:
        """The texts or token ids to continue, or the conversation to answer, as role and content of each message."""
        messages: list[Message] | None = getattr(self, "messages", None)
        return [[one.turn for one in messages]] if messages else [getattr(self, "prompt", None)]

    def contents(self) -> list[dict[str, Any]]:
        """For each text, the fields of `Job` that say what is continued, and how long it gets."""
        other, prompts = "max_completion_tokens", self.prompts
        limit = other if getattr(self, other, None) is not None else "max_tokens"
        chat = bool(getattr(self, "messages", None))
        shared = {"max_tokens": getattr(self, limit), "limit_param": limit, "chat": chat}
        places = range(len(prompts)) if len(prompts) > 1 else [None]
        each = [{"prompt": prompt, "place": place, **shared} for prompt, place in zip(prompts, places, strict=True)]
        return [one for one in each for _ in range(getattr(self, "n", None) or 1)]


class InfillRequest(CheckedRequest):
    """A text whose holes are to be filled."""

    prefix = "fill"
    one_of = ("text", "parts")
    needs = (*DecodingRequest.needs, ("share", "text", None), ("keep", "share", None), ("target", "share", None))
    text: str | None = Field(None, description="Text in which [mask:N] is a hole of N tokens.")
    parts: Items[str | Annotated[int, Field(ge=1, le=MAX_TOKENS)]] | None = Field(
        None, description="In place of text: its pieces, and between them the lengths of its holes in tokens."
    )
    share: float | None = Field(
        None, gt=0, le=1, description="Choose the holes of text: replace words that make up this share of its tokens."
    )
    keep: Items[Stop] | None = Field(None, max_length=64, description="With share: strings that stay, in addition.")
    target: float | None = Field(None, gt=0, lt=1, description="With share: stop once the p-value is at most this.")
    stream: bool = Field(False, description="Answer with an event for each step.")

    def contents(self) -> list[dict[str, Any]]:
        """The fields of `Job` that say what is filled."""
        prompt = self.parts if self.text is None else self.text
        fields: dict[str, Any] = {"prompt": prompt, "chat": False, "max_tokens": None, "fills": True}
        if self.share is not None:
            keep = "|".join(map(re.escape, self.keep or [])) or None
            fields["remask"] = {"share": self.share, "keep": keep, "target": self.target}
        return [fields]


class GenerateRequest(SamplingRequest, CheckedRequest):
    """A text to write."""

    prefix = "gen"
    one_of = ("prompt", "messages")
    prompt: str | Items[TokenId] | None = Field(None, description="Text, or token ids, to continue.")
    messages: Messages | None = Field(None, description="Messages to a chat model, in place of a prompt.")
    stream: bool = Field(False, description="Answer with an event for each step.")


class Usage(AnswerFields):
    """Counts of tokens."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class WatermarkAnswer(AnswerFields):
    """That and how a text is marked; subkey only if the request chose it."""

    enabled: bool
    key_id: str | None
    key_fingerprint: str | None
    policy: Literal["default", "enforced"]
    subkey: int | None = None


class CheckAnswer(AnswerFields):
    """What a checker with the same key finds in a text."""

    verdict: Verdict
    p_value: float
    fpr: float


class _Answer(AnswerFields):
    id: str
    model: str
    text: str
    usage: Usage
    num_denoising_steps: int
    block_length: int
    watermark: WatermarkAnswer
    settings: dict[str, Any]
    seed: int | None
    repeatable: bool = Field(
        description="Whether the same request gives this text again: it has a seed, and no sub-key was drawn."
    )
    choices: int
    check: CheckAnswer | None = None


class InfillAnswer(_Answer):
    """A text with its holes filled; spans are the characters [start, end) of the holes.

    If the holes were chosen: the shares of the tokens that were masked and changed, and the p-values that were expected
    and reached (null without a mark).
    """

    spans: list[tuple[int, int]]
    masked: float | None = None
    changed: float | None = None
    expected_p: float | None = None
    p_value: float | None = None


class GenerateAnswer(_Answer):
    """A text, and how it was written."""

    finish_reason: Literal["stop", "length"]
    length: int
