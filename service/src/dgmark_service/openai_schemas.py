"""The fields of requests in OpenAI's form: those of `/v1/generate`, and what OpenAI's clients send beside them.

A body may hold any other field. One that would change the answer and is not served may only have a value that changes
nothing.
"""

from typing import Annotated, Any

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator

from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.generation_schemas import MAX_TOKENS, Messages, SamplingRequest, Stop
from dgmark_service.schemas import Items, RequestFields, TokenId

MAX_STOPS = 4
MAX_TEXTS = 8  # of one prompt
MAX_PROMPTS = 1000


class StreamOptions(RequestFields):
    """What a stream says beside the text."""

    model_config = ConfigDict(extra="ignore")
    include_usage: bool | None = Field(None, description="Count the tokens in a last chunk; by default no.")


_REPEATS = "tokens that the text has already are not made less likely here: leave it out"
_SINGLE_TOKENS = "single tokens are not made more or less likely here: leave it out"
_STOPS = "a text ends at the model's end token, at its length or at `stop`: leave it out"
_FORM = "an answer is plain text in no given form here: leave it out"
_NO_PROBABILITIES = "tokens are written out of order here, so an answer has no probabilities of theirs: leave it out"
# fields of OpenAI's and of others' servers that would change the answer and are not served: the value that changes
# nothing, and what is said of others
NOT_SERVED: dict[str, tuple[Any, str]] = {
    "presence_penalty": (0, _REPEATS),
    "frequency_penalty": (0, _REPEATS),
    "repetition_penalty": (1, _REPEATS),
    "no_repeat_ngram_size": (0, _REPEATS),
    "logit_bias": ({}, _SINGLE_TOKENS),
    "allowed_token_ids": ([], _SINGLE_TOKENS),
    "bad_words": ([], _SINGLE_TOKENS),
    "min_p": (0, "unlikely tokens are left out by top_k and top_p here: leave it out"),
    "min_tokens": (0, _STOPS),
    "ignore_eos": (False, _STOPS),
    "stop_token_ids": ([], _STOPS),
    "use_beam_search": (False, "a text is drawn once here: leave it out"),
    "logprobs": (False, _NO_PROBABILITIES),
    "top_logprobs": (0, _NO_PROBABILITIES),
    "prompt_logprobs": (0, _NO_PROBABILITIES),
    "echo": (False, "an answer does not repeat its prompt here: leave it out"),
    "suffix": ("", "a text before a given end is what /v1/infill fills: leave it out"),
    "best_of": (1, "no more texts are written here than are answered: leave it out, and ask for several with n"),
    "tools": ([], "models call no tools here: leave it out"),
    "functions": ([], "models call no tools here: leave it out"),
    "response_format": ({"type": "text"}, _FORM),
    **dict.fromkeys(("structured_outputs", "regex", "json_schema", "grammar"), ({}, _FORM)),
    **dict.fromkeys(("guided_json", "guided_regex", "guided_choice", "guided_grammar"), ({}, _FORM)),
}
# a `top_k` of others' servers that means none
_NO_TOP_K = (-1, 0)


class _OpenAI(SamplingRequest):
    """What chat and plain completions share. Fields that are not among these are not used."""

    model_config = ConfigDict(extra="ignore")
    needs = (*SamplingRequest.needs, ("stream_options", "stream", True))

    stream: bool | None = Field(None, description="Answer with chunks of the text, from its beginning on.")
    stream_options: StreamOptions | None = None
    stop: Stop | Annotated[list[Stop], Field(max_length=MAX_STOPS)] | None = Field(
        None, description="What ends the text where it would first stand in it."
    )
    n: int | None = Field(None, ge=1, le=MAX_TEXTS, description="Number of texts of each prompt; by default 1.")

    @classmethod
    def describe(cls, schema: dict[str, Any]) -> None:
        """Add the rules, and the fields that are not served, to the JSON schema."""
        super().describe(schema)
        for name, (value, why) in NOT_SERVED.items():
            schema["properties"][name] = {"enum": [None, value], "description": f"{why}."}

    @model_validator(mode="before")
    @classmethod
    def _served(cls, value: object) -> object:
        for name, (neutral, why) in NOT_SERVED.items():
            given = value.get(name) if isinstance(value, dict) else None
            all_of_them = name == "best_of" and isinstance(value, dict) and given == value.get("n")
            # in JSON, false is not 0
            same = given == neutral and isinstance(given, bool) == isinstance(neutral, bool)
            if given is not None and not (same or all_of_them):
                raise ErrorAnswer(400, why, param=name)
        if isinstance(value, dict) and value.get("top_k") in _NO_TOP_K:
            return {**value, "top_k": None}
        return value

    @property
    def stops(self) -> list[str]:
        """What ends the text."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


def _kind_of_prompt(value: object) -> str | None:
    """Which type a prompt has, by what stands first in it."""
    if not isinstance(value, list):
        return "Text" if isinstance(value, str) else None
    return "Prompts" if value and isinstance(value[0], str | list) else "TokenIds"


class CompletionRequest(_OpenAI):
    """A text to continue, or several."""

    prompt: Annotated[
        Annotated[str, Tag("Text")]
        | Annotated[Items[TokenId], Tag("TokenIds")]
        | Annotated[Items[str | Items[TokenId]], Field(min_length=1, max_length=MAX_PROMPTS), Tag("Prompts")],
        Discriminator(_kind_of_prompt),
    ] = Field(description="Text, or token ids, to continue, or a list of these.")

    @property
    def prompts(self) -> list[Any]:
        """The texts, or token ids, to continue."""
        return list(self.prompt) if _kind_of_prompt(self.prompt) == "Prompts" else [self.prompt]


class ChatRequest(_OpenAI):
    """Messages to answer."""

    one_at_most = ("max_tokens", "max_completion_tokens")
    messages: Messages = Field(description="A conversation; the last message is a user's.")
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="Another name for max_tokens.")
