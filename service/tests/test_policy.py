"""Which texts are marked: the default, what a request may choose, and who may ask at all."""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

import dgmark
from dgmark.checkpoint.folder import BUILTIN
from dgmark.decode.settings_file import TunedSettings
from dgmark.detection.detector import Detector
from dgmark.errors import SettingsError
from dgmark.report.page import to_json
from dgmark.report.signing import SigningKey
from dgmark.report.statement import Report
from dgmark.watermark.policy import MarkingRefused, MarkingRequest
from dgmark.watermark.position import PositionSpec
from dgmark_service.app import create_app
from dgmark_service.error_handlers import _answer_to
from dgmark_service.offers import Offer, offers_of
from dgmark_service.settings import ModelSource, ServiceSettings
from dgmark_service.token_file import TokenFile
from support.fresh_process import run_fresh
from support.known_keys import known_key
from support.services import bearer, key_folder, wait_for

KEYS = {"one": known_key("one", rule="bigram"), "many": known_key("many", subkeys=64)}
STORYTELLER = ModelSource({"name_or_path": BUILTIN})


@cache
def offer(*, enforce: bool = False, payloads: bool = True) -> Offer:
    settings: Any = {"generate_keys": ("one", "many"), "enforce": enforce, "payloads": payloads}
    one = ServiceSettings(Path("keys"), models=(STORYTELLER,), **settings)
    return offers_of(one, KEYS)[BUILTIN]


