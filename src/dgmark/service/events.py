"""Server-sent events: their form, and a stream of them that lets go of its text however it ends. Knows no model."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Message, Receive, Send
from starlette.types import Scope as AsgiScope

log = logging.getLogger("dgmark.service")

PATIENCE = 60.0  # seconds
# a sign of life
HEARTBEAT = b": waiting\n\n"


def event(name: str | None, fields_: Mapping[str, Any] | str) -> bytes:
    """A server-sent event."""
    data = fields_ if isinstance(fields_, str) else json.dumps(fields_, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode("utf-8", "replace")


class _CutOff(Exception):
    """The reader of a stream takes nothing."""


class EventStream(StreamingResponse):
    """A stream of events, after which what it holds is let go, however the stream ends.

    A reader who does not take what is sent within `PATIENCE` seconds is cut off.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], stack: AsyncExitStack) -> None:
        super().__init__(events, headers={"x-accel-buffering": "no"})
        self._stack = stack

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Send the events."""

        async def send_in_time(message: Message) -> None:
            """Send a part, unless the reader is cut off.

            Raises:
                _CutOff: he is.
            """
            try:
                async with asyncio.timeout(PATIENCE):
                    await send(message)
            except TimeoutError:
                raise _CutOff from None

        async with self._stack:
            try:
                await super().__call__(scope, receive, send_in_time)
            except* _CutOff:
                request = scope["state"]["request_id"]
                log.warning(
                    "request %s: its reader did not take what was sent within %g seconds and is cut off",
                    request,
                    PATIENCE,
                )
