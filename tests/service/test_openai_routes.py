"""OpenAI's interface, asked by OpenAI's own client, on a real server with a tiny model."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest

import dgmark
from dgmark.models.chat import chat_prompt
from dgmark.models.loaded import LoadedModel
from support import tiny_checkpoints
from support.services import bearer, tiny_service

pytestmark = pytest.mark.slow
SHORT: dict[str, Any] = {"model": "tiny", "max_tokens": 24, "seed": 5, "extra_body": {"block_length": 8}}
USER: Any = [{"role": "user", "content": "w3 w4"}]
SETTINGS: Any = {"length": 24, "block_length": 8, "seed": 5}


class Served:
    """A running service and its client, with the same model and key here."""

    def __init__(self, client: openai.OpenAI, model: LoadedModel, key: dgmark.WatermarkKey) -> None:
        self.client, self.model, self.key = client, model, key

    def alone(self, prompt: Any, *, marked: bool = True, **more: Any) -> Any:
        key = self.key if marked else None
        return dgmark.generate(self.model, prompt, key=key, **{**SETTINGS, **more})[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("openai")
    tiny_checkpoints.write(folder / "tiny", "llada")
    tokens = folder / "tokens.json"
    token = bearer(tokens, "client", "generate")["authorization"].removeprefix("Bearer ")
    with (
        tiny_service(folder, "tiny", tokens=tokens, generate_keys=("main",)) as (url, _, model, keys),
        openai.OpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as client,
    ):
        yield Served(client, model, keys["main"])


def test_a_chat_completion(served: Served) -> None:
    several = [("system", "w5"), ("user", "w3"), ("assistant", "w6"), ("user", "w4")]
    messages: Any = [{"role": role, "content": content} for role, content in several]
    messages[0]["role"] = "developer"  # OpenAI's newer word for the system
    neutral: Any = {
        "tools": None,
        "logit_bias": {},
        "store": False,
        "parallel_tool_calls": True,
        "response_format": {"type": "text"},
    }
    answer = served.client.chat.completions.create(messages=messages, **SHORT, **neutral)
    alone = served.alone([chat_prompt(served.model, several)])
    assert answer.choices[0].message.content == alone.text
    assert answer.choices[0].finish_reason == ("stop" if alone.ended else "length")
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(alone.token_ids)
    fields: Any = answer.model_dump()
    assert (fields["num_denoising_steps"], fields["block_length"]) == (len(alone.trace.step), 8)
    assert fields["watermark"]["enabled"]
    assert fields["watermark"]["key_fingerprint"] == served.key.fingerprint

    body = {"block_length": 8, "watermark": False}
    unmarked = served.client.completions.create(prompt=[[5, 6]], **{**SHORT, "extra_body": body})
    assert unmarked.choices[0].text == served.alone([[5, 6]], marked=False).text
    assert not unmarked.model_dump()["watermark"]["enabled"]


def test_several_texts_in_a_request_are_refused_and_what_to_do_is_said(served: Served) -> None:
    for param, value in (("n", 2), ("n", 0), ("prompt", ["w1", "w2"]), ("prompt", [[5], [6]])):
        with pytest.raises(openai.BadRequestError, match="send one for each text") as refused:
            served.client.completions.create(**{"prompt": "w1", **SHORT, param: value})
        assert refused.value.param == param


@pytest.mark.parametrize("chat", [False, True])
def test_chunks_add_up_to_the_answer_and_stop_ends_it(served: Served, chat: bool) -> None:
    client: Any = served.client.chat if chat else served.client
    whole = served.alone("w3 w4", chat=chat).text
    stop = max(whole.split(), key=whole.index)  # as a stop is found: within words too
    asked: dict[str, Any] = {"stop": ["nowhere", stop] if chat else stop, "n": 1, **SHORT}
    asked |= {"messages": USER} if chat else {"prompt": "w3 w4"}
    answer = client.completions.create(**asked)
    *chunks, counts = client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
    (own,), parts = answer.choices, [chunk.choices[0] for chunk in chunks]
    pieces = [choice.delta.content or "" if chat else choice.text for choice in parts]
    assert "".join(pieces) == (own.message.content if chat else own.text) == whole[: whole.index(stop)]
    assert [choice.finish_reason for choice in parts] == [None] * (len(parts) - 1) + ["stop"]
    assert own.finish_reason == "stop"
    uncounted = client.completions.create(**asked, stream=True)
    assert all("usage" not in chunk.model_fields_set for chunk in uncounted)
    assert not chat or [choice.delta.role for choice in parts] == ["assistant"] + [None] * (len(parts) - 1)
    assert len(parts) > 2  # how many steps a chunk has depends on how fast they are read
    assert chunks[-1].watermark["enabled"] is True
    assert len({chunk.id for chunk in [*chunks, counts]}) == 1
    assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
    assert (counts.choices, counts.usage.prompt_tokens) == ([], answer.usage.prompt_tokens)


def test_the_models_are_listed(served: Served) -> None:
    assert [model.id for model in served.client.models.list()] == ["tiny"]
    assert served.client.models.retrieve("tiny").object == "model"
    with pytest.raises(openai.NotFoundError) as missing:
        served.client.models.retrieve("org/gpt")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.AuthenticationError):
        served.client.with_options(api_key="dgm_wrong").models.list()


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format.type"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": 0, "stream": True}, "temperature"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": "a" * 201}, "stop"),
        ({"max_tokens": 600}, "messages"),
        ({"extra_body": {"watermark": {"key_id": "nobody"}}}, "watermark.key_id"),
        ({"messages": [*USER, {"role": "system", "content": "a"}, *USER]}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a"}}]}]},
            "messages.0.content",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(served: Served, changed: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        served.client.chat.completions.create(**{"messages": USER, **SHORT, **changed})
    assert refused.value.type == "invalid_request_error"
    assert refused.value.param == param
