"""What the service logs: its form, and no more than a line a minute of what anybody can cause."""

import json
import logging
import logging.config
from collections.abc import Iterator
from pathlib import Path

import pytest

from dgmark.service.logs import log_config
from support.services import service

ATTACKS = (
    ("uvicorn.error", logging.WARNING, "Invalid HTTP request received."),
    ("asyncio", logging.ERROR, "socket.accept() out of system resource\nsocket: 7"),
    ("dgmark.service.connections", logging.INFO, "connections are closed"),
)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    before, levels = root.handlers.copy(), {name: logging.getLogger(name).level for name in log_config()["loggers"]}
    yield
    root.handlers[:] = before
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().err.splitlines()


def test_what_anybody_can_cause_is_logged_once_a_minute(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    logging.config.dictConfig(log_config(form="json"))
    monkeypatch.setattr("time.monotonic", lambda: now)
    for name, level, message in ATTACKS:
        for _ in range(450):
            logging.getLogger(name).log(level, message)
    logging.getLogger("dgmark.service").error("request %s failed", 1)
    logging.getLogger("dgmark.service").error("request %s failed", 2)
    assert [json.loads(line)["message"] for line in lines(capsys)] == [
        *(message for _, _, message in ATTACKS),
        "request 1 failed",
        "request 2 failed",
    ]
    now = 60.0
    for name, level, message in ATTACKS:
        logging.getLogger(name).log(level, message)
    assert all(json.loads(line)["message"].endswith("(and 449 more like this before)") for line in lines(capsys))


def test_a_request_is_a_line_without_its_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(log_config("warning", "json", access=True))
    with service(tmp_path, "one") as client:
        client.post("/v1/detect?x=Nobody", json={"text": "Nobody shall read this."}, headers={"x-request-id": "r-1"})
        client.get("/nothing%0Ahere")
        text = capsys.readouterr().err
        checked, missing = map(json.loads, text.splitlines())
        logging.config.dictConfig(log_config("info", "text"))
        client.get("/healthz")
    assert not lines(capsys)
    assert "Nobody" not in text
    assert {checked[name] for name in ("address", "method", "path", "request")} == {
        *("127.0.0.1", "POST", "/v1/detect", "r-1")
    }
    assert (checked["status"], checked["level"], checked["logger"]) == (200, "info", "dgmark.access")
    assert (missing["path"], missing["status"]) == ("/nothing%0Ahere", 404)


def test_a_traceback_is_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    logging.config.dictConfig(log_config(form="json"))
    try:
        raise ValueError("wrong")
    except ValueError:
        logging.getLogger("dgmark.service").exception("failed")
    (line,) = lines(capsys)
    assert json.loads(line)["exception"].splitlines()[-1] == "ValueError: wrong"
