"""Silent and slow connections, too many of them, and proxies, on a real server."""

import json
import socket
from collections.abc import Callable, Iterator
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
    keys, running = key_folder(tmp_path, "one"), []

    def start(**given: Any) -> str:
        settings = ServiceSettings(keys, workers=1, **given)
        options: dict[str, Any] = {"http": protocol_of(settings), "forwarded_allow_ips": list(settings.proxies)}
        running.append(listening(create_app(settings), **options))
        return running[-1].__enter__()

    yield start
    for one in running:
        one.__exit__(None, None, None)


def connected(url: str) -> socket.socket:
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    return socket.create_connection((place.hostname, place.port), timeout=30)


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


@pytest.mark.parametrize(("proxies", "most"), [((), 1), (("127.0.0.0/8",), 8)])
def test_a_client_and_all_together_have_so_many_connections(
    serve: Callable[..., str], proxies: tuple[str, ...], most: int
) -> None:
    """A proxy has the connections of many clients."""
    url = serve(connections=8, header_seconds=30, proxies=proxies)
    held = [connected(url) for _ in range(most)]
    for one in held:
        one.sendall(HEAD)
    with connected(url) as refused:
        assert refused.recv(4096).startswith(b"HTTP/1.1 429 ")
    for one in held:
        one.sendall(b"\r\n")
        assert b"200 OK" in one.recv(4096)
        one.close()
    with connected(url) as again:
        again.sendall(HEAD + b"\r\n")
        assert b"200 OK" in again.recv(4096)


@pytest.mark.parametrize(
    ("proxies", "address"),
    [
        (("127.0.0.1",), "203.0.113.9"),
        (("127.0.0.0/8", "198.51.100.7"), "192.0.2.1"),  # both stand in a row
        (("10.0.0.7",), "127.0.0.1"),  # whoever asks is no proxy
    ],
)
def test_only_proxies_are_believed_where_a_request_comes_from(
    serve: Callable[..., str], tmp_path: Path, proxies: tuple[str, ...], address: str
) -> None:
    said = "192.0.2.1, 198.51.100.7" if len(proxies) == 2 else "1.2.3.4, 203.0.113.9"
    url = serve(proxies=proxies, public=True, public_rate="1 per hour", audit=tmp_path / "audit.jsonl")
    body, headers = {"text": "some words"}, {"x-forwarded-for": said}
    assert [httpx.post(f"{url}/v1/detect", json=body, headers=headers).status_code for _ in range(2)] == [200, 429]
    rows = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [row["address"] for row in rows] == [address] * 2
    other = {"x-forwarded-for": "203.0.113.77"}
    status = httpx.post(f"{url}/v1/detect", json=body, headers=other).status_code
    assert status == (429 if address == "127.0.0.1" else 200)


def test_what_is_no_address_of_a_proxy_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"'proxy\.example' is no address"):
        ServiceSettings(Path("keys"), proxies=("proxy.example",))
