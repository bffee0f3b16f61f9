"""Questions to an OpenAI-compatible endpoint, retried with growing pauses; a repeated question is answered from disk.

The API key comes only from the environment, and goes only into the request. Knows nothing about the questions.
"""

import hashlib
import json
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from dgmark.errors import MissingExtra, ModelError, SettingsError
from dgmark.rows.outputs import atomic_write

if TYPE_CHECKING:
    import openai

KEY_VARIABLE = "OPENAI_API_KEY"
_REPLY_SCHEMA = 1
# Statuses that may change a moment later; connection errors and timeouts of the client are also retried.
_PASSING = (408, 409, 425, 429)
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
        pause: seconds before the second attempt; each further pause is twice as long, up to a minute. The service's
            Retry-After applies where it is longer.
        cache: folder that stores answers by the hash of the question; None stores nothing.
        sleep: function that waits between attempts.
    """

    model: str = "gpt-4o-mini"
    base_url: str | None = None
    temperature: float = 0.0
    max_tokens: int = 256
    json_mode: bool = True
    attempts: int = 5
    timeout: float = 60.0
    pause: float = 1.0
    cache: Path | None = None
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.timeout <= 0 or self.max_tokens < 1:
            raise SettingsError("attempts, timeout and max_tokens must be positive")
        url = urlsplit(self.base_url or "https://example")
        if url.username or url.password or url.query:
            raise SettingsError(f"leave secrets out of the base URL: the key is read from {KEY_VARIABLE}")
        if self.base_url == "" or url.scheme not in ("http", "https") or not url.hostname:
            raise SettingsError(
                f"the base URL {self.base_url!r} is not the address of a service: give one such as "
                "http://localhost:8000/v1, or none for OpenAI's own"
            )


def connect(endpoint: Endpoint) -> "openai.OpenAI":
    """Open a client for the endpoint; threads may share it.

    Raises:
        MissingExtra: the openai package is not installed.
        SettingsError: no API key is set, and the endpoint is OpenAI's own.
    """
    try:
        import openai
    except ModuleNotFoundError as error:
        raise MissingExtra("asking a language model needs openai: run `pip install ./lab`") from error
    key = os.environ.get(KEY_VARIABLE)
    if not key and endpoint.base_url is None:
        raise SettingsError(
            f"OpenAI's own endpoint needs a key: set {KEY_VARIABLE} in the environment, or give the address of another "
            "service (base_url, --base-url, --rater-url)"
        )
    return openai.OpenAI(api_key=key or "none", base_url=endpoint.base_url, timeout=endpoint.timeout, max_retries=0)


def ask(
    client: "openai.OpenAI",
    endpoint: Endpoint,
    messages: list[dict[str, str]],
    read: Callable[[str], T],
    *,
    seed: int | None = None,
) -> tuple[T, bool]:
    """Return the answer to some messages, and whether it came from the cache.

    Args:
        client: the client that `connect` opened.
        endpoint: the endpoint of the client.
        messages: dictionaries with "role" and "content".
        read: parses the answer's text; raises ValueError if it is not in the requested form. Such an answer is never
            stored, and the question is asked again.
        seed: seed of the service's sampling; None leaves it to the service.

    Raises:
        NoUsableAnswer: no attempt gave an answer in that form, or the service refuses this question.
        EndpointError: the service is unreachable, or answers no question now.
    """
    request = _request(endpoint, messages) | ({} if seed is None else {"seed": seed})
    path = None if endpoint.cache is None else endpoint.cache / f"{_fingerprint(endpoint, request)}.json"
    stored = None if path is None else _stored_reply(path)
    if stored is not None:
        try:
            return read(stored), True
        except ValueError:  # stored by another version
            pass
    answer, text = _ask_until_read(client, endpoint, request, read)
    if path is not None:
        content = {"schema": _REPLY_SCHEMA, "request": request, "reply": text}
        atomic_write(path, json.dumps(content, indent=1) + "\n")
    return answer, False


def _request(endpoint: Endpoint, messages: list[dict[str, str]]) -> dict[str, Any]:
    form = {"response_format": {"type": "json_object"}} if endpoint.json_mode else {}
    return {
        "model": endpoint.model,
        "messages": messages,
        "temperature": endpoint.temperature,
        "max_tokens": endpoint.max_tokens,
        **form,
    }


def _fingerprint(endpoint: Endpoint, request: dict[str, Any]) -> str:
    content = json.dumps([endpoint.base_url, request], sort_keys=True).encode()
    return hashlib.sha256(b"dgmark/endpoint/v1\0" + content).hexdigest()


def _stored_reply(path: Path) -> str | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    reply = content.get("reply") if isinstance(content, dict) else None
    return reply if isinstance(reply, str) else None


def _ask_until_read(
    client: "openai.OpenAI", endpoint: Endpoint, request: dict[str, Any], read: Callable[[str], T]
) -> tuple[T, str]:
    """Ask up to `attempts` times; return what was read, and the text that it was read from."""
    import openai

    reason = ""
    for attempt in range(endpoint.attempts):
        stated, kind = 0.0, EndpointError
        try:
            text = _text(client.chat.completions.create(**request))
            return read(text), text
        except openai.APIStatusError as error:
            reason = _reason(error)
            if error.status_code not in _PASSING and error.status_code < 500:
                kind = NoUsableAnswer if error.status_code in _BAD_QUESTION else EndpointError
                raise kind(f"the endpoint refuses to answer: {reason}") from None
            stated = _retry_after(error)
        except openai.APITimeoutError:
            reason = f"no answer within {endpoint.timeout:g} seconds"
        except openai.APIConnectionError:
            reason = "the service is unreachable"
        except (openai.APIError, ValueError) as error:  # not JSON, or not in the requested form
            reason = f"the answer is not in the requested form ({str(error).splitlines()[0][:200]})"
            kind = NoUsableAnswer
        if attempt + 1 < endpoint.attempts:
            wait = min(60.0, endpoint.pause * 2**attempt) * random.uniform(0.75, 1.25)  # noqa: S311 (no secret)
            endpoint.sleep(max(wait, stated))
    raise kind(f"no answer from {endpoint.model} in {endpoint.attempts} attempts; the last: {reason}")


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


def _reason(error: "openai.APIStatusError") -> str:
    """Return the reason that the service states, without anything that may quote the key."""
    if error.status_code in _SECRET_STATUS:
        return f"HTTP {error.status_code}; check {KEY_VARIABLE} and its permissions"
    said = str(error.body.get("message", "") if isinstance(error.body, dict) else "")
    key = os.environ.get(KEY_VARIABLE)
    return f"HTTP {error.status_code} {said.replace(key, '...') if key else said}".strip()[:300]


def _retry_after(error: "openai.APIStatusError") -> float:
    """Return the seconds that the service asks to wait, at most a minute."""
    try:
        return min(60.0, max(0.0, float(error.response.headers.get("retry-after", 0))))
    except ValueError:  # a date
        return 0.0
