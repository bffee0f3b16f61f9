"""The fields of requests in OpenAI's form: those of `/v1/generate`, and what OpenAI's clients send beside them.

A field that would change the answer, and that diffusion models or this service cannot honour, may have a value that
changes nothing only.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag, create_model, field_validator

from dgmark_service.field_rules import given, needs, neutral_fields, not_both, rules
from dgmark_service.generation_schemas import MAX_TOKENS, THRESHOLD, SamplingRequest, Stop
from dgmark_service.messages import NO_TOOLS, Messages
from dgmark_service.schemas import RequestFields, TokenId

MAX_STOPS = 4
MAX_TEXTS = 8  # of one prompt


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
        tools=(([],), NO_TOOLS),
        tool_choice=(("none", "auto"), NO_TOOLS),
        parallel_tool_calls=((True, False), NO_TOOLS),
        functions=(([],), NO_TOOLS),
        function_call=(("none", "auto"), NO_TOOLS),
        response_format=(({"type": "text"},), "an answer is plain text here: leave it out"),
    ),
)


_STREAM_OPTIONS = needs("stream_options", given("stream", {"const": True}))


class _OpenAI(_OpenAIFields):
    """What chat and plain completions share."""

    stream: bool | None = Field(None, description="Answer with chunks of the text, from its beginning on.")
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
        return "Text" if isinstance(value, str) else None
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

    model_config = ConfigDict(json_schema_extra=rules(THRESHOLD, _STREAM_OPTIONS))
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
        web_search_options=((), NO_TOOLS),
        reasoning_effort=(("none",), "models write nothing before their answer here: leave it out"),
        verbosity=(("medium",), "max_tokens says how long an answer may be here: leave it out"),
        moderation=((), "answers are not moderated here: leave it out"),
    ),
)


class ChatRequest(_ChatFields):
    """Messages to answer."""

    model_config = ConfigDict(
        json_schema_extra=rules(THRESHOLD, _STREAM_OPTIONS, not_both("max_tokens", "max_completion_tokens"))
    )
    messages: Messages = Field(description="A conversation; the last message is a user's.")
    prompt_cache_retention: str | None = Field(None, description="How long a prompt is kept; not used.")
    prompt_cache_options: dict[str, Any] | None = Field(None, description="How a prompt is kept; not used.")
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
