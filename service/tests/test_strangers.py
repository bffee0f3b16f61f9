"""What a stranger may spend in a minute, and a tenant with keys and an end."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dgmark.errors import SettingsError
from dgmark_service.moving_window import MovingWindow
from dgmark_service.settings import ServiceSettings
from dgmark_service.token_file import TokenFile
from support.known_keys import known_key
from support.services import bearer, service


def test_a_window_moves_with_a_clock_that_nobody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    monkeypatch.setattr("time.time", lambda: -1e9)
    window = MovingWindow(20, 60)
    for spent in (5, 20):
        assert window.wait("a") == 0
        window.spend("a", spent)
        now += 10
    assert (window.wait("a"), window.wait("b")) == (50, 0)  # until the 20 of 1010 are 60 seconds old
    now = 1060.0
    assert window.wait("a") == 10
    now = 1070.0
    assert window.wait("a") == 0
    window.spend("b", 1)
    now += 61
    assert window.wait("c") == 0
    assert not window._spent  # those who have not come again are forgotten


def test_a_stranger_has_seconds_of_a_minute_and_of_a_document_and_a_token_holder_more(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    holder = bearer(tokens, "holder", "detect:full")
    document: Any = {"files": {"document": ("a.html", "<p>some words</p>" * 5000)}}
    with service(tmp_path, "one", tokens=tokens, public=True, public_seconds=0.002) as client:
        slow = client.post("/v1/detect", **document)
        assert (slow.status_code, "to read" in slow.text) == (422, True)
        refused = client.post("/v1/detect", json={"text": "some words"})
        assert (refused.status_code, 1 <= int(refused.headers["retry-after"]) <= 60) == (429, True)
        assert "all the time" in refused.json()["detail"]
        assert client.post("/v1/detect", **document, headers=holder).status_code == 200
        app: Any = client.app
        assert app.state.service.workers.places == 2  # of one worker, strangers would leave none


def test_a_tenant_has_keys_and_an_end(tmp_path: Path) -> None:
    tokens, now = tmp_path / "tokens.json", datetime.now(UTC)

    def header(name: str, days: int, keys: list[str]) -> dict[str, str]:
        secret = TokenFile(tokens).add(name, ["detect:full"], expires=now + timedelta(days=days), keys=keys)
        return {"authorization": f"Bearer {secret}"}

    tenant, late, lost = header("tenant", 1, ["two"]), header("late", -1, ["two"]), header("lost", 1, ["gone"])
    with service(tmp_path, "one", "two", tokens=tokens, audit=tmp_path / "audit.jsonl") as client:
        assert [one["name"] for one in client.get("/v1/about", headers=tenant).json()["keys"]] == ["two"]
        answer = client.post("/v1/detect", json={"text": "some words"}, headers=tenant).json()
        assert (answer["keys_tested"], answer["key"]) == (1, "two")
        for fields in ({"key": "one"}, {"keys": ["two", "one"]}):
            answer = client.post("/v1/detect", json={"text": "some words", **fields}, headers=tenant)
            assert (answer.status_code, answer.json()["errors"][0]["param"]) == (400, "key")
        assert client.post("/v1/detect", json={"text": "some words"}, headers=late).status_code == 401
        assert client.post("/v1/detect", json={"text": "some words"}, headers=lost).status_code == 403
    assert known_key("two", rule="bigram").fingerprint in (tmp_path / "audit.jsonl").read_text()
    assert known_key("one", rule="bigram").fingerprint not in (tmp_path / "audit.jsonl").read_text()


def test_texts_of_one_request_are_counted_before_they_are_checked(tmp_path: Path) -> None:
    with service(tmp_path, "one", public=True, public_rate="5 per minute") as client:
        many, few = ({"texts": ["some words"] * number} for number in (7, 4))
        refused = client.post("/v1/detect", json=many)
        assert (refused.status_code, "fewer texts" in refused.json()["detail"]) == (429, True)
        assert len(client.post("/v1/detect", json=few).json()["results"]) == 4
        assert client.post("/v1/detect", json=few).status_code == 429
    with pytest.raises(SettingsError, match="lets nobody check a text"):
        ServiceSettings(tmp_path, public=True, public_rate="0 per minute")


def test_a_stranger_is_asked_for_a_token_where_one_is_needed(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.json"
    bearer(tokens, "holder", "admin")
    with service(tmp_path, "one", tokens=tokens, public=True) as client:
        answer = client.get("/metrics")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
