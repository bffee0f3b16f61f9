"""Silent and slow connections, clients who take nothing, too many connections, and proxies, on a real server."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest

from dgmark.errors import SettingsError
from dgmark_service import connections
from dgmark_service.app import create_app
from dgmark_service.connections import protocol_of
from dgmark_service.settings import ServiceSettings
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


def closes(connection: socket.socket) -> bool:
    """Whether the server closes a connection on which a byte comes every tenth of a second."""
    connection.settimeout(0.1)
    for _ in range(90):
        try:
            if not connection.recv(4096):
                return True
        except TimeoutError:
            with suppress(OSError):
                connection.sendall(b"x")
        except OSError:
            return True
    return False


@pytest.mark.parametrize(
    ("request_line", "more", "status"),
    [
        ("GET /healthz", "", 200),
        ("HEAD /", "", 200),
        ("OPTIONS /healthz", "", 405),
        ("POST /nothing", "", 404),
        ("POST /v1/detect", "origin: http://elsewhere.example", 403),
        ("POST /v1/detect", "x-forwarded-for: 203.0.113.9", 401),
    ],
)
def test_an_answered_connection_is_closed_that_goes_on_with_its_body(
    serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch, request_line: str, more: str, status: int
) -> None:
    monkeypatch.setattr(connections, "REST_SECONDS", 1.0)
    head = f"{request_line} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n{more or 'x: y'}\r\n\r\n".encode()
    with connected(serve()) as slow:
        slow.sendall(head)
        assert slow.recv(4096).startswith(f"HTTP/1.1 {status} ".encode())
        assert closes(slow)


@pytest.mark.parametrize("last", [True, False])
def test_a_client_who_takes_nothing_is_cut_off(tmp_path: Path, last: bool) -> None:
    size, ended = 2**26, threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": bytes(size), "more_body": not last})
        if not last:
            await send({"type": "http.response.body"})
        ended.set()

    protocol: Any = protocol_of(ServiceSettings(tmp_path, answer_seconds=0.5))
    served: Any = app
    with listening(served, http=protocol, lifespan="off") as url, connected(url) as reader:
        reader.sendall(HEAD + b"\r\n")
        assert ended.wait(20)
        time.sleep(2)
        taken = 0
        with suppress(ConnectionError):
            while part := reader.recv(2**20):
                taken += len(part)
        assert taken < size


def test_no_connection_leaves_the_limits_by_an_upgrade(tmp_path: Path) -> None:
    settings = ServiceSettings(key_folder(tmp_path, "one"), workers=1)
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    protocols: dict[str, Any] = {"http": protocol_of(settings), "ws": asyncio.Protocol}
    with listening(create_app(settings), **protocols) as url, connected(url) as client:
        client.sendall(HEAD + upgrade)
        assert b"200 OK" in client.recv(4096)


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
