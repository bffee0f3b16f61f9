"""Requests that are wrong, too long, too slow or from elsewhere: each has its answer, and none is a verdict."""

import asyncio
import gzip
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from dgmark.errors import SettingsError
from dgmark.report.joined import MAX_REPORTS
from dgmark_service import middleware
from dgmark_service.app import create_app
from dgmark_service.auth import Caller
from dgmark_service.bodies import MAX_OPTIONS
from dgmark_service.error_answers import ErrorAnswer
from dgmark_service.middleware import RequestMiddleware
from dgmark_service.schemas import MAX_KEYS, MAX_TEXTS, Problem
from dgmark_service.settings import ServiceSettings
from dgmark_service.telemetry import Metrics
from support.known_keys import known_key
from support.services import service

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("service")
    with service(folder, "one", body_bytes=200_000, max_chars=5000) as client:
        yield client


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": "a", "colour": "red"}, "colour"),
        ({"text": 5}, "text"),
        ({}, "text"),
        ({"text": "a", "token_ids": [1]}, "text"),
        ({"text": "a", "fpr": 2}, "fpr"),
        ({"text": "a", "fpr": "0.1"}, "fpr"),
        ({"text": "a", "fpr": 0}, "fpr"),
        ({"text": "a", "key": "nobody"}, "key"),
        ({"text": "a", "key": "one", "keys": ["one"]}, "keys"),
        ({"text": "a", "phase": "end"}, "phase"),
        ({"text": "a", "normalise": ["magic"]}, "normalise.0"),
        ({"token_ids": [-1]}, "token_ids.0"),
        ({"token_ids": [1.5]}, "token_ids.0"),
    ],
)
def test_a_wrong_field_is_named(client: TestClient, fields: dict[str, Any], param: str) -> None:
    answer = client.post("/v1/detect", json=fields)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    problem = Problem.model_validate(answer.json())
    assert problem.errors is not None
    assert problem.errors[0].param == param
    assert "Value error" not in answer.text
    assert "00000" not in answer.text
    if param == "colour":
        reason = "there is no such field: leave it out, or correct its name"
        assert problem.detail == f"the request is invalid: colour: {reason}"
    assert problem.request_id == answer.headers["x-request-id"]


FILE = ("a.txt", b"some text")
DAMAGED = (
    b"",
    b"{",
    b"[]",
    b"null",
    b'"text"',
    b"[" * 50_000,
    b'{"a":' * 10_000,
    b'{"text": "\xff"}',
    b'{"text": NaN}',
)


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        *(({"content": body, "headers": JSON}, 400) for body in DAMAGED),
        ({"content": b"--x\r\nbroken", "headers": {"content-type": "multipart/form-data; boundary=x"}}, 400),
        ({"content": b"", "headers": {"content-type": "multipart/form-data"}}, 400),
        ({"content": b"text", "headers": {"content-type": "text/plain"}}, 415),
        ({"files": {"other": FILE}}, 400),
        ({"files": {"document": FILE}, "data": {"text": "too"}}, 400),
        ({"files": {"document": FILE}, "data": {"options": '{"fpr": "much"}'}}, 400),
        ({"files": {"document": FILE}, "data": {"options": ["{}", "{}"]}}, 400),
        ({"files": {"document": FILE}, "data": {"options": '{"text": "too"}'}}, 400),
        ({"files": {"options": FILE}}, 400),
        ({"data": {"options": "{}"}, "files": {"none": ("", b"")}}, 400),
        ({"files": [("document", FILE), ("document", FILE)]}, 400),
    ],
)
def test_damaged_json_and_strange_forms_are_refused(client: TestClient, request_: dict[str, Any], status: int) -> None:
    answer = client.post("/v1/detect", **request_)
    assert answer.status_code == status
    Problem.model_validate(answer.json())


def form(value: bytes, charset: str = "") -> dict[str, Any]:
    """A form with a document and these options, whose header states a charset."""
    part = b'--x\r\ncontent-disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    document = part.replace(b'"%s"', b'"document"; filename="a.txt"') % b"some words"
    body = document + part % (b"options", value) + b"--x--\r\n"
    return {"content": body, "headers": {"content-type": f"multipart/form-data; boundary=x{charset}"}}


