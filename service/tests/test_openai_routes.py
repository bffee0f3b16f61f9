"""OpenAI's interface, asked by OpenAI's own client, on a real server with a tiny model."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import openai
import pytest

import dgmark
from dgmark.models.chat import chat_prompt
from dgmark.models.loaded import LoadedModel
from support.services import served_to_client, wait_for

pytestmark = pytest.mark.slow
SHORT: dict[str, Any] = {"model": "tiny", "max_tokens": 24, "seed": 5, "extra_body": {"block_length": 8}}
USER: Any = [{"role": "user", "content": "w3 w4"}]
SETTINGS: Any = {"length": 24, "block_length": 8, "seed": 5}


class Served:
    """A running service and its client, with the same model and key here."""

    def __init__(self, url: str, client: openai.OpenAI, app: Any, model: LoadedModel, keys: Any) -> None:
        self.url, self.client, self.model = url, client, model
        self.key, self.many, self.process = keys["main"], keys["many"], app.state.service.model_process

    def alone(self, prompt: Any, *, marked: bool = True, **more: Any) -> Any:
        key = self.key if marked else None
        return dgmark.generate(self.model, prompt, **{"key": key, **SETTINGS, **more})[0]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    service = served_to_client(tmp_path_factory.mktemp("openai"), generate_keys=("main", "many"), payloads=True)
    with (
        service as (token, url, app, model, keys),
        openai.OpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as client,
    ):
        yield Served(url, client, app, model, keys)


def test_a_chat_completion(served: Served) -> None:
    several = [("system", "w5"), ("user", "w3"), ("assistant", "w6"), ("user", "w4")]
    messages: Any = [{"role": role, "content": content} for role, content in several]
    messages[0]["role"] = "developer"  # OpenAI's newer word for the system
    answer = served.client.chat.completions.create(messages=messages, **SHORT)
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


def test_a_mask_in_a_prompt_is_text_and_its_id_is_refused(served: Served) -> None:
    mask = served.model.tokenizer.backend.id_to_token(served.model.mask_id)
    spelled = served.client.completions.create(prompt=f"w3 {mask} w4", **SHORT)
    assert spelled.choices[0].text == served.alone([f"w3 {mask} w4"]).text
    asked: Any = [{"role": "user", "content": f"w3 {mask}"}]
    assert served.client.chat.completions.create(messages=asked, **SHORT).choices[0].message.content
    with pytest.raises(openai.BadRequestError, match=f"prompt id {served.model.mask_id} is no text"):
        served.client.completions.create(prompt=[[5, served.model.mask_id]], **SHORT)


def test_several_texts_of_a_prompt_are_those_of_as_many_requests(served: Served) -> None:
    whole = served.client.completions.create(prompt="w3 w4", n=4, best_of=4, **SHORT)
    alone = [served.alone("w3 w4", seed=5 + row) for row in range(4)]
    assert [choice.index for choice in whole.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in whole.choices] == [one.text for one in alone]
    assert len({one.text for one in alone}) == 4
    assert [choice.finish_reason for choice in whole.choices] == ["stop" if one.ended else "length" for one in alone]
    completion, usage, fields = sum(len(one.token_ids) for one in alone), whole.usage, whole.model_dump()
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (2, completion, 2 + completion)
    assert fields["num_denoising_steps"] == sum(len(one.trace.step) for one in alone)

    chat = served.client.chat.completions.create(messages=USER, n=2, **SHORT)
    answers = [served.alone("w3 w4", chat=True, seed=5 + row).text for row in range(2)]
    assert [choice.message.content for choice in chat.choices] == answers


@pytest.mark.parametrize("prompts", [["w1", "w2 w3"], [[5], [6, 7]]])
def test_a_list_of_prompts_comes_back_in_order(served: Served, prompts: Any) -> None:
    answer = served.client.completions.create(prompt=prompts, n=2, **SHORT)
    rows = [(prompt, 5 + 2 * place + copy) for place, prompt in enumerate(prompts) for copy in range(2)]
    assert [choice.text for choice in answer.choices] == [served.alone([one], seed=seed).text for one, seed in rows]
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == 3


def test_each_of_several_texts_has_a_subkey_of_its_own_and_a_seed_that_cannot_repeat_it_is_said(served: Served) -> None:
    for watermark in ({"key_id": "many"}, {"key_id": "many", "subkey": 3}, False, None):
        extra = {"block_length": 8, "watermark": watermark}
        answer = served.client.completions.create(prompt="w3 w4", n=3, **{**SHORT, "extra_body": extra})
        drawn = watermark == {"key_id": "many"}
        assert answer.model_dump()["repeatable"] is not drawn
        if isinstance(watermark, dict):
            ids = [answer.id, f"{answer.id}-1", f"{answer.id}-2"]
            subkeys = [dgmark.subkey_of(served.many, one) for one in ids] if drawn else [3, 3, 3]
            rows = [served.alone("w3 w4", key=served.many, subkey=one, seed=5 + row) for row, one in enumerate(subkeys)]
            assert [choice.text for choice in answer.choices] == [one.text for one in rows]
    seedless = served.client.completions.create(prompt="w3 w4", model="tiny", max_tokens=24)
    assert seedless.model_dump()["repeatable"] is False


def test_texts_of_which_one_cannot_be_written_are_refused_together(served: Served) -> None:
    for wrong, param in (("w1 " * 600, "prompt.1"), ("", "prompt.1")):
        with pytest.raises(openai.BadRequestError) as refused:
            served.client.completions.create(prompt=["w1", wrong, "w2"], **SHORT)
        assert refused.value.param == param
        wait_for(lambda: served.process.held == 0)
    for param, value in (("n", 0), ("n", 9), ("prompt", ["w1"] * 81), ("best_of", 2)):
        with pytest.raises(openai.BadRequestError) as refused:
            served.client.completions.create(**{"prompt": "w1", **SHORT, param: value})
        assert refused.value.param == param
    with pytest.raises(openai.APIStatusError) as long:
        served.client.completions.create(prompt=["w" * 150_000] * 7, **SHORT)
    assert (long.value.status_code, long.value.body["param"]) == (413, "prompt")  # type: ignore[index]


def test_texts_of_which_only_some_could_wait_are_refused_before_any_is_begun(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served.process, "settings", replace(served.process.settings, queue=0, rows=3))
    sent: list[Any] = []
    with monkeypatch.context() as watched:
        watched.setattr(served.process, "_send", sent.append)
        with pytest.raises(openai.RateLimitError):
            served.client.completions.create(prompt="w1", n=4, **SHORT)
    assert not sent
    assert len(served.client.completions.create(prompt="w1", n=3, **SHORT).choices) == 3


@pytest.mark.parametrize("chat", [False, True])
def test_chunks_add_up_to_the_answers_side_by_side_and_stop_ends_them(served: Served, chat: bool) -> None:
    client: Any = served.client.chat if chat else served.client
    whole = served.alone("w3 w4", chat=chat).text
    stop = max(whole.split(), key=whole.index)  # as a stop is found: within words too
    for more in ({"n": 4}, {"n": 1, "stop": ["nowhere", stop] if chat else stop}):
        asked: dict[str, Any] = {**SHORT, **more, **({"messages": USER} if chat else {"prompt": "w3 w4"})}
        answer = client.completions.create(**asked)
        *chunks, counts = client.completions.create(**asked, stream=True, stream_options={"include_usage": True})
        for own in answer.choices:
            parts = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == own.index]
            text = "".join(part.delta.content or "" if chat else part.text for part in parts)
            assert text == (own.message.content if chat else own.text)
            assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + [own.finish_reason]
            assert not chat or [part.delta.role for part in parts] == ["assistant"] + [None] * (len(parts) - 1)
        assert len({chunk.id for chunk in [*chunks, counts]}) == 1
        assert [chunk.usage for chunk in chunks] == [None] * len(chunks)
        if "stop" not in more:
            order = [chunk.choices[0].index for chunk in chunks]
            assert order != sorted(order)  # none waits for another one to end
            assert (counts.choices, counts.usage) == ([], answer.usage)
    assert (text, own.finish_reason) == (whole[: whole.index(stop)], "stop")
    assert len(parts) > 2  # how many steps a chunk has depends on how fast they are read
    assert chunks[-1].watermark["enabled"] is True
    assert (counts.choices, counts.usage.prompt_tokens) == ([], answer.usage.prompt_tokens)
    uncounted = client.completions.create(**asked, stream=True)
    assert all("usage" not in chunk.model_fields_set for chunk in uncounted)


def test_the_models_are_listed(served: Served) -> None:
    assert [model.id for model in served.client.models.list()] == ["tiny"]
    assert served.client.models.retrieve("tiny").object == "model"
    with pytest.raises(openai.NotFoundError) as missing:
        served.client.models.retrieve("org/gpt")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.AuthenticationError):
        served.client.with_options(api_key="dgm_wrong").models.list()


NEUTRAL: dict[str, Any] = {
    "n": 1,
    "stream": False,
    "store": True,
    "logit_bias": {},
    "presence_penalty": 0,
    "frequency_penalty": 0.0,
    "tools": [],
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "response_format": {"type": "text"},
    "logprobs": False,
    "user": "somebody",
    "metadata": {"run": "5"},
    "service_tier": "auto",
    "stream_options": None,
    "repetition_penalty": 1.0,  # from here on of others' servers
    "min_p": 0.0,
    "min_tokens": 0,
    "stop_token_ids": [],
    "ignore_eos": False,
    "top_k": -1,
}
OF_CHAT: dict[str, Any] = {
    "top_logprobs": 2,  # of probabilities that are not asked for
    "colour": "red",
    "modalities": ["text"],
    "reasoning_effort": "none",
    "verbosity": "medium",
    "prompt_cache_retention": "24h",
}
OF_COMPLETIONS: dict[str, Any] = {"echo": False, "suffix": "", "best_of": 1}


@pytest.mark.parametrize("chat", [False, True])
def test_what_a_client_sends_by_default_changes_nothing(served: Served, chat: bool) -> None:
    own = (OF_CHAT | {"messages": USER}) if chat else (OF_COMPLETIONS | {"prompt": "w3 w4"})
    asked = {"model": "tiny", "max_tokens": 24, "seed": 5, "block_length": 8}
    neutral = {**asked, **NEUTRAL, **own}
    null = dict.fromkeys(set(neutral) - {*asked, "messages", "prompt"})
    for fields in (neutral, {**neutral, **null}):
        path = "/chat/completions" if chat else "/completions"
        choice = served.client.post(path, body=fields, cast_to=dict[str, Any])["choices"][0]
        assert (choice["message"]["content"] if chat else choice["text"]) == served.alone("w3 w4", chat=chat).text
    client: Any = served.client.chat if chat else served.client
    options = {"include_usage": True, "include_obfuscation": False}
    own.pop("colour", None)  # which the client does not know
    assert list(client.completions.create(**SHORT, **own, stream=True, stream_options=options))[-1].usage


def test_an_answer_goes_back_as_a_message(served: Served) -> None:
    answer = served.client.chat.completions.create(messages=USER, **SHORT).choices[0].message
    back = answer.model_dump()
    assert {"refusal", "audio", "tool_calls", "function_call", "annotations"} <= set(back)  # all null
    further = [*USER, {**back, "name": "tiny", "annotations": []}, *USER]
    turns = [("user", "w3 w4"), ("assistant", str(answer.content)), ("user", "w3 w4")]
    said = served.client.chat.completions.create(messages=further, **SHORT)
    assert said.choices[0].message.content == served.alone([chat_prompt(served.model, turns)]).text
    silent: Any = [*USER, {"role": "assistant", "content": None}, *USER]
    turns[1] = ("assistant", "")
    said = served.client.chat.completions.create(messages=silent, **SHORT)
    assert said.choices[0].message.content == served.alone([chat_prompt(served.model, turns)]).text


PART: Any = {"type": "image_url", "image_url": {"url": "a"}}
TOOL: Any = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize(
    ("changed", "param", "words"),
    [
        ({"logprobs": True}, "logprobs", "out of order"),
        ({"tools": [TOOL]}, "tools", "no tools"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "less likely"),
        ({"presence_penalty": True}, "presence_penalty", "less likely"),
        ({"extra_body": {"repetition_penalty": 1.1}}, "repetition_penalty", "less likely"),
        ({"extra_body": {"min_p": 0.1}}, "min_p", "top_k and top_p"),
        ({"extra_body": {"min_tokens": 4}}, "min_tokens", "end token"),
        ({"extra_body": {"stop_token_ids": [2]}}, "stop_token_ids", "end token"),
        ({"extra_body": {"ignore_eos": True}}, "ignore_eos", "end token"),
        ({"extra_body": {"allowed_token_ids": [2]}}, "allowed_token_ids", "single tokens"),
        ({"extra_body": {"structured_outputs": {"choice": ["a"]}}}, "structured_outputs", "no given form"),
        ({"response_format": {"type": "json_object"}}, "response_format", "plain text"),
        ({"temperature": 0}, "temperature", "bias"),
        ({"logit_bias": {"5": 1}}, "logit_bias", "single tokens"),
        ({"stop": ["a"] * 5}, "stop", "stop: it must have at most 4 items"),
        ({"stop": 5}, "stop", "stop: it must be a text or a list"),
        ({"stop": "a" * 201}, "stop", "at most 200 characters"),
        ({"max_tokens": 600}, "max_tokens", "ask for 502 at most"),
        ({"max_tokens": openai.omit, "max_completion_tokens": 600}, "max_completion_tokens", "ask for 502 at most"),
        ({"max_completion_tokens": 24}, "max_completion_tokens", "not both"),
        ({"messages": [{"role": "user", "content": "w3 " * 600}]}, "messages", "512 tokens"),
        ({"n": 9}, "n", "at most 8"),
        ({"extra_body": {"watermark": {"key_id": "nobody"}}}, "watermark.key_id", "no key"),
        ({"stream_options": {"include_usage": True}}, "stream_options", "needs stream"),
        ({"messages": [*USER, {"role": "system", "content": "a"}, *USER]}, "messages", "the last message"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content", "only an assistant's"),
        ({"messages": [{"role": "tool", "content": "a"}]}, "messages.0.role", "'assistant'"),
        ({"messages": [{"role": "user", "content": [PART]}]}, "messages.0.content.0", "leave out images"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(
    served: Served, changed: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as refused:
        served.client.chat.completions.create(**{"messages": USER, **SHORT, **changed})
    assert refused.value.type == "invalid_request_error"
    assert refused.value.param == param
    assert str(refused.value).count(f"{param}: ") <= 1  # one fault, one sentence
