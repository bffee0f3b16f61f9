"""Texts over HTTP, from a real server with a tiny model in a process of its own."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
import torch

import dgmark
from dgmark_service import generation_task
from dgmark_service.generation_schemas import GenerateAnswer, InfillAnswer
from support import tiny_checkpoints
from support.services import tiny_service, wait_for

pytestmark = pytest.mark.slow
SHORT = {"prompt": "w1 w2", "max_tokens": 24, "block_length": 8}
LONG = {"prompt": "w1 w2", "max_tokens": 480}


class Service:
    """A running service, and requests to it."""

    def __init__(self, url: str, app: Any, keys: dict[str, dgmark.WatermarkKey], model: Any) -> None:
        self.url, self.state, self.keys, self.model = url, app.state.service, keys, model
        self.client = httpx.Client(base_url=url, timeout=60)

    def ask(self, body: Any) -> httpx.Response:
        return self.client.post("/v1/generate", json=body)

    @contextmanager
    def events(self, body: Any) -> Iterator[Iterator[tuple[str, Any]]]:
        """The events of a stream, which is left at the end of the block."""
        with self.client.stream("POST", "/v1/generate", json={**body, "stream": True}) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield _events(answer)

    def counted(self, outcome: str) -> float:
        (texts,) = self.state.metrics.texts.collect()
        samples = [one for one in texts.samples if one.name.endswith("_total")]
        return sum(float(one.value) for one in samples if one.labels["outcome"] == outcome)

    def left_open(self, body: Any) -> http.client.HTTPConnection:
        """A connection with a request whose answer is not read."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=60)
        connection.request("POST", "/v1/generate", json.dumps(body), {"content-type": "application/json"})
        return connection


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("generate")
    state = tiny_checkpoints.write(folder / "tiny", "llada")
    broken = {name: torch.full_like(tensor, torch.nan) for name, tensor in state.items()}
    tiny_checkpoints.write(folder / "broken", "llada", broken)
    settings: Any = {"generate_keys": ("main", "many"), "payloads": True, "queue": 1, "rows": 2}
    with tiny_service(folder, "tiny", "broken", **settings) as (url, app, model, keys):
        running = Service(url, app, keys, model)
        yield running
        running.client.close()