@pytest.mark.parametrize("charset", ["punycode", "undefined", "latin-1", "utf-16", "nothing"])
def test_a_form_is_in_utf_8(client: TestClient, charset: str) -> None:
    answer = client.post("/v1/detect", **form(b"{}", f"; charset={charset}"))
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (400, "content-type")
    assert client.post("/v1/detect", **form(b"{}", "; charset=UTF-8")).status_code == 200
    answer = client.post("/v1/detect", **form(b'{"key": "\xff"}'))
    assert (answer.status_code, answer.json()["errors"][0]["param"]) == (400, "options")


@pytest.mark.parametrize(
    "body",
    [
        '{"token_ids": [' + "[]," * 20_000 + "[]]}",
        "{" + ",".join(f'"field{number}": 1' for number in range(5000)) + "}",
        '{"keys": [' + "1," * 20_000 + "1]}",
    ],
)
def test_the_first_wrong_field_or_item_ends_the_check(client: TestClient, body: str) -> None:
    answer = client.post("/v1/detect", content=body, headers=JSON)
    assert answer.status_code == 400
    assert len(answer.json()["errors"]) == 1
    assert len(answer.content) < 1000


def test_several_texts_are_checked_in_one_request(client: TestClient) -> None:
    texts = ["some words " * 50, "\0"]
    found = client.post("/v1/detect", json={"texts": texts, "include_text": True}).json()["results"]
    assert [one["text"]["content"] for one in found] == texts
    for wrong in ([], ["a", 5], "a"):
        assert client.post("/v1/detect", json={"texts": wrong}).status_code == 400
    assert client.post("/v1/detect", json={"texts": ["a"], "text": "a"}).status_code == 400


