"""Questions to an OpenAI-compatible endpoint: retried with growing pauses, answered from disk the second time.

The key comes from the environment alone, and goes nowhere but into the request. Knows nothing of what is asked.
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

from dgmark.errors import EndpointError, MissingExtra, NoUsableAnswer, SettingsError, install_hint
from dgmark.rows.whole_files import write_whole

if TYPE_CHECKING:
    import openai

KEY_VARIABLE = "OPENAI_API_KEY"
_REPLY_SCHEMA = 1
# Answers that may be others a moment later; the client's own errors of connection and time are retried too.
_PASSING = (408, 409, 425, 429)
_SECRET_STATUS = (401, 403)  # whose texts may quote the key
_BAD_QUESTION = (400, 413, 422)  # the question's fault: others may be answered

T = TypeVar("T")


@dataclass(frozen=True)
class Endpoint:
    """Where and how to ask.

    Attributes:
        model: the model's name there.
        base_url: of an OpenAI-compatible service, such as a local vLLM; None for OpenAI's own.
        temperature: of the answers.
        max_tokens: most tokens of an answer.
        json_mode: whether to ask the service for JSON only; some know no such thing.
        attempts: how often a question is asked at most.
        timeout: seconds for an answer.
        pause: seconds before the second attempt; each further pause is twice as long, up to a minute, and the service's
            own Retry-After counts where it is longer.
        cache: a folder that answers are kept in, by the hash of the question; None keeps none.
        sleep: what waits between attempts.
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
        if url.scheme not in ("http", "https") or not url.hostname:
            raise SettingsError(f"the base URL {self.base_url!r} is none: it begins with http:// or https://")


def connect(endpoint: Endpoint) -> "openai.OpenAI":
    """A client for the endpoint; threads may share it.

    Raises:
        MissingExtra: the openai package is not installed.
        SettingsError: there is no key, and the endpoint is OpenAI's own.
    """
    try:
        import openai
    except ModuleNotFoundError as error:
        raise MissingExtra(f"asking a language model needs openai: {install_hint('judge')}") from error
    key = os.environ.get(KEY_VARIABLE)
    if not key and endpoint.base_url is None:
        raise SettingsError(f"set {KEY_VARIABLE} in the environment, or give the base URL of a service without keys")
    return openai.OpenAI(api_key=key or "none", base_url=endpoint.base_url, timeout=endpoint.timeout, max_retries=0)


def ask(
    client: "openai.OpenAI",
    endpoint: Endpoint,
    messages: list[dict[str, str]],
    read: Callable[[str], T],
    *,
    seed: int | None = None,
) -> tuple[T, bool]:
    """The answer to some messages, and whether it came from the cache.

    Args:
        client: of `connect`.
        endpoint: the settings it was made with.
        messages: of roles and contents.
        read: from the answer's text to what it says; raises ValueError where it is not in the form asked for. Such an
            answer is asked for again, and never kept.
        seed: of the service's sampling; None leaves it to the service.

    Raises:
        NoUsableAnswer: no answer in that form within the attempts, or the service refuses this question.
        EndpointError: the service cannot be reached, or answers no question now.
    """
    request = _request(endpoint, messages) | ({} if seed is None else {"seed": seed})
    path = None if endpoint.cache is None else endpoint.cache / f"{_fingerprint(endpoint, request)}.json"
    kept = None if path is None else _kept(path)
    if kept is not None:
        try:
            return read(kept), True
        except ValueError:  # kept by another version
            pass
    found, text = _attempts(client, endpoint, request, read)
    if path is not None:
        kept_answer = {"schema": _REPLY_SCHEMA, "request": request, "reply": text}
        write_whole(path, json.dumps(kept_answer, indent=1) + "\n")
    return found, False


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


def _kept(path: Path) -> str | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    reply = content.get("reply") if isinstance(content, dict) else None
    return reply if isinstance(reply, str) else None


def _attempts(
    client: "openai.OpenAI", endpoint: Endpoint, request: dict[str, Any], read: Callable[[str], T]
) -> tuple[T, str]:
    """What was read, and the text that it was read from."""
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
            reason = "it cannot be reached"
        except (openai.APIError, ValueError) as error:  # no JSON, or not the JSON that was asked for
            reason = f"the answer is not in the form asked for ({str(error).splitlines()[0][:200]})"
            kind = NoUsableAnswer
        if attempt + 1 < endpoint.attempts:
            wait = min(60.0, endpoint.pause * 2**attempt) * random.uniform(0.75, 1.25)  # noqa: S311 (no secret)
            endpoint.sleep(max(wait, stated))
    raise kind(f"no answer of {endpoint.model} in {endpoint.attempts} attempts; the last: {reason}")


def _text(completion: Any) -> str:
    """The answer's text; services that are compatible in name only leave fields out.

    Raises:
        ValueError: there is none.
    """
    choices = getattr(completion, "choices", None)
    content = getattr(getattr(choices[0], "message", None), "content", None) if choices else None
    if not isinstance(content, str):
        raise ValueError("the answer has no text")
    return content


def _reason(error: "openai.APIStatusError") -> str:
    """What a service says, without what may quote the key."""
    if error.status_code in _SECRET_STATUS:
        return f"HTTP {error.status_code}; check {KEY_VARIABLE} and what it may use"
    said = str(error.body.get("message", "") if isinstance(error.body, dict) else "")
    key = os.environ.get(KEY_VARIABLE)
    return f"HTTP {error.status_code} {said.replace(key, '...') if key else said}".strip()[:300]


def _retry_after(error: "openai.APIStatusError") -> float:
    """Seconds that the service asks to wait, at most a minute."""
    try:
        return min(60.0, max(0.0, float(error.response.headers.get("retry-after", 0))))
    except ValueError:  # a date
        return 0.0
