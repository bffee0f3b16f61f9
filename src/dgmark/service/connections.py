"""Connections: headers must arrive in time, and one client, and all together, have so many connections at most.

uvicorn's protocol with these limits, because no server in Python has them all: hypercorn and granian end connections
without headers as well, but neither counts those of a client. Knows nothing of what is asked.
"""

import asyncio
import ipaddress
import logging
from collections import Counter
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dgmark.service.auth import network
from dgmark.service.settings import ServiceSettings

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]

log = logging.getLogger("dgmark.service.connections")
_TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 under the limits of a service; see `protocol_of`.

    Attributes:
        settings: the service's settings.
        most: connections of all clients together; one may have an eighth of them.
        held: how many each has.
    """

    settings: ClassVar[ServiceSettings]
    most: ClassVar[int]
    held: ClassVar[Counter[str]]
    _holder: str | None = None
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it."""
        super().connection_made(transport)
        client = self.client[0] if self.client else "unknown"
        if refusal := self._refusal(client):
            log.warning("connections are refused: %s would have too many", refusal)
            transport.write(_TOO_MANY)
            transport.close()
        else:
            self._holder = network(client)
            self.held[self._holder] += 1
            self._await_headers()

    def _refusal(self, client: str) -> str | None:
        if self.held.total() >= self.most:
            return "all clients together"
        if self.held[network(client)] < max(1, self.most // 8):
            return None
        # a proxy has the connections of many
        proxies = map(ipaddress.ip_network, self.settings.proxies)
        return None if any(ipaddress.ip_address(client) in proxy for proxy in proxies) else "one client"

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; its headers have one deadline, however many parts they come in."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._deadline is None:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Count the connection no more."""
        self._stop_waiting()
        if self._holder is not None:
            self.held[self._holder] -= 1
            if not self.held[self._holder]:
                del self.held[self._holder]
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._deadline = self.loop.call_later(self.settings.header_seconds, self._close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        log.info("connections are closed that sent no whole headers in %g seconds", self.settings.header_seconds)
        self.transport.close()


def protocol_of(settings: ServiceSettings) -> type[LimitedProtocol]:
    """The protocol for `uvicorn.Config(http=...)`, under the limits of these settings.

    No more connections are held than three quarters of the files that the process may open: requests and workers need
    some as well.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource is not None else -1
    most = settings.connections if files < 0 else min(settings.connections, files * 3 // 4)
    return type("ServiceProtocol", (LimitedProtocol,), {"settings": settings, "most": most, "held": Counter()})
