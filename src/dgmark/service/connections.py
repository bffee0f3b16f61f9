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


class ConnectionLimits:
    """The limits of one service, and how many connections each client has.

    Args:
        settings: the service's settings. No more connections are held than three quarters of the files that the process
            may open, because requests and workers need some as well.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource is not None else -1
        self.most = settings.connections if files < 0 else min(settings.connections, files * 3 // 4)
        self.most_of_client = max(1, self.most // 8)
        self.seconds = settings.header_seconds
        self.held: Counter[str] = Counter()
        self._proxies = [ipaddress.ip_network(proxy) for proxy in settings.proxies]

    def refusal(self, client: str) -> str | None:
        """Why a client may not have one more connection, if it may not."""
        if self.held.total() >= self.most:
            return "all clients together"
        # a proxy has the connections of many
        trusted = any(ipaddress.ip_address(client) in proxy for proxy in self._proxies) if client else False
        return "one client" if not trusted and self.held[network(client)] >= self.most_of_client else None

    def release(self, client: str) -> None:
        """A connection of this client has ended."""
        self.held[client] -= 1
        if not self.held[client]:
            del self.held[client]


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 under `limits`; see `protocol_of`."""

    limits: ClassVar[ConnectionLimits]
    _deadline: asyncio.TimerHandle | None = None
    _counted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it."""
        super().connection_made(transport)
        client = self.client[0] if self.client else ""
        if refusal := self.limits.refusal(client):
            log.warning("connections are refused: %s would have too many", refusal)
            transport.write(_TOO_MANY)
            transport.close()
            return
        self._client, self._counted = network(client), True
        self.limits.held[self._client] += 1
        self._await_headers()

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
        if self._counted:
            self.limits.release(self._client)
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._deadline = self.loop.call_later(self.limits.seconds, self._close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        log.info("connections are closed that sent no whole headers within %g seconds", self.limits.seconds)
        self.transport.close()


def protocol_of(settings: ServiceSettings) -> type[LimitedProtocol]:
    """The protocol for `uvicorn.Config(http=...)`, under the limits of these settings."""
    return type("ServiceProtocol", (LimitedProtocol,), {"limits": ConnectionLimits(settings)})
