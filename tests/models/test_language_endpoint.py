"""A language model behind a server: what is asked, how its tokens are placed, and answers of other kinds."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from dgmark import Detector, LanguageEndpoint
from dgmark.errors import ModelError, SettingsError
from dgmark.models.language_endpoint import _offsets_of
from dgmark.models.surprisal_models import load_surprisal_model
from support.known_keys import known_key
from support.marked_texts import marked_text
from support.stub_servers import Answer, Serve, stub_servers


@pytest.fixture
def serve() -> Iterator[Serve]:
    with stub_servers() as start:
        yield start


def echoed(asked: dict[str, Any]) -> dict[str, Any]:
    """What vLLM answers: a begin token, a token a letter, and the one token that must be generated."""
    tokens = ["<s>", *asked["prompt"], " end"]
    logprobs = {"tokens": tokens, "token_logprobs": [None, *[-2.5] * (len(tokens) - 1)], "text_offset": []}
    return {"choices": [{"index": 0, "text": "".join(tokens), "finish_reason": "length", "logprobs": logprobs}]}


def test_a_text_is_sent_with_echo_and_its_tokens_are_placed(serve: Any) -> None:
    url, asked = serve(echoed)
    endpoint = LanguageEndpoint(url)
    ((offsets, nats),) = endpoint.surprisals(["ab ä"])
    assert offsets.tolist() == [[0, 0], [0, 1], [1, 2], [2, 3], [3, 4]]
    assert nats.tolist() == [0.0, 2.5, 2.5, 2.5, 2.5]
    wanted = {"model": "small", "prompt": "ab ä", "echo": True, "logprobs": 1}
    assert wanted.items() <= asked[0].items()
    assert endpoint.surprisals([""])[0][1].size == 0
    assert len(asked) == 1


def test_a_detector_weighs_by_a_server(serve: Any) -> None:
    key, (url, _) = known_key("endpoint", rule="bigram"), serve(echoed)
    endpoint = load_surprisal_model(f"{url}#small", key.spec.tokenizer_fingerprint)
    found = Detector(key, surprisal_model=endpoint).detect(marked_text(key, 60))
    assert found.weights is not None
    assert (found.test, found.weights.model) == ("weighted", "small")
    assert found.weights.fingerprint == LanguageEndpoint("http://another/v1", "small").fingerprint


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda _: {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}, "gives no log-probabilities"),
        (lambda _: {"choices": []}, "gives no log-probabilities"),
        (lambda _: {"status": 400, "error": {"message": "too long"}}, "refused a text: .*too long"),
        (lambda asked: echoed({"prompt": asked["prompt"].upper()}), "are not those of the text"),
        (lambda asked: echoed({"prompt": asked["prompt"][:3]}), "are not those of the text"),
        # as llama.cpp's server answers: of the generated token only
        (lambda _: echoed({"prompt": ""}), "are not those of the text"),
    ],
)
def test_other_answers_are_errors_and_nothing_is_counted(serve: Any, answer: Answer, message: str) -> None:
    key, (url, _) = known_key("endpoint", rule="bigram"), serve(answer)
    with pytest.raises(ModelError, match=message):
        Detector(key, surprisal_model=LanguageEndpoint(url)).detect("some text of a few words")


def test_a_server_that_is_late_away_or_of_many_models_is_an_error(serve: Any) -> None:
    def late(asked: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.5)
        return echoed(asked)

    with pytest.raises(ModelError, match="did not answer in time"):
        LanguageEndpoint(serve(late)[0], "small", timeout=0.05).surprisals(["a"])
    with pytest.raises(ModelError, match="cannot be reached"):
        LanguageEndpoint("http://127.0.0.1:9/v1", "small", timeout=1).surprisals(["a"])
    with pytest.raises(ModelError, match="serves 2 models \\(a, b\\): name one"):
        LanguageEndpoint(serve(echoed, ("a", "b"))[0]).surprisals(["a"])
    with pytest.raises(SettingsError, match="no address of a server"):
        LanguageEndpoint("localhost:8000")


@pytest.mark.parametrize(
    ("text", "tokens", "offsets"),
    [
        ("a日b", ["a", "\ufffd", "\ufffd", "b"], [(0, 1), (1, 2), (1, 2), (2, 3)]),
        ("日", ["bytes:\\xe6", "bytes:\\x97", "bytes:\\xa5"], [(0, 1)] * 3),
        ("ab", ["ab", " more"], [(0, 2)]),
        ("ab", ["<s>", "a", "b"], [(0, 0), (0, 1), (1, 2)]),
        ("ab", ["a", "c"], None),
        ("ab", ["a"], None),
    ],
)
def test_tokens_are_placed_by_their_characters(
    text: str, tokens: list[str], offsets: list[tuple[int, int]] | None
) -> None:
    assert _offsets_of(text, tokens) == offsets