def test_each_of_several_texts_has_its_own_error(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    known_key("many", subkeys=65_536).save(tmp_path / "keys" / "many.json")
    app = create_app(ServiceSettings(tmp_path / "keys", workers=1, seconds=20))
    with TestClient(app, "http://localhost") as client:
        short, long = client.post("/v1/detect", json={"texts": ["some words", "word " * 190_000]}).json()["results"]
    assert short["verdict"] == "uncertain"
    assert (long["error"]["status"], "verdict" in long) == (413, False)


def test_a_packed_body_is_refused_and_not_read_as_it_is(client: TestClient) -> None:
    body = b'{"text": "some words"}'
    for encoding in ("gzip", "GZIP", "br", "identity, gzip", "aes128gcm"):
        for content in (gzip.compress(body), body):
            headers = {**JSON, "content-encoding": encoding}
            answer = client.post("/v1/detect", content=content, headers=headers)
            assert (answer.status_code, answer.headers["accept-encoding"]) == (415, "identity")
            problem = Problem.model_validate(answer.json())
            assert "without Content-Encoding" in problem.detail
            assert problem.errors is not None
            assert problem.errors[0].param == "content-encoding"
    for plain in ("identity", ""):
        answer = client.post("/v1/detect", content=body, headers={**JSON, "content-encoding": plain})
        assert answer.status_code == 200


@pytest.mark.parametrize("character", ["\n", "\r", "\0", "\x7f", "\x85"])
def test_no_path_has_control_characters(client: TestClient, character: str) -> None:
    for path in ("/v1/about", "/healthz", "/"):
        assert client.get(path).status_code == 200
        assert client.get(path + quote(character)).status_code == 404
    answer = client.post(f"/v1/detect{quote(character)}", json={"text": "a"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "not_found_error")


@pytest.mark.parametrize(
    ("most", "asked", "beyond"),
    [
        (200_000, lambda size: {"content": b'{"text": "a"}'.ljust(size), "headers": JSON}, 413),
        (5000, lambda size: {"json": {"text": "a" * size}}, 413),
        (5000, lambda size: {"json": {"token_ids": [400] * size}}, 413),
        (5000, lambda size: {"json": {"texts": ["a" * 2500, "a" * (size - 2500)]}}, 413),
        (MAX_OPTIONS, lambda size: form(b"{}".ljust(size)), 400),
        (MAX_TEXTS, lambda size: {"json": {"texts": ["a"] * size}}, 400),
        (MAX_KEYS, lambda size: {"json": {"text": "a", "keys": ["one"] * size}}, 400),
        (200, lambda size: {"json": {"text": "a", "key": "o" * size}}, 400),
    ],
)
def test_each_limit_of_a_request_holds_at_its_edge(
    client: TestClient, most: int, asked: Callable[[int], dict[str, Any]], beyond: int
) -> None:
    fits, exceeds = (client.post("/v1/detect", **asked(size)) for size in (most, most + 1))
    assert fits.status_code == 200 or "there is no key" in fits.text
    assert (exceeds.status_code, "there is no key" in exceeds.text) == (beyond, False)


def test_a_body_that_states_no_length_is_read_up_to_the_limit(client: TestClient) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(30):
            yield b"x" * 10_000

    assert client.post("/v1/detect", content=parts(), headers=JSON).status_code == 413


def test_reports_are_joined_up_to_a_number(client: TestClient) -> None:
    most, more = (client.post("/v1/report/join", json={"reports": ["{}"] * (MAX_REPORTS + one)}) for one in (0, 1))
    assert (most.status_code, more.status_code) == (422, 400)


def test_surrogates_are_texts_too(client: TestClient) -> None:
    for text in ("\0", "�", "a" * 4000, "\u202e\u200b" * 100):
        fields = client.post("/v1/detect", json={"text": text, "spans": True, "include_text": True}).json()
        assert fields["verdict"] in ("uncertain", "not_detected")
        assert fields["text"]["content"] == text


def test_a_service_that_only_checks_neither_writes_nor_verifies(client: TestClient) -> None:
    assert Problem.model_validate(client.get("/v1/detect").json()).status == 405
    for path in ("/write", "/mark", "/verify"):
        assert client.get(path).status_code == 404
    assert client.post("/v1/report/verify", content=b"").status_code == 404
    for path, other in (("/", "./about"), ("/about", "./")):
        links = re.findall(r'<a href="(\./\w*)"( aria-current="page")?>', client.get(path).text)
        assert links == sorted([(f".{path}", ' aria-current="page"'), (other, "")])


def test_every_answer_has_an_id_and_closed_doors(client: TestClient) -> None:
    for path in ("/", "/healthz", "/v1/about", "/nothing"):
        headers = client.get(path, headers={"origin": "https://elsewhere.example"}).headers
        assert len(headers["x-request-id"]) == 16
        assert "access-control-allow-origin" not in headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
    assert client.get("/healthz", headers={"x-request-id": "mine-1"}).headers["x-request-id"] != "mine-1"
    assert (client.head("/healthz").status_code, client.head("/healthz").content) == (200, b"")
    answer = client.post("/v1/detect/", json={}, headers={"host": "localhost"})
    assert (answer.status_code, "location" in answer.headers) == (404, False)


def test_an_invented_method_is_no_series_of_its_own(client: TestClient) -> None:
    for method in ("FOO", "BAR", "get"):
        client.request(method, "/healthz")
    assert client.get("/static/page.css").status_code == 200
    counted = client.get("/metrics").text
    assert 'dgmark_requests_total{method="GET",path="/static",status="200"}' in counted
    methods = set(re.findall(r'dgmark_requests_total{method="(\w+)"', counted))
    assert "other" in methods
    assert methods <= {"GET", "HEAD", "POST", "other"}


@pytest.mark.parametrize("prefix", ["", "/marks"])  # a proxy may take it off, or not
def test_a_service_under_a_path_of_a_proxy(tmp_path: Path, prefix: str) -> None:
    with service(tmp_path, "one", root_path="/marks") as client:
        assert client.get(f"{prefix}/healthz").json() == {"status": "ok"}
        assert client.get(f"{prefix}/openapi.json").json()["servers"] == [{"url": "/marks"}]
        page = client.get(f"{prefix}/").text
        assert not re.findall(r'(?:href|src)="/', page)
        files = re.findall(r'(?:href|src)="\.(/[\w/]+\.\w+)"', page)
        assert {client.get(f"{prefix}{file}").status_code for file in files} == {200}
        for path in ("/v1/embeddings", "/v1/chat/completions"):
            error = client.post(f"{prefix}{path}", json={}).json()["error"]
            assert (error["message"], error["type"]) == ("there is nothing under this path", "not_found_error")
        assert Problem.model_validate(client.get(f"{prefix}/nothing").json()).status == 404
    with pytest.raises(SettingsError, match="is no path"):
        ServiceSettings(tmp_path, root_path="marks/")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"origin": "https://elsewhere.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"origin": "http://localhost"}, 200),
        ({"host": "rebound.example"}, 421),
        ({"host": "127.0.0.1:8321"}, 200),
        ({"authorization": "Bearer any"}, 200),  # of a client that cannot do without
        ({"x-forwarded-for": "203.0.113.9"}, 401),
    ],
)
def test_other_sites_and_strangers_behind_a_proxy_get_nothing(
    client: TestClient, headers: dict[str, str], status: int
) -> None:
    assert client.post("/v1/detect", json={"text": "some words"}, headers=headers).status_code == status


