"""The fields of requests for texts and of their answers."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)

from dgmark.decode.config import setting_fields
from dgmark.service.field_rules import given, needs, not_both, one_given, rules
from dgmark.service.jobs import REQUEST_SETTINGS
from dgmark.service.schemas import AnswerFields, Name, RequestFields, TokenId
from dgmark.watermark.policy import MarkingRequest

MAX_TOKENS = 1_000_000
MAX_STOPS = 4
MAX_TEXTS = 8  # of one prompt
MAX_LOOKAHEAD = 8  # each costs a forward a step
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


def neutral_fields(**fields: tuple[Sequence[Any], str]) -> dict[str, Any]:
    """Fields that may be null, or have a value that changes nothing: what clients send by default is accepted.

    Args:
        fields: by the name of each, the values that change nothing, and the sentence that refuses all others.

    Returns:
        The fields as `pydantic.create_model` takes them.
    """
    return {
        name: (_neutral(values, why), Field(None, description=f"Not used: {why}."))
        for name, (values, why) in fields.items()
    }


def _neutral(values: Sequence[Any], why: str) -> Any:
    """The type of a field that may be null or have one of these values."""

    def check(value: object) -> object:
        # in JSON, false is not 0
        if value is None or any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in values):
            return value
        raise ValueError(why)

    return Annotated[Any, AfterValidator(check), WithJsonSchema({"enum": [None, *values]})]


_TOOLS = "models call no tools here: leave it out"
_MessageFields = create_model(
    "_MessageFields",
    __base__=RequestFields,
    **neutral_fields(
        refusal=((), "what a model refused is no part of a conversation here: put it into content"),
        audio=((), "models hear and speak nothing here: leave it out"),
        annotations=(([],), "a message has no annotations here: leave them out"),
        tool_calls=(([],), _TOOLS),
        function_call=((), _TOOLS),
    ),
)


class Message(_MessageFields):
    """A message of a conversation; an assistant's may have no content."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [given("role", {"const": "assistant"}), given("content")]})

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart] | None = Field(None, validate_default=True)
    name: str | None = Field(None, description="Who of several users or assistants it is; not used.")

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


_THRESHOLD = needs("threshold", given("commit", {"const": "threshold"}))


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

    @property
    def number(self) -> int:
        """How many texts the request asks for."""
        return 1

    @property
    def number_param(self) -> str:
        """The field that says so."""
        return "n"

    def contents(self) -> list[dict[str, Any]]:
        """For each text, the fields of `Job` that say what is continued or filled, and how long it gets."""
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

    def contents(self) -> list[dict[str, Any]]:
        """For each text, the fields of `Job` that say what is continued, and how long it gets."""
        messages: list[Message] | None = getattr(self, "messages", None)
        prompt = [one.turn for one in messages] if messages else getattr(self, "prompt", None)
        return [{"prompt": prompt, "chat": bool(messages), "max_tokens": self.max_tokens}]


class InfillRequest(DecodingRequest):
    """A text whose holes are to be filled."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(one_given("text", "parts"), _THRESHOLD),
            *(needs("share", given("text")), needs("keep", given("share")), needs("target", given("share"))),
        )
    )
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

    def contents(self) -> list[dict[str, Any]]:
        """The fields of `Job` that say what is filled."""
        prompt = self.parts if self.text is None else self.text
        fields: dict[str, Any] = {"prompt": prompt, "chat": False, "max_tokens": None, "fills": True}
        if self.share is not None:
            keep = "|".join(map(re.escape, self.keep or [])) or None
            fields["remask"] = {"share": self.share, "keep": keep, "target": self.target}
        return [fields]


class GenerateRequest(SamplingRequest):
    """A text to write."""

    model_config = ConfigDict(json_schema_extra=rules(one_given("prompt", "messages"), _THRESHOLD))
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
    repeatable: bool = Field(
        description="Whether the same request gives this text again: it has a seed, and no sub-key was drawn."
    )


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

    include_usage: bool | None = Field(None, description="Count the tokens in a last chunk; by default no.")
    include_obfuscation: bool | None = Field(None, description="Whether chunks are padded; not used, they are not.")


_OpenAIFields = create_model(
    "_OpenAIFields",
    __base__=SamplingRequest,
    **neutral_fields(
        presence_penalty=((0,), "tokens that the text has already are not made less likely here: leave it out"),
        frequency_penalty=((0,), "tokens that the text has already are not made less likely here: leave it out"),
        logit_bias=(({},), "single tokens are not made more or less likely here: leave it out"),
        store=((False,), "no answer is stored here: leave it out"),
        tools=(([],), _TOOLS),
        tool_choice=(("none", "auto"), _TOOLS),
        parallel_tool_calls=((True, False), _TOOLS),
        functions=(([],), _TOOLS),
        function_call=(("none", "auto"), _TOOLS),
        response_format=(({"type": "text"},), "an answer is plain text here: leave it out"),
    ),
)


_STREAM_OPTIONS = needs("stream_options", given("stream", {"const": True}))


class _OpenAI(_OpenAIFields):
    """What chat and plain completions share.

    Fields that would change the answer, and that diffusion models or this service cannot honour, may have a value that
    changes nothing only; others are unknown.
    """

    stream: bool = Field(False, description="Answer with chunks of the text, from its beginning on.")
    stream_options: StreamOptions | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = Field(
        None, description="What ends the text where it would first stand in it."
    )
    n: int | None = Field(None, ge=1, le=MAX_TEXTS, description="Number of texts of each prompt; by default 1.")
    user: str | None = Field(None, description="Whom the text is for; not used.")
    safety_identifier: str | None = Field(None, description="Whom the text is for; not used.")
    metadata: dict[str, str] | None = Field(None, description="What the client notes; not used.")
    service_tier: str | None = Field(None, description="How urgent the text is; not used.")
    prompt_cache_key: str | None = Field(None, description="Which prompts are alike; not used.")

    @field_validator("stream_options")
    @classmethod
    def _of_a_stream(cls, value: StreamOptions | None, info: Any) -> StreamOptions | None:
        if value is not None and not info.data.get("stream", True):
            raise ValueError("it needs stream: set stream to true, or leave it out")
        return value

    @property
    def number(self) -> int:
        """How many texts the request asks for."""
        return self.n or 1

    @property
    def stops(self) -> list[str]:
        """What ends the text."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []

    def contents(self) -> list[dict[str, Any]]:
        """For each text, the fields of `Job` that say what is continued, and how long it gets."""
        return [one for one in super().contents() for _ in range(self.n or 1)]


