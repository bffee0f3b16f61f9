"""Questions to an OpenAI-compatible endpoint. The client of the openai package repeats failed requests, with pauses.

The API key comes only from the environment, and goes only into the request. Knows nothing about the questions.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import openai

from dgmark.errors import ModelError, SettingsError

KEY_VARIABLE = "OPENAI_API_KEY"
_SECRET_STATUS = (401, 403)  # their messages may quote the key
_BAD_QUESTION = (400, 413, 422)  # this question is at fault: others may be answered

T = TypeVar("T")


class EndpointError(ModelError):
    """A model behind an endpoint does not answer, or not in the requested form."""


class NoUsableAnswer(EndpointError):
    """The endpoint works, but refuses this question, or gives no answer to it in the form that was asked for."""


@dataclass(frozen=True)
class Endpoint:
    """An endpoint, and how to ask it.

    Attributes:
        model: the model's name at the service.
        base_url: URL of an OpenAI-compatible service, such as a local vLLM; None for OpenAI's own.
        temperature: sampling temperature of the answers.
        max_tokens: most tokens of an answer.
        json_mode: whether to ask the service for JSON only; some services do not support this.
        attempts: how often a question is asked at most.
        timeout: seconds that an answer may take.
    """

    model: str = "gpt-4o-mini"
    base_url: str | None = None
    temperature: float = 0.0
    max_tokens: int = 256
    json_mode: bool = True
    attempts: int = 5
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.timeout <= 0 or self.max_tokens < 1 or self.temperature < 0:
            raise SettingsError("attempts, timeout and max_tokens must be positive, and the temperature at least 0")
        url = urlsplit(self.base_url or "https://example")
        if url.username or url.password or url.query:
            raise SettingsError(f"leave secrets out of the base URL: the key is read from {KEY_VARIABLE}")
        if self.base_url == "" or url.scheme not in ("http", "https") or not url.hostname:
            raise SettingsError(
                f"the base URL {self.base_url!r} is not the address of a service: give one such as "
                "http://localhost:8000/v1, or none for OpenAI's own"
            )


def connect(endpoint: Endpoint) -> openai.OpenAI:
    """Open a client for the endpoint; threads may share it.

    Raises:
        SettingsError: no API key is set, and the endpoint is OpenAI's own.
    """
    key = os.environ.get(KEY_VARIABLE)
    if not key and endpoint.base_url is None:
        raise SettingsError(
            f"OpenAI's own endpoint needs a key: set {KEY_VARIABLE} in the environment, or give the address of another "
            "service (base_url, --base-url, --rater-url)"
        )
    return openai.OpenAI(
        api_key=key or "none",
        base_url=endpoint.base_url,
        timeout=endpoint.timeout,
        max_retries=endpoint.attempts - 1,
    )


def ask(
    client: openai.OpenAI,
    endpoint: Endpoint,
    messages: list[dict[str, str]],
    read: Callable[[str], T],
    *,
    seed: int | None = None,
) -> T:
    """Return the answer to some messages.

    Args:
        client: the client that `connect` opened.
        endpoint: the endpoint of the client.
        messages: dictionaries with "role" and "content".
        read: parses the answer's text; raises ValueError if it is not in the requested form. Then the question is
            asked again.
        seed: seed of the service's sampling; None leaves it to the service.

    Raises:
        NoUsableAnswer: no attempt gave an answer in that form, or the service refuses this question.
        EndpointError: the service is unreachable, or answers no question now.
    """
    request: dict[str, Any] = {
        "model": endpoint.model,
        "messages": messages,
        "temperature": endpoint.temperature,
        "max_tokens": endpoint.max_tokens,
        **({"response_format": {"type": "json_object"}} if endpoint.json_mode else {}),
        **({} if seed is None else {"seed": seed}),
    }
    reason = ""
    for _ in range(endpoint.attempts):
        try:
            return read(_text(client.chat.completions.create(**request)))
        except openai.APIStatusError as error:
            kind = NoUsableAnswer if error.status_code in _BAD_QUESTION else EndpointError
            raise kind(f"the endpoint refuses to answer: {_reason(error)}") from None
        except openai.APITimeoutError:
            raise EndpointError(f"{endpoint.model} gives no answer within {endpoint.timeout:g} seconds") from None
        except openai.APIConnectionError:
            raise EndpointError("the service is unreachable: check its address") from None
        except (openai.APIError, ValueError) as error:  # not JSON, or not in the requested form
            reason = str(error).splitlines()[0][:200]
    raise NoUsableAnswer(
        f"no answer from {endpoint.model} in {endpoint.attempts} attempts is in the requested form; the last: {reason}"
    )


def _text(completion: Any) -> str:
    """Return the answer's text. Services that are compatible in name only leave fields out.

    Raises:
        ValueError: the answer has no text.
    """
    choices = getattr(completion, "choices", None)
    content = getattr(getattr(choices[0], "message", None), "content", None) if choices else None
    if not isinstance(content, str):
        raise ValueError("the answer has no text")
    return content


def _reason(error: openai.APIStatusError) -> str:
    """Return the reason that the service states, without anything that may quote the key."""
    if error.status_code in _SECRET_STATUS:
        return f"HTTP {error.status_code}; check {KEY_VARIABLE} and its permissions"
    said = str(error.body.get("message", "") if isinstance(error.body, dict) else "")
    key = os.environ.get(KEY_VARIABLE)
    return f"HTTP {error.status_code} {said.replace(key, '...') if key else said}".strip()[:300]