async def unheard(message: Any) -> None:
    raise AssertionError(message)


def gate(app: Any, **limits: Any) -> RequestMiddleware:
    settings = ServiceSettings(Path("keys"), public=True, **{"body_bytes": 10, **limits})
    return RequestMiddleware(app, settings, Metrics())


def post() -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": "/v1/detect", "headers": []}


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=x"])
def test_a_client_that_leaves_is_no_fault(client: TestClient, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    parts = [{"type": "http.request", "body": b"--x", "more_body": True}, {"type": "http.disconnect"}]
    statuses: list[int] = []

    async def receive() -> Any:
        return parts.pop(0)

    async def send(message: Any) -> None:
        statuses.append(message.get("status"))

    headers = [(b"host", b"localhost"), (b"content-type", kind.encode())]
    scope = {**post(), "headers": headers, "query_string": b"", "scheme": "http", "server": None, "client": None}
    asyncio.run(client.app(scope, receive, send))  # type: ignore[arg-type] # which raises nothing
    assert statuses[0] == 499
    assert not caplog.records


def test_all_requests_together_have_a_largest_number_and_size() -> None:
    async def asking() -> None:
        go_on, statuses = asyncio.Event(), list[int]()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            try:
                await receive()
                await go_on.wait()
            except ErrorAnswer as error:
                statuses.append(error.status)

        async def body() -> Any:
            return {"type": "http.request", "body": b"12345678"}

        async def answered(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                assert (b"retry-after", b"1") in message["headers"]

        for limits in ({"at_once": 2}, {"all_bytes": 20}):
            held = gate(app, **limits)
            for _ in range(2):  # the answers give their room back
                waiting = [asyncio.create_task(held(post(), body, unheard)) for _ in range(2)]
                await asyncio.sleep(0)
                await held(post(), body, answered)
                assert statuses == [429]
                go_on.set()
                await asyncio.gather(*waiting)
                go_on.clear()
                statuses.clear()

    asyncio.run(asking())


def test_strangers_have_a_part_of_the_memory_for_bodies_and_a_body_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "_BODY_SECONDS", 0.05)

    async def asking() -> None:
        statuses = list[int]()

        async def app(scope: Any, receive: Any, send: Any) -> None:
            scope["state"]["caller"] = Caller(None, frozenset(), "here", stranger=scope["path"] == "/stranger")
            try:
                while True:
                    await receive()
            except ErrorAnswer as error:
                statuses.append(error.status)

        async def body() -> Any:  # whose end never comes
            if not parts:
                await asyncio.Event().wait()
            return {"type": "http.request", "body": parts.pop(), "more_body": True}

        for path, status in (("/stranger", 429), ("/holder", 408)):
            parts, held = [b"123456"], gate(app, all_bytes=10)
            await held({**post(), "path": path}, body, unheard)
            assert statuses.pop() == status
            assert held._bytes.total() == 0

    asyncio.run(asking())


def test_an_answer_that_nobody_reads_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(middleware, "_READ_SECONDS", 0.05)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def full(_: Any) -> None:
        await asyncio.Event().wait()

    held = gate(app)
    asyncio.run(held({**post(), "method": "GET"}, unheard, full))  # type: ignore[arg-type] # which is not called
    assert held.metrics.requests.labels("other", "GET", "499")._value.get() == 1