@pytest.mark.parametrize(
    ("asked", "given", "status", "param"),
    [
        ({}, {"key": "many", "subkey": 64}, 400, "watermark.subkey"),
        ({}, {"enabled": False, "key": "one"}, 400, "watermark"),
        ({}, {"enabled": False, "subkey": 1}, 400, "watermark"),
        ({"payloads": False}, {"key": "many", "subkey": 7}, 403, "watermark.subkey"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused(
    asked: dict[str, bool], given: dict[str, Any], status: int, param: str
) -> None:
    with pytest.raises(MarkingRefused) as refused:
        offer(**asked).marking.choose(MarkingRequest(**given), "gen-1")
    answer = _answer_to(refused.value, Request({"type": "http"}))
    assert (answer.status, answer.param) == (status, param)


def test_a_model_needs_one_key_that_fits_or_a_choice() -> None:
    other = dgmark.WatermarkKey(PositionSpec(table_size=500, tokenizer="x"), "x", bytes(32))
    one = ServiceSettings(Path("keys"), models=(STORYTELLER,))
    assert list(offers_of(one, {"one": KEYS["one"], "other": other})[BUILTIN].marking.keys) == ["one"]
    for keys, wrong in (({"other": other}, "no key"), (KEYS, "--generate-key")):
        with pytest.raises(SettingsError, match=wrong):
            offers_of(one, keys)
    with pytest.raises(SettingsError, match="has no nobody"):
        offers_of(ServiceSettings(Path("keys"), models=(STORYTELLER,), generate_keys=("nobody",)), KEYS)
    tuned = TunedSettings(model=BUILTIN, rule="position", decoding={"temperature": 0.6})
    source = ModelSource({"name_or_path": BUILTIN}, marked={"temperature": 0.6}, tuned=tuned)
    with pytest.raises(SettingsError, match="--rule position"):
        offers_of(ServiceSettings(Path("keys"), models=(source,)), {"one": KEYS["one"]})


ROLES = [{"role": role, "content": "a"} for role in ("assistant", "user", "system")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("policy")


@pytest.fixture(scope="module")
def client(folder: Path) -> TestClient:
    """A service that is never started: what the policy refuses is refused before a model is needed."""
    settings = ServiceSettings(
        key_folder(folder, "one"),
        tokens=folder / "tokens.json",
        models=(STORYTELLER,),
        enforce=True,
        audit=folder / "audit.jsonl",
    )
    bearer(folder / "tokens.json", "first", "admin")
    return TestClient(create_app(settings), "http://localhost", raise_server_exceptions=False)


@pytest.fixture(scope="module")
def writer(folder: Path, client: TestClient) -> dict[str, str]:
    return bearer(folder / "tokens.json", "writer", "generate")


@pytest.mark.parametrize("path", ["/", "/write", "/mark", "/about"])
def test_a_page_is_closed_to_foreign_code_and_its_scripts_find_their_elements(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert not re.findall(r"<script(?! src)|<style|\s(?:style|on\w+)=", answer.text)
    scripts = re.findall(r'<script src="\.(/static/\w+\.js)" defer></script>', answer.text)
    own = "".join(client.get(script).text for script in scripts[1:])  # the first one knows the elements of all pages
    named = set(re.findall(r'\$\("([\w-]+)"\)', own))
    assert bool(named) == (path != "/about")
    assert named <= set(re.findall(r' id="([\w-]+)"', answer.text))
    if path == "/mark":
        fields = re.findall(r'<(?:textarea|select|input) id="(\w+)"', answer.text)
        assert fields == ["text", "keep", "model", "key", "share", "token"]
        assert re.findall(r'value="([\d.]+)" selected', answer.text) == ["0.25"]


def test_no_answer_names_a_key_that_the_caller_may_not_use(tmp_path: Path) -> None:
    keys, tokens = key_folder(tmp_path, "own", "rival"), tmp_path / "tokens.json"
    source = ModelSource({"name_or_path": BUILTIN, "device": "cpu"})
    settings: Any = {"models": (source,), "generate_keys": ("rival", "own"), "tokens": tokens, "workers": 1}
    scopes = ["detect:full", "generate", "admin"]
    caller = {"authorization": f"Bearer {TokenFile(tokens).add('tenant', scopes, keys=['own'])}"}
    app = create_app(ServiceSettings(keys, signer=SigningKey.generate(), **settings))
    report = Report.of(Detector(known_key("own", rule="bigram")), "a", "some words")
    short: dict[str, Any] = {"max_tokens": 4, "temperature": 0.5}
    asked: dict[str, Any] = {
        "/v1/detect": {"text": "some words", "spans": True},
        "/v1/report": {"text": "some words", "format": "json"},
        "/v1/report/join": {"reports": [to_json(report).decode()]},
        "/v1/generate": {"prompt": "Once", "check": True, **short},
        "/v1/infill": {"text": "Once [mask:4] a time.", "temperature": 0.5},
        "/v1/chat/completions": {"messages": [{"role": "user", "content": "Once"}], **short},
        "/v1/completions": {"prompt": "Once", **short},
        "/v1/report/verify": {},
    }
    named, statuses = known_key("rival", rule="bigram").fingerprint, Counter[int]()
    with TestClient(app, "http://localhost", raise_server_exceptions=False, headers=caller) as client:
        wait_for(lambda: client.get("/readyz").status_code == 200)
        walked = {(path, kind) for path, kinds in app.openapi()["paths"].items() for kind in kinds}
        assert {path for path, kind in walked if kind == "post"} == asked.keys()
        for path, kind in walked:
            wrong: list[dict[str, Any]] = [{}, {"x": 1}, {"key": "nobody"}, {"watermark": {"key_id": "nobody"}}]
            for more in wrong if kind == "post" else [{}]:
                body = {**asked[path], **more} if kind == "post" else None
                answer = client.request(kind, path.replace("{name}", BUILTIN), json=body)
                statuses[answer.status_code] += 1
                assert not {"rival", named} & set(re.findall(r"\w+", answer.text)), path
    assert statuses[200] > 10


def test_writing_needs_the_scope(client: TestClient, folder: Path) -> None:
    body = {"prompt": "a", "watermark": False}
    assert client.post("/v1/generate", json=body).status_code == 401
    reader = bearer(folder / "tokens.json", "reader", "detect:full")
    assert client.post("/v1/generate", json=body, headers=reader).status_code == 403
    assert client.get("/v1/about", headers=reader).json()["may_generate"] is False
    writer = bearer(folder / "tokens.json", "no-reader", "generate")
    about = client.get("/v1/about", headers=writer).json()
    assert (about["form"], about["may_generate"], about["token"]) == (None, True, "no-reader")
    assert client.post("/v1/detect", json={"text": "a"}, headers=writer).status_code == 403
    # these answers have a p-value
    for path, asked in [
        ("infill", {"text": "The sea was calm.", "share": 0.5}),
        ("infill", {"text": "The sea was [mask:2].", "check": True}),
        ("generate", {"prompt": "a", "check": True}),
    ]:
        refused = client.post(f"/v1/{path}", json=asked, headers=writer)
        assert (refused.status_code, "detect:full" in refused.text) == (403, True)


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"watermark": False}, 400, "watermark"),
        ({"watermark": {"enabled": False}}, 400, "watermark"),
        ({"watermark": {"subkey": 1}}, 400, "watermark.subkey"),
        ({"watermark": {"key_id": "nobody"}}, 400, "watermark.key_id"),
        ({"block_length": 1}, 400, "block_length"),
        ({"num_denoising_steps": 1}, 400, "num_denoising_steps"),
        ({"strategy": "left_to_right"}, 400, "strategy"),
        ({"model": "gpt"}, 404, "model"),
        ({"temperature": "0.5"}, 400, "temperature"),
        ({"watermark": {"key": "one"}}, 400, "watermark.key"),
        ({"messages": [{"role": "user", "content": "a"}]}, 400, "prompt"),
        ({"lookahead": 1000}, 400, "lookahead"),
        ({"lookahead": 2}, 400, "lookahead"),
        ({"noise": "fixed"}, 400, "noise"),
        ({"threshold": 0.5}, 400, "threshold"),
        *(({"prompt": None, "messages": ROLES[:count]}, 400, "messages") for count in (0, 1, 3)),
    ],
)
def test_what_the_policy_or_the_fields_forbid_is_refused_by_name(
    client: TestClient, writer: dict[str, str], fields: dict[str, Any], status: int, param: str
) -> None:
    answer = client.post("/v1/generate", json={"prompt": "a", **fields}, headers=writer)
    assert answer.status_code == status
    assert answer.json()["errors"][0]["param"] == param


def test_the_log_tells_what_was_decided_without_prompt_or_secret(
    client: TestClient, writer: dict[str, str], folder: Path
) -> None:
    body = {"prompt": "Nobody shall read this.", "watermark": False}
    client.post("/v1/generate", json=body, headers={**writer, "x-request-id": "opt-out"})
    text = (folder / "audit.jsonl").read_text()
    rows = {row["client_request"]: row for row in map(json.loads, text.splitlines())}
    row = rows["opt-out"]
    assert (row["decision"], row["asked"], row["policy"]) == ("refused", False, "enforced")
    assert (row["token"], row["model"], row["param"]) == ("writer", BUILTIN, "watermark")
    assert "Nobody" not in text


def test_until_the_model_is_loaded_the_answer_is_try_again(client: TestClient, writer: dict[str, str]) -> None:
    assert client.get("/readyz").status_code == 503
    for stream in (False, True):
        answer = client.post("/v1/generate", json={"prompt": "a", "stream": stream}, headers=writer)
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")


def test_the_process_that_serves_needs_no_torch(folder: Path, client: TestClient) -> None:
    code = f"""
import sys
from dgmark_service.app import create_app
from dgmark_service.settings import ModelSource, ServiceSettings
from pathlib import Path
create_app(ServiceSettings(Path({str(folder / "keys")!r}), models=(ModelSource({{"name_or_path": "storyteller"}}),)))
print("torch" in sys.modules, "transformers" in sys.modules)
"""
    assert run_fresh(code).split() == ["False", "False"]
