"""Connections: what a client sends or takes has its time, and only so many connections are open at once.

uvicorn's protocol with these limits, which it does not have itself and without which a service that has no proxy before
it stops answering. Shares for each client are a proxy's work (deploy/nginx.conf). Further deadlines of a connection
belong here. Knows nothing of what is asked.
"""

import asyncio
import logging
from typing import ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from dgmark_service.settings import ServiceSettings

try:
    import resource
except ModuleNotFoundError:  # Windows
    resource = None  # type: ignore[assignment]

log = logging.getLogger("dgmark_service.connections")
_TOO_MANY = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
# for what is left of a body when its request is answered: an answer is lost if the connection is closed at once
REST_SECONDS = 2.0


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 under the limits of a service; see `protocol_of`.

    Attributes:
        max_connections: how many connections may be open at once.
        header_seconds: time in which the headers of a request must have arrived.
        answer_seconds: time in which a client must have taken what was sent.
    """

    max_connections: ClassVar[int]
    header_seconds: ClassVar[float]
    answer_seconds: ClassVar[float]
    _awaited: str | None = None  # what the client has to send until the deadline
    _deadline: asyncio.TimerHandle | None = None
    _reader_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or refuse it."""
        super().connection_made(transport)
        self.ws_protocol_class = None  # a connection that is upgraded leaves all limits
        if len(self.connections) > self.max_connections:  # this one is among them
            log.warning("connections are refused: more than %d would be open", self.max_connections)
            transport.write(_TOO_MANY)
            transport.close()
        else:
            transport.set_write_buffer_limits(high=0)  # writing is paused until all is taken
            self._watch_client()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        self._watch_client()

    def on_response_complete(self) -> None:
        """Go on to the next request, or wait for the rest of the body that this one still sends."""
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:  # else uvicorn limits how long the connection is idle
            self._watch_client()

    def pause_writing(self) -> None:
        """Wait for a client who has not taken what was sent."""
        super().pause_writing()
        self._reader_deadline = self.loop.call_later(self.answer_seconds, self._cut_off)

    def resume_writing(self) -> None:
        """Go on: the client has taken all that was sent."""
        super().resume_writing()
        if self._reader_deadline is not None:
            self._reader_deadline.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        for deadline in (self._deadline, self._reader_deadline):
            if deadline is not None:
                deadline.cancel()
        super().connection_lost(exc)

    def _watch_client(self) -> None:
        """Set a deadline for what the client has to send next; it is one, however many parts that comes in."""
        awaited, seconds = None, 0.0
        if self.conn.their_state is h11.IDLE:
            awaited, seconds = "headers", self.header_seconds
        elif self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            awaited, seconds = "rest of a body", REST_SECONDS
        if awaited == self._awaited:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited = awaited
        if awaited is not None:
            self._deadline = self.loop.call_later(seconds, self._close, awaited, seconds)

    def _close(self, awaited: str, seconds: float) -> None:
        log.info("connections are closed whose %s did not arrive in %g seconds", awaited, seconds)
        self.transport.close()

    def _cut_off(self) -> None:
        log.info("connections are cut off that did not take what was sent in %g seconds", self.answer_seconds)
        self.transport.abort()


def protocol_of(settings: ServiceSettings) -> type[LimitedProtocol]:
    """The protocol for `uvicorn.Config(http=...)`, under the limits of these settings.

    No more connections are held than three quarters of the files that the process may open: requests and workers need
    some as well.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if resource is not None else -1
    most = settings.connections if files < 0 else min(settings.connections, files * 3 // 4)
    limits = {
        "max_connections": most,
        "header_seconds": settings.header_seconds,
        "answer_seconds": settings.answer_seconds,
    }
    return type("ServiceProtocol", (LimitedProtocol,), limits)
