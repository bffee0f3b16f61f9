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


# fields of OpenAI's and of others' servers that would change the answer and are not served, by what is said of them
_NOT_SERVED = {
    "tokens that the text has already are not made less likely here": "presence_penalty frequency_penalty "
    "repetition_penalty no_repeat_ngram_size",
    "single tokens are not made more or less likely here": "logit_bias allowed_token_ids bad_words",
    "unlikely tokens are left out by top_k and top_p here": "min_p",
    "a text ends at the model's end token, at its length or at `stop`": "min_tokens ignore_eos stop_token_ids",
    "tokens are written out of order here, so an answer has no probabilities of theirs": "logprobs prompt_logprobs",
    "an answer does not repeat its prompt here": "echo",
    "a text before a given end is what /v1/infill fills": "suffix",
    "no more texts are written here than are answered (ask for several with n)": "best_of use_beam_search",
    "models call no tools here": "tools functions",
    "an answer is plain text in no given form here": "response_format structured_outputs guided_json guided_regex "
    "guided_choice guided_grammar",
}
NOT_SERVED = {name: f"{why}: leave it out" for why, names in _NOT_SERVED.items() for name in names.split()}
# the values of such a field that change nothing
_OFF: tuple[Any, ...] = (None, False, 0, "", [], {})
_OFF_OF: dict[str, tuple[Any, ...]] = {"response_format": (None, {"type": "text"}), "logprobs": (None, False)}
_OFF_OF |= dict.fromkeys(("repetition_penalty", "best_of"), (None, 1))
_NO_TOP_K = (-1, 0)  # a `top_k` of others' servers that means none


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
        for name, why in NOT_SERVED.items():
            schema["properties"][name] = {"enum": list(_OFF_OF.get(name, _OFF)), "description": f"{why}."}

    @model_validator(mode="before")
    @classmethod
    def _served(cls, value: object) -> object:
        if not isinstance(value, dict):
            return value
        for name, why in NOT_SERVED.items():
            given, off = value.get(name), _OFF_OF.get(name, _OFF)
            # in JSON, false is not 0
            same = any(given == one and isinstance(given, bool) == isinstance(one, bool) for one in off)
            if not same and not (name == "best_of" and given == value.get("n")):
                raise ErrorAnswer(400, why, param=name)
        return {**value, "top_k": None} if value.get("top_k") in _NO_TOP_K else value

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

    prefix = "cmpl"
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

    prefix = "chatcmpl"
    one_at_most = ("max_tokens", "max_completion_tokens")
    messages: Messages = Field(description="A conversation; the last message is a user's.")
    max_completion_tokens: int | None = Field(None, ge=1, le=MAX_TOKENS, description="Another name for max_tokens.")
