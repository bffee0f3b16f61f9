"""What the service logs: requests without their texts, and a line a minute of what anybody can cause."""

import json
import logging
import logging.config
from collections.abc import Iterator
from pathlib import Path

import pytest

from dgmark_service.logs import log_config
from support.services import service

ATTACKS = (
    ("uvicorn.error", logging.WARNING, "Invalid HTTP request received."),
    ("asyncio", logging.ERROR, "socket.accept() out of system resource\nsocket: 7"),
)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in (None, *log_config()["loggers"])]
    before = [(one, one.handlers.copy(), one.level, one.propagate) for one in loggers]
    yield
    for one, handlers, level, propagate in before:
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


def test_what_anybody_can_cause_is_logged_once_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    logging.config.dictConfig(log_config())
    monkeypatch.setattr("time.monotonic", lambda: now)
    for now in (0.0, 60.0):  # noqa: B007 (the clock reads it)
        for name, level, message in ATTACKS:
            for _ in range(450):
                logging.getLogger(name).log(level, message)
    text = capsys.readouterr().err
    assert [text.count(message) for _, _, message in ATTACKS] == [2, 2]
    assert text.count("(and 449 more like this before)") == 2


def test_a_request_is_a_line_without_its_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(log_config("warning", access=True))
    with service(tmp_path, "one") as client:
        client.post("/v1/detect?x=Nobody", json={"text": "Nobody shall read this."}, headers={"x-request-id": "r-1"})
        client.get("/nothing%0Ahere")
        text = capsys.readouterr().out
        logging.config.dictConfig(log_config())
        client.get("/healthz")
    assert not capsys.readouterr().out
    assert "Nobody" not in text
    checked, missing = map(json.loads, text.splitlines())
    shown = ("address", "method", "path", "status", "client_request")
    assert [checked[name] for name in shown] == ["127.0.0.1", "POST", "/v1/detect", 200, "r-1"]
    assert (missing["path"], missing["status"]) == ("/nothing%0Ahere", 404)
