"""Without the hub, its libraries are told so once, before they try again and again."""

import os
import socket

import pytest

from dgmark_lab.offline import offline_if_unreachable


@pytest.fixture(autouse=True)
def no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")  # so that it is as before after the test
    for name in ("HF_HUB_OFFLINE", "http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_a_hub_that_cannot_be_reached_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    offline_if_unreachable()
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_a_hub_that_answers_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.getsockname()[1]}")
        offline_if_unreachable()
    assert "HF_HUB_OFFLINE" not in os.environ


@pytest.mark.parametrize(("name", "value"), [("HF_HUB_OFFLINE", "0"), ("https_proxy", "http://127.0.0.1:9")])
def test_the_users_choice_and_a_proxy_are_left_alone(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    monkeypatch.setenv(name, value)
    offline_if_unreachable()
    assert os.environ.get("HF_HUB_OFFLINE") in (None, "0")
