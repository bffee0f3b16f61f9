"""Connections: the headers of a request must arrive in time, and only so many connections are open at once.

uvicorn's protocol with these two limits, which it does not have itself and without which a service that has no proxy
before it stops answering. Shares for each client are a proxy's work (deploy/nginx.conf). Further deadlines of a
connection belong here, beside that of the headers. Knows nothing of what is asked.
"""

import asyncio
import logging
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

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
        max_connections: how many connections may be open at once.
        header_seconds: time in which the headers of a request must have arrived.
    """

    max_connections: ClassVar[int]
    header_seconds: ClassVar[float]
    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it."""
        super().connection_made(transport)
        if len(self.connections) > self.max_connections:  # this one is among them
            log.warning("connections are refused: more than %d would be open", self.max_connections)
            transport.write(_TOO_MANY)
            transport.close()
        else:
            self._await_headers()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request; its headers have one deadline, however many parts they come in."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._deadline is None:
            self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _await_headers(self) -> None:
        self._deadline = self.loop.call_later(self.header_seconds, self._close)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        log.info("connections are closed that sent no whole headers in %g seconds", self.header_seconds)
        self.transport.close()


def protocol_of(settings: ServiceSettings) -> type[LimitedProtocol]:
    """The protocol for `uvicorn.Config(http=...)`, under the limits of these settings.

    No more connections are held than three quarters of the files that the process may open: requests and workers need
    some as well.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource is not None else -1
    most = settings.connections if files < 0 else min(settings.connections, files * 3 // 4)
    limits = {"max_connections": most, "header_seconds": settings.header_seconds}
    return type("ServiceProtocol", (LimitedProtocol,), limits)
