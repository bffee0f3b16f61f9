"""Ratings by a language model, against a local server: retries, malformed replies, a key kept secret."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dgmark.errors import SettingsError
from dgmark_lab.endpoint import Endpoint, EndpointError
from dgmark_lab.evaluate.ratings import PROMPT, Rating, rate_texts
from support.stub_endpoint import GOOD, StubEndpoint, answer, stub_endpoint

SECRET = "sk-not-a-real-key-but-secret"


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[StubEndpoint]:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    with stub_endpoint() as server:
        yield server


def test_texts_are_rated_with_the_papers_prompt(stub: StubEndpoint) -> None:
    assert rate_texts(["A text.", "Another."], stub.endpoint()) == [Rating(**GOOD)] * 2
    request = next(one for one in stub.requests if one["messages"][1]["content"] == "A text.")
    assert request["path"] == "/v1/chat/completions"
    assert request["messages"][0] == {"role": "system", "content": PROMPT}
    assert (request["temperature"], request["response_format"]) == (0.0, {"type": "json_object"})
    assert stub.headers[0]["authorization"] == f"Bearer {SECRET}"


def test_the_prompt_is_the_papers() -> None:
    assert PROMPT.startswith(
        "You are an impartial expert evaluator of linguistic text quality.\n\nThe given text is a "
    )
    assert PROMPT.endswith('{\n"coherence": number,\n"clarity": number,\n"naturalness": number,\n"overall": number\n}')
    assert len(PROMPT.split()) == 103


@pytest.mark.parametrize(
    "wrong",
    [
        f"Here you are: {json.dumps(GOOD)}",
        {**GOOD, "overall": "4"},
        {**GOOD, "clarity": 6},
        {**GOOD, "clarity": True},
        {**GOOD, "more": 1},
        {"coherence": 4},
        [4, 5, 3.5, 4.17],
        '{"coherence": NaN, "clarity": 5, "naturalness": 3.5, "overall": 4}',
        "[" * 100_000,
        None,
    ],
)
def test_a_reply_of_another_form_is_asked_for_again(stub: StubEndpoint, wrong: object) -> None:
    stub.script = [lambda: answer(wrong), lambda: answer(GOOD)]
    assert rate_texts(["A text."], stub.endpoint()) == [Rating(**GOOD)]
    assert len(stub.requests) == 2


def test_requests_that_fail_for_the_moment_are_repeated_and_a_code_fence_is_taken_off(stub: StubEndpoint) -> None:
    busy = (429, {"error": {"message": "slow down"}}, {"retry-after-ms": "1"})
    fenced = f"```json\n{json.dumps(GOOD)}\n```"
    stub.script = [lambda: busy, lambda: (503, b"<html>", {"retry-after-ms": "1"}), lambda: answer(fenced)]
    assert rate_texts(["A text."], stub.endpoint()) == [Rating(**GOOD)]
    assert len(stub.requests) == 3


def test_a_service_needs_a_key_or_an_address_and_has_to_be_there(
    stub: StubEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(SettingsError, match="OPENAI_API_KEY"):
        rate_texts(["A text."], Endpoint())
    assert rate_texts(["A text."], stub.endpoint()) == [Rating(**GOOD)]
    stub.server.server_close()
    (found,) = rate_texts(["A text."], stub.endpoint(attempts=1, timeout=1.0))
    assert "the service is unreachable" in str(found)


def late() -> tuple[int, Any, dict[str, str]]:
    time.sleep(0.6)
    return answer(GOOD)


@pytest.mark.parametrize(
    ("reply", "message", "requests"),
    [
        (late, r"no answer within 0\.2 seconds", 2),
        (lambda: (400, {"error": {"message": f"no such model, {SECRET}"}}, {}), "HTTP 400 no such model", 1),
        (lambda: (401, {"error": {"message": f"Incorrect API key provided: {SECRET}"}}, {}), "check OPENAI_API_KEY", 1),
        (lambda: answer("bad"), "2 attempts is in the requested form", 2),
    ],
)
def test_a_text_that_gets_no_usable_reply_fails_alone(
    stub: StubEndpoint, reply: Callable[[], Any], message: str, requests: int
) -> None:
    stub.script = [lambda: reply() if stub.texts[-1] == "bad" else answer(GOOD)]
    first, bad, last = rate_texts(["good", "bad", "good"], stub.endpoint(timeout=0.2, attempts=2), workers=1)
    assert first == last == Rating(**GOOD)
    assert isinstance(bad, EndpointError)
    assert re.search(message, str(bad))
    assert SECRET not in str(bad) + repr(stub.endpoint())
    assert len(stub.requests) == 2 + requests


@pytest.mark.parametrize("url", ["ftp://x/v1", "localhost:8000", "http://user:pass@host/v1", "https://h/v1?key=x"])
def test_invalid_urls_and_urls_with_secrets_are_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="base URL") as caught:
        Endpoint(base_url=url)
    assert "pass" not in str(caught.value)
