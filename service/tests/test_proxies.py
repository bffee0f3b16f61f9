"""Proxies, on a real server."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from dgmark.errors import SettingsError
from dgmark_service.app import create_app
from dgmark_service.settings import ServiceSettings
from support.services import key_folder, listening


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a service and returns its address."""
    with ExitStack() as running:

        def start(**given: Any) -> str:
            settings = ServiceSettings(key_folder(tmp_path, "one"), workers=1, **given)
            proxies = list(settings.proxies)
            return running.enter_context(listening(create_app(settings), forwarded_allow_ips=proxies))

        yield start


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