def _kind_of_prompt(value: object) -> str | None:
    """Which type a prompt has, by what stands first in it."""
    if not isinstance(value, list):
        return "Text"
    return "Prompts" if value and isinstance(value[0], str | list) else "TokenIds"


_NO_PROBABILITIES = "tokens are written out of order here, so an answer has no probabilities of theirs: leave it out"
_CompletionFields = create_model(
    "_CompletionFields",
    __base__=_OpenAI,
    **neutral_fields(
        echo=((False,), "an answer does not repeat its prompt here: leave it out"),
        logprobs=((False,), _NO_PROBABILITIES),
        suffix=(("",), "a text before a given end is what /v1/infill fills: leave it out"),
    ),
)


class CompletionRequest(_CompletionFields):
    """A text to continue, or several."""

    model_config = ConfigDict(json_schema_extra=rules(_THRESHOLD, _STREAM_OPTIONS))
    prompt: Annotated[
        Annotated[str, Tag("Text")]
        | Annotated[list[TokenId], Tag("TokenIds")]
        | Annotated[list[str | list[TokenId]], Field(min_length=1), Tag("Prompts")],
        Discriminator(_kind_of_prompt),
    ] = Field(description="Text, or token ids, to continue, or a list of these.")
    best_of: int | None = Field(None, ge=1, le=MAX_TEXTS, description="Not used: as many texts are written as n says.")

    @field_validator("best_of")
    @classmethod
    def _all_of(cls, value: int | None, info: Any) -> int | None:
        if value not in (None, info.data.get("n", value) or 1):
            raise ValueError(
                "no more texts are written here than are answered: leave it out, or give it the value of n"
            )
        return value

    @property
    def prompts(self) -> list[str | list[int]]:
        """The texts to continue."""
        return self.prompt if _kind_of_prompt(self.prompt) == "Prompts" else [self.prompt]  # type: ignore[return-value, list-item]

    @property
    def number(self) -> int:
        """How many texts the request asks for."""
        return len(self.prompts) * super().number

    @property
    def number_param(self) -> str:
        """The field that says so."""
        return "prompt" if len(self.prompts) > 1 else super().number_param

    def contents(self) -> list[dict[str, Any]]:
        """For each text, the fields of `Job` that say what is continued, and how long it gets."""
        prompts = self.prompts
        places = range(len(prompts)) if len(prompts) > 1 else [None]
        return [
            {"prompt": prompt, "place": place, "chat": False, "max_tokens": self.max_tokens}
            for prompt, place in zip(prompts, places, strict=True)
            for _ in range(self.n or 1)
        ]


_ChatFields = create_model(
    "_ChatFields",
    __base__=_OpenAI,
    **neutral_fields(
        logprobs=((False,), _NO_PROBABILITIES),
        top_logprobs=((0,), _NO_PROBABILITIES),
        modalities=((["text"],), "an answer is text here: leave it out"),
        audio=((), "an answer is text here: leave it out"),
        prediction=((), "an answer is not told in advance here: leave it out"),
        web_search_options=((), _TOOLS),
    ),
)


class ChatRequest(_ChatFields):
    """Messages to answer."""

    model_config = ConfigDict(
        json_schema_extra=rules(_THRESHOLD, _STREAM_OPTIONS, not_both("max_tokens", "max_completion_tokens"))
    )
    messages: Messages = Field(description="A conversation; the last message is a user's.")
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="Another name for max_tokens.")

    @field_validator("max_completion_tokens")
    @classmethod
    def _one_limit(cls, value: int | None, info: Any) -> int | None:
        if value is not None and info.data.get("max_tokens") is not None:
            raise ValueError("it is another name for max_tokens: give one of them, not both")
        return value

    def contents(self) -> list[dict[str, Any]]:
        """For each text, the fields of `Job` that say what is continued, and how long it gets."""
        if self.max_completion_tokens is None:
            return super().contents()
        limit = {"max_tokens": self.max_completion_tokens, "limit_param": "max_completion_tokens"}
        return [{**one, **limit} for one in super().contents()]
