"""A language model on a server: what is asked, how its tokens are placed, and answers of other kinds."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from dgmark import Detector, LanguageEndpoint
from dgmark.checkpoint.tokenizer import load_tokenizer
from dgmark.errors import ModelError, SettingsError
from dgmark.models.surprisal_models import load_surprisal_model
from support.known_keys import known_key, weight_figures
from support.marked_texts import marked_text
from support.stub_servers import Answer, Serve, ask_again_soon, stub_servers


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


def test_what_was_generated_is_left_out_by_the_number_of_tokens_that_were_read(serve: Any) -> None:
    logprobs = {"tokens": ["a", "\ufffd", "\ufffd", "\ufffd"], "token_logprobs": [None, -1.0, -2.0, -9.0]}
    choice = {"index": 0, "text": "aé", "finish_reason": "length", "logprobs": logprobs}
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    url, _ = serve(lambda _: {"choices": [choice], "usage": usage})
    ((offsets, nats),) = LanguageEndpoint(url).surprisals(["aé"])
    assert (offsets.tolist(), nats.tolist()) == ([[0, 1], [1, 2], [1, 2]], [0.0, 1.0, 2.0])


@pytest.mark.parametrize("in_place_of_bytes", [[0xF0, 0x9F], None, [0xEF, 0xBF, 0xBD]])
def test_bytes_are_taken_where_a_server_gives_them(serve: Any, in_place_of_bytes: list[int] | None) -> None:
    """As llama.cpp does, and Ollama, which gives those of the sign for what cannot be shown."""
    tokens = [
        ("a", [97]),
        ("\ufffd", in_place_of_bytes),
        ("\ufffd", None if in_place_of_bytes is None else [0xA6, 0x8A]),
    ]
    content = [{"token": token, "bytes": each, "logprob": -1.0} for token, each in tokens]
    choice = {"index": 0, "text": "a", "finish_reason": "length", "logprobs": {"content": content}}
    ((offsets, nats),) = LanguageEndpoint(serve(lambda _: {"choices": [choice]})[0]).surprisals(["a\U0001f98a"])
    assert (offsets.tolist(), nats.tolist()) == ([[0, 1], [1, 2], [1, 2]], [1.0] * 3)


def test_ids_are_decoded_by_the_tokenizer_of_the_model(serve: Any) -> None:
    text = "The grey fox \U0001f98a sat."
    own = load_tokenizer("storyteller").encode_with_offsets(text)

    def answer(_: dict[str, Any]) -> dict[str, Any]:
        tokens = [f"token_id:{one}" for one in [7, *own.ids, 9]]
        logprobs = {"tokens": tokens, "token_logprobs": [None, *[-1.0] * (len(tokens) - 1)]}
        return {"choices": [{"index": 0, "text": text, "finish_reason": "length", "logprobs": logprobs}]}

    url, _ = serve(answer)
    ((offsets, nats),) = LanguageEndpoint(url, tokenizer="storyteller").surprisals([text])
    assert list(map(tuple, offsets.tolist())) == [(0, 0), *own.offsets]
    assert nats.sum() == len(own.ids)
    with pytest.raises(ModelError, match="tokenizer of small is not here"):
        LanguageEndpoint(url).surprisals([text])


@pytest.mark.parametrize("share", [0.3, 0.8, 1.0])
def test_tokens_without_a_number_are_an_error(serve: Any, share: float) -> None:
    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        found = echoed(asked)
        logs = found["choices"][0]["logprobs"]["token_logprobs"]
        logs[: round(share * len(logs))] = [None] * round(share * len(logs))
        return found

    with pytest.raises(ModelError, match=r"gives no log-probability of .* only the first may have none"):
        LanguageEndpoint(serve(answer)[0]).surprisals(["some text of a few words"])


def test_a_detector_weighs_by_a_server(serve: Any) -> None:
    key, (url, _) = known_key("endpoint", rule="bigram"), serve(echoed)
    endpoint = load_surprisal_model(f"{url}#small", key.spec.tokenizer_fingerprint)
    found = Detector(key, surprisal_model=endpoint).detect(marked_text(key, 60))
    assert (found.test, weight_figures(found).model) == ("weighted", "small")
    assert weight_figures(found).fingerprint == LanguageEndpoint("http://another/v1", "small").fingerprint


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


def test_a_server_that_is_late_away_or_of_many_models_is_an_error(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_again_soon(monkeypatch)

    def late(asked: dict[str, Any]) -> dict[str, Any]:
        time.sleep(0.5)
        return echoed(asked)

    with pytest.raises(ModelError, match="did not answer in time"):
        LanguageEndpoint(serve(late)[0], "small", timeout=0.05).surprisals(["a"])
    with pytest.raises(ModelError, match="cannot be reached"):
        LanguageEndpoint("http://127.0.0.1:9/v1", "small", timeout=1).surprisals(["a"])
    with pytest.raises(ModelError, match="serves 2 models \\(a, b\\): name one"):
        LanguageEndpoint(serve(echoed, ("a", "b"))[0]).surprisals(["a"])


@pytest.mark.parametrize(
    "url",
    ["localhost:8000", "http://[::1", "http://", "http://host:port/v1", "http://a\nb/v1", "ftp://user:secret@host"],
)
def test_what_is_not_an_address_is_refused_and_no_password_is_shown(url: str) -> None:
    with pytest.raises(SettingsError, match="is not an address of a server") as raised:
        LanguageEndpoint(url)
    assert "secret" not in str(raised.value)


def test_errors_show_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_again_soon(monkeypatch)
    with pytest.raises(ModelError, match=r"http://\*\*\*@127.0.0.1:9/v1 cannot be reached") as raised:
        LanguageEndpoint("http://user:sec@ret@127.0.0.1:9/v1", "small", timeout=1).surprisals(["a"])
    assert "ret" not in str(raised.value).replace("reached", "")
