"""The fields of requests for texts and of their answers."""

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, create_model, field_validator, model_validator

from dgmark.decode.config import setting_fields
from dgmark.service.jobs import REQUEST_SETTINGS
from dgmark.service.schemas import AnswerFields, Name, RequestFields, TokenId
from dgmark.watermark.policy import MarkingRequest

MAX_TOKENS = 1_000_000
MAX_STOPS = 4
MAX_LOOKAHEAD = 8  # each costs a forward a step
_ONE_TEXT = "a request asks for one text: send one for each text, several at the same time"
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


class Message(RequestFields):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]

    @property
    def turn(self) -> tuple[str, str]:
        """The role, as templates call it, and what it says, its parts joined."""
        text = self.content if isinstance(self.content, str) else "".join(part.text for part in self.content)
        return "system" if self.role == "developer" else self.role, text


def _ends_with_user(messages: list[Message]) -> list[Message]:
    systems = [place for place, message in enumerate(messages) if message.role in ("system", "developer")]
    if systems not in ([], [0]) or messages[-1].role != "user":
        raise ValueError("the last message is a user's, and only the first one may be the system's")
    return messages


Messages = Annotated[list[Message], Field(min_length=1), AfterValidator(_ends_with_user)]


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
    """How tokens are written; what is left out follows the service's settings for the model."""

    model: Name | None = Field(None, description="Name of the model; by default the service's first.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63, description="Seed; by default the system draws one.")
    watermark: bool | Watermark | None = Field(None, description="Whether and how to mark the text; by default yes.")

    @field_validator("threshold")
    @classmethod
    def _used(cls, value: float | None, info: Any) -> float | None:
        if value is not None and info.data.get("commit") != info.field_name:
            raise ValueError(f"needs commit {info.field_name}")
        return value

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

    def content(self) -> dict[str, Any]:
        """The fields of `Job` that say what is continued or filled, and how long it gets."""
        raise NotImplementedError

    def decoding(self) -> dict[str, Any]:
        """The settings of `DecodeConfig` that the request names."""
        settings: dict[str, Any] = self.model_dump(include=set(REQUEST_SETTINGS), exclude_none=True)
        if settings.get("temperature") == 0 and settings.get("top_p") == 1:
            del settings["top_p"]  # clients send it beside a temperature of 0, and it says nothing
        return settings


class SamplingRequest(DecodingRequest):
    """How a text of its own length is written."""

    max_tokens: int | None = Field(
        None, ge=1, le=MAX_TOKENS, description="The most tokens of the text, in whole blocks; by default 256."
    )
    num_denoising_steps: int | None = Field(None, ge=1, description="Steps of the text; by default one a token.")

    def decoding(self) -> dict[str, Any]:
        """The settings of `DecodeConfig` that the request names."""
        steps = {} if self.num_denoising_steps is None else {"steps": self.num_denoising_steps}
        return super().decoding() | steps

    def content(self) -> dict[str, Any]:
        """The fields of `Job` that say what is continued, and how long it gets."""
        messages: list[Message] | None = getattr(self, "messages", None)
        prompt = [one.turn for one in messages] if messages else getattr(self, "prompt", None)
        return {"prompt": prompt, "chat": bool(messages), "max_tokens": self.max_tokens}


class InfillRequest(DecodingRequest):
    """A text whose holes are to be filled."""

    one_of = ("text", "parts")
    text: str | None = Field(None, description="Text in which [mask:N] is a hole of N tokens.")
    parts: list[str | Annotated[int, Field(ge=1, le=MAX_TOKENS)]] | None = Field(
        None, description="In place of text: its pieces, and between them the lengths of its holes in tokens."
    )
    share: float | None = Field(
        None, gt=0, le=1, description="Choose the holes of text: replace words that make up this share of its tokens."
    )
    keep: list[Stop] | None = Field(None, max_length=64, description="With share: strings that stay, in addition.")
    target: float | None = Field(None, gt=0, lt=1, description="With share: stop once the p-value is at most this.")

    @model_validator(mode="after")
    def _chosen_in_a_text(self) -> "InfillRequest":
        if self.share is None and (self.keep is not None or self.target is not None):
            raise ValueError("keep and target need share")
        if self.share is not None and self.text is None:
            raise ValueError("share needs text")
        return self

    def content(self) -> dict[str, Any]:
        """The fields of `Job` that say what is filled."""
        prompt = self.parts if self.text is None else self.text
        fields: dict[str, Any] = {"prompt": prompt, "chat": False, "max_tokens": None, "fills": True}
        if self.share is not None:
            keep = "|".join(map(re.escape, self.keep or [])) or None
            fields["remask"] = {"share": self.share, "keep": keep, "target": self.target}
        return fields


class GenerateRequest(SamplingRequest):
    """A text to write."""

    one_of = ("prompt", "messages")
    prompt: str | list[TokenId] | None = Field(None, description="Text, or token ids, to continue.")
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


# --- OpenAI's interface


class StreamOptions(RequestFields):
    """What a stream says beside the text."""

    include_usage: bool = Field(False, description="Count the tokens in a last chunk.")


class _OpenAI(SamplingRequest):
    """What chat and plain completions share.

    Fields that would change the answer, and that diffusion models or this service cannot honour, may have their default
    only; others are unknown.
    """

    stream: bool = Field(False, description="Answer with chunks of the text, from its beginning on.")
    stream_options: StreamOptions | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = Field(
        None, description="What ends the text where it would first stand in it."
    )
    n: Literal[1] | None = Field(None, description="Number of texts: a request asks for one.")
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    user: str | None = Field(None, description="Whom the text is for; not used.")
    store: Literal[False] | None = None
    parallel_tool_calls: bool | None = None
    tools: None = None
    logit_bias: dict[str, float] | None = Field(None, max_length=0)
    response_format: dict[Literal["type"], Literal["text"]] | None = None

    @field_validator("n", mode="before")
    @classmethod
    def _one_text(cls, value: object) -> object:
        if value not in (None, 1):
            raise ValueError(_ONE_TEXT)
        return value

    @model_validator(mode="after")
    def _options_of_a_stream(self) -> "_OpenAI":
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream")
        return self

    @property
    def stops(self) -> list[str]:
        """What ends the text."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class CompletionRequest(_OpenAI):
    """A text to continue."""

    prompt: str | list[TokenId] = Field(description="Text, or token ids, to continue, or a list of one of these.")
    best_of: Literal[1] | None = None
    echo: Literal[False] | None = None
    logprobs: None = None
    suffix: None = None

    @field_validator("prompt", mode="before")
    @classmethod
    def _one_prompt(cls, value: object) -> object:
        if not isinstance(value, list) or not value or isinstance(value[0], int):
            return value
        if len(value) > 1:
            raise ValueError(_ONE_TEXT)
        return value[0]  # clients that write several texts send a list of one prompt, too


class ChatRequest(_OpenAI):
    """Messages to answer."""

    messages: Messages = Field(description="A conversation; the last message is a user's.")
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="Another name for max_tokens.")
    logprobs: Literal[False] | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> "ChatRequest":
        if self.max_completion_tokens is not None:
            if self.max_tokens is not None:
                raise ValueError("give max_tokens or max_completion_tokens, not both")
            self.max_tokens = self.max_completion_tokens
        return self
