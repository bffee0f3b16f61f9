"""Server-sent events: their form, and a stream of them that lets go of its text however it ends. Knows no model."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope

# a sign of life
HEARTBEAT = b": waiting\n\n"


def event(name: str | None, fields_: Mapping[str, Any] | str) -> bytes:
    """A server-sent event."""
    data = fields_ if isinstance(fields_, str) else json.dumps(fields_, ensure_ascii=False, separators=(",", ":"))
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode("utf-8", "replace")


class EventStream(StreamingResponse):
    """A stream of events, after which what it holds is let go, however the stream ends."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes], stack: AsyncExitStack) -> None:
        super().__init__(events, headers={"x-accel-buffering": "no"})
        self._stack = stack

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Send the events."""
        async with self._stack:
            await super().__call__(scope, receive, send)
