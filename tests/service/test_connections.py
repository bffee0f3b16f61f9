"""Silent and slow connections, too many of them, and proxies, on a real server."""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from dgmark.errors import SettingsError
from dgmark.service.app import create_app
from dgmark.service.connections import protocol_of
from dgmark.service.settings import ServiceSettings
from support.services import key_folder, listening

HEAD = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a service and returns its address."""
    with ExitStack() as running:

        def start(**given: Any) -> str:
            settings = ServiceSettings(key_folder(tmp_path, "one"), workers=1, **given)
            options: dict[str, Any] = {"http": protocol_of(settings), "forwarded_allow_ips": list(settings.proxies)}
            return running.enter_context(listening(create_app(settings), **options))

        yield start


def connected(url: str) -> socket.socket:
    host, _, port = urlsplit(url).netloc.partition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def test_a_connection_without_whole_headers_is_closed(serve: Callable[..., str]) -> None:
    url = serve(header_seconds=0.5)
    with connected(url) as silent, connected(url) as slow, connected(url) as second:
        slow.sendall(HEAD)
        second.sendall(HEAD + b"\r\n")
        assert b"200 OK" in second.recv(4096)
        second.sendall(HEAD)  # before the time is up that a connection may be idle between requests
        for late in (silent, slow, second):
            while late.recv(4096):  # what is left of an answer
                pass
    assert httpx.get(f"{url}/healthz").status_code == 200


def test_only_so_many_connections_are_open(serve: Callable[..., str]) -> None:
    url = serve(connections=3, header_seconds=30)
    held = [connected(url) for _ in range(3)]
    for one in held:
        one.sendall(HEAD)
    with connected(url) as refused:
        assert refused.recv(4096).startswith(b"HTTP/1.1 429 ")
    for one in held:
        one.sendall(b"\r\n")
        assert b"200 OK" in one.recv(4096)
        one.close()
    assert httpx.get(f"{url}/healthz").status_code == 200


@pytest.mark.parametrize(
    ("proxies", "address"),
    [
        (("127.0.0.1",), "203.0.113.9"),
        (("127.0.0.0/8", "203.0.113.9"), "192.0.2.1"),  # both stand in a row
        (("10.0.0.7",), "127.0.0.1"),  # whoever asks is no proxy
    ],
)
def test_only_proxies_are_believed_where_a_request_comes_from(
    serve: Callable[..., str], tmp_path: Path, proxies: tuple[str, ...], address: str
) -> None:
    url = serve(proxies=proxies, public=True, public_rate="1 per hour", audit=tmp_path / "audit.jsonl")

    def ask(forwarded: str) -> int:
        headers = {"x-forwarded-for": forwarded}
        return httpx.post(f"{url}/v1/detect", json={"text": "some words"}, headers=headers).status_code

    assert [ask("192.0.2.1, 203.0.113.9") for _ in range(2)] == [200, 429]
    rows = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [row["address"] for row in rows] == [address] * 2
    assert ask("198.51.100.77") == (429 if address == "127.0.0.1" else 200)


def test_what_is_no_address_of_a_proxy_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'proxy\.example' is no address"):
        ServiceSettings(Path("keys"), proxies=("proxy.example",))