def _events(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


def test_the_answer_is_the_text_of_generate_and_says_how_it_is_marked(service: Service) -> None:
    main, greedy = service.keys["main"], {"temperature": 0, "bias": 2.0}
    for watermark, key, more in ((None, main, dict[str, Any]()), (False, None, {}), (None, main, greedy)):
        written = service.ask({**SHORT, **more, "seed": 5, "watermark": watermark}).raise_for_status().json()
        GenerateAnswer.model_validate(written)
        (alone,) = dgmark.generate(service.model, "w1 w2", key=key, seed=5, length=24, block_length=8, **more)
        assert written["text"] == alone.text
        assert written["watermark"] == {
            "enabled": key is not None,
            "key_id": "main" if key else None,
            "key_fingerprint": key.fingerprint if key else None,
            "policy": "default",
        }
        assert written["usage"]["prompt_tokens"] == 2
        assert written["usage"]["completion_tokens"] == len(alone.token_ids)
        assert written["finish_reason"] == ("stop" if alone.ended else "length")
        assert written["num_denoising_steps"] == len(alone.trace.step)
        assert (written["seed"], written["model"]) == (5, "tiny")


def test_a_retried_request_gets_the_same_text(service: Service) -> None:
    asked = {**SHORT, "watermark": {"key_id": "many"}}

    def written(name: str, header: str = "idempotency-key", **more: Any) -> dict[str, Any]:
        answer = service.client.post("/v1/generate", json={**asked, **more}, headers={header: name})
        fields: dict[str, Any] = answer.raise_for_status().json()
        return fields

    first, again = written("once"), written("once")
    assert (first["text"], first["id"], first["seed"]) == (again["text"], again["id"], again["seed"])
    assert first["repeatable"]
    for other in (written("twice"), written("once", temperature=0.9)):
        assert other["id"] != first["id"]
        assert other["seed"] != first["seed"]
    traced = [written("once", "x-request-id") for _ in range(2)]  # which proxies pass on with many requests
    assert len({one["id"] for one in (first, *traced)}) == 3
    assert written("once", seed=7)["seed"] == 7
    with ThreadPoolExecutor(3) as clients:
        together = [*clients.map(written, ["at-once"] * 3)]
    assert len({(one["text"], one["id"]) for one in together}) == 1


def test_an_infilling_may_tell_its_steps(service: Service) -> None:
    asked = {"text": "w1 w2 [mask:8] w3", "seed": 4, "block_length": 8}
    whole = service.client.post("/v1/infill", json=asked).raise_for_status().json()
    with service.client.stream("POST", "/v1/infill", json={**asked, "stream": True}) as answer:
        told = list(_events(answer))
    assert [name for name, _ in told] == ["start", *["step"] * 8, "done"]
    assert [fields["done"] for name, fields in told if name == "step"] == [*range(1, 9)]
    assert told[-1][1]["text"] == whole["text"]


def test_the_events_are_the_commits_in_order(service: Service) -> None:
    with service.events({**SHORT, "seed": 5}) as stream:
        told = list(stream)
    (alone,) = dgmark.generate(service.model, "w1 w2", key=service.keys["main"], seed=5, length=24, block_length=8)
    names = [name for name, _ in told]
    assert names == ["start", *["step"] * len(alone.trace.step), "done"]
    start, steps, done = told[0][1], [fields for _, fields in told[1:-1]], told[-1][1]
    assert (start["length"], start["block_length"], start["model"]) == (24, 8, "tiny")
    assert start["id"] == done["id"]
    assert [step["positions"] for step in steps] == [[position] for position in alone.trace.position]
    assert [step["tokens"] for step in steps] == [[token] for token in alone.trace.token_id]
    assert [step["block"] for step in steps] == [position // 8 for position in alone.trace.position]
    assert steps[0]["pieces"] == [service.model.tokenizer.decode([alone.trace.token_id[0]])]
    assert done["text"] == alone.text
    assert not {"matched", "reward", "rewards"} & {name for step in steps for name in step}
    GenerateAnswer.model_validate(done)


def test_a_subkey_of_the_texts_id_or_of_the_request(service: Service) -> None:
    key = service.keys["many"]
    drawn = service.ask({**SHORT, "seed": 1, "watermark": {"key_id": "many"}}).json()
    chosen = service.ask({**SHORT, "seed": 1, "watermark": {"key_id": "many", "subkey": 3}}).json()
    assert "subkey" not in drawn["watermark"]
    assert chosen["watermark"]["subkey"] == 3
    for written, subkey in ((drawn, dgmark.subkey_of(key, drawn["id"])), (chosen, 3)):
        (alone,) = dgmark.generate(service.model, "w1 w2", key=key, subkey=subkey, seed=1, length=24, block_length=8)
        assert written["text"] == alone.text


def test_a_message_is_put_into_the_template_or_refused(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    body = {"messages": [{"role": "user", "content": "w3 w4"}], "seed": 2, "max_tokens": 24, "block_length": 8}
    key = service.keys["main"]
    (alone,) = dgmark.generate(service.model, "w3 w4", key=key, chat=True, seed=2, length=24, block_length=8)
    assert service.ask(body).json()["text"] == alone.text
    assert service.client.get("/v1/about").json()["models"][0] == {
        "name": "tiny",
        "ready": True,
        "context_length": 512,
        "block_length": 32,
        "chat": True,
        "keys": ["main", "many"],
        "policy": "default",
    }

    facts = service.state.model_process.facts
    monkeypatch.setattr(service.state.model_process, "facts", {**facts, "tiny": replace(facts["tiny"], chat=False)})
    for path in ("/v1/generate", "/v1/chat/completions"):
        answer = service.client.post(path, json=body)
        assert answer.status_code == 400
        assert "no chat template: send a prompt" in answer.text
    assert answer.json()["error"]["param"] == "messages"


@pytest.mark.parametrize(
    ("wrong", "param"),
    [
        ({"watermark": False, "min_relative_reward": 0.5}, "min_relative_reward"),
        ({"watermark": False, "lookahead": 2}, "lookahead"),
        ({"watermark": False, "bias": 1.0}, "bias"),
        ({"temperature": 0}, "temperature"),
        ({"temperature": 0, "stream": True}, "temperature"),  # before the stream begins
    ],
)
def test_settings_that_do_not_go_together_are_refused(service: Service, wrong: dict[str, Any], param: str) -> None:
    refused = service.counted("refused")
    answer = service.ask({**SHORT, **wrong})
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["param"] == param
    assert service.counted("refused") == refused + (param == "temperature")


def test_holes_are_filled(service: Service) -> None:
    key = service.keys["main"]
    (alone,) = dgmark.infill(service.model, [["w1 w2 ", 8, " w3"]], key=key, seed=4, block_length=8)
    for text in ({"text": "w1 w2 [mask:8] w3"}, {"parts": ["w1 w2 ", 8, " w3"]}):
        answer = service.client.post("/v1/infill", json={**text, "seed": 4, "block_length": 8})
        filled = InfillAnswer.model_validate_json(answer.text)
        assert (filled.text, filled.spans) == (alone.text, alone.spans)
        assert filled.usage.completion_tokens == 8
        assert filled.watermark.enabled
    refused = service.client.post("/v1/infill", json={"text": "w1 [mask:4]", "max_tokens": 3})
    assert refused.json()["errors"][0]["param"] == "max_tokens"
    refused = service.client.post("/v1/infill", json={"text": "w1 [mask:4]", "temperature": 0})
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (400, "temperature")
    for wrong in ({"text": "w1", "keep": ["a"]}, {"parts": ["w1"], "share": 0.5}):
        assert 400 <= service.client.post("/v1/infill", json=wrong).status_code < 500
    refused = service.client.post("/v1/infill", json={"text": "w1 w2", "share": 0.5})
    assert "no word of this text may be replaced" in refused.text


def test_a_text_is_checked_under_the_whole_key_if_that_is_asked_for(service: Service) -> None:
    many = service.keys["many"]
    checker = dgmark.Detector(many, tokenizer=service.model.tokenizer)
    asked = {**SHORT, "watermark": {"key_id": "many"}, "check": True, "seed": 5}
    answer = GenerateAnswer.model_validate_json(service.ask(asked).raise_for_status().text)
    found = checker.detect(answer.text)
    assert answer.check is not None
    assert (answer.check.verdict, answer.check.p_value, answer.check.fpr) == (found.verdict, found.p_value, 1e-4)
    assert 0 <= answer.choices <= answer.usage.completion_tokens
    with service.events(asked) as stream:
        told = list(stream)
    assert told[-1][0] == "done"
    assert told[-1][1]["check"]["fpr"] == 1e-4
    holes = {"text": "w1 w2 [mask:8] w3", "check": True, "watermark": {"key_id": "many"}}
    filled = InfillAnswer.model_validate_json(service.client.post("/v1/infill", json=holes).raise_for_status().text)
    found = checker.detect(filled.text, only=filled.spans)
    assert filled.check is not None
    assert (filled.check.verdict, filled.check.p_value) == (found.verdict, found.p_value)
    assert "check" not in service.ask(SHORT).json()
    refused = service.ask({**SHORT, "watermark": False, "check": True})
    assert (refused.status_code, refused.json()["errors"][0]["param"]) == (400, "check")


def test_a_failing_model_is_a_500_and_the_worker_goes_on(service: Service) -> None:
    answer = service.ask({**SHORT, "model": "broken"})
    assert answer.status_code == 500
    assert "fault of the service" in answer.json()["detail"]
    with service.events({**SHORT, "model": "broken"}) as stream:
        told = list(stream)
    assert (told[0][0], told[-1][0], told[-1][1]["status"]) == ("start", "error", 500)
    assert service.ask(SHORT).status_code == 200


def test_the_metrics_tell_waiting_and_speed(service: Service) -> None:
    def measured(name: str) -> float:
        (line,) = [line for line in service.client.get("/metrics").text.splitlines() if line.startswith(f"{name} ")]
        return float(line.rsplit(" ", 1)[1])

    names = [f'dgmark_{name}_count{{model="tiny"}}' for name in ("first_token_seconds", "text_tokens_per_second")]
    service.ask(SHORT)
    before = [measured(name) for name in names]
    service.ask({**SHORT, "max_tokens": 32})
    assert [measured(name) for name in names] == [one + 1 for one in before]
    assert [measured(f'dgmark_waiting{{what="{one}"}}') for one in ("checks", "texts")] == [0, 0]
    assert measured('dgmark_request_seconds_bucket{le="600.0",path="/v1/generate"}') >= 2


@pytest.mark.parametrize("stream", [True, False])
def test_whoever_leaves_frees_the_place(service: Service, stream: bool) -> None:
    before, finished = service.counted("cancelled"), service.counted("finished")
    connections = [service.left_open({**LONG, "stream": stream}) for _ in range(3)]  # two are written, one waits
    wait_for(lambda: service.state.model_process.held == 3)
    refused = service.ask(SHORT)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1
    for connection in connections:
        connection.close()
    wait_for(lambda: service.state.model_process.held == 0)
    assert service.ask(SHORT).status_code == 200
    assert service.counted("cancelled") == before + 3
    assert service.counted("finished") == finished + 1


def test_a_stream_that_is_left_while_the_worker_hangs_frees_its_place(service: Service) -> None:
    worker, before = service.state.model_process._process.pid, service.counted("cancelled")
    os.kill(worker, signal.SIGSTOP)
    try:
        connection = service.left_open({**SHORT, "stream": True})
        wait_for(lambda: service.state.model_process.held == 1)
        connection.close()
        wait_for(lambda: service.state.model_process.held == 0)
    finally:
        os.kill(worker, signal.SIGCONT)
    assert service.ask(SHORT).status_code == 200
    assert service.counted("cancelled") == before + 1


def test_a_stream_says_that_it_lives(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation_task, "_HEARTBEAT_SECONDS", 0.01)
    with service.client.stream("POST", "/v1/generate", json={**LONG, "stream": True}) as answer:
        assert any(line.startswith(": ping") for line in answer.iter_lines())


def test_a_killed_worker_is_replaced_and_writes_its_texts_to_their_end(service: Service) -> None:
    with service.events(LONG) as stream:
        assert next(stream)[0] == "start"
        os.kill(service.state.model_process._process.pid, signal.SIGKILL)
        wait_for(lambda: service.client.get("/readyz").status_code == 503)
        waiting = service.ask(SHORT)
        assert (waiting.status_code, waiting.headers["retry-after"]) == (503, "5")
        *steps, (name, _) = stream
    assert name == "done"
    assert [fields["step"] for _, fields in steps] == [*range(len(steps))]  # none is told twice, and none is left out
    wait_for(lambda: service.client.get("/readyz").status_code == 200)
    assert service.ask(SHORT).status_code == 200


def test_stopping_ends_streams_with_an_error(service: Service) -> None:
    with service.events(LONG) as stream:
        assert next(stream)[0] == "start"
        service.state.model_process._loop.call_soon_threadsafe(service.state.stop_generation)
        name, problem = list(stream)[-1]
    assert (name, problem["status"]) == ("error", 503)
    assert "stopped" in problem["detail"]
    assert service.ask(SHORT).status_code == 503
