"""Server-sent events: signs of life."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dgmark.service import generation
from dgmark.service.generation import Event, EventStream, event

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "state": {"request_id": "r1"}}


async def listening() -> Any:
    """A reader who stays."""
    await asyncio.Event().wait()


async def nothing() -> None:
    pass


def test_a_silent_stream_says_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "_HEARTBEAT_SECONDS", 0.01)
    sent: list[bytes] = []

    async def steps() -> AsyncIterator[Event]:
        while len(sent) < 3:
            await asyncio.sleep(0.01)
        yield event({"step": 0}, "step")

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))

    async def run() -> None:
        async with asyncio.timeout(10):
            await EventStream(steps(), nothing)(SCOPE, listening, send)

    asyncio.run(run())
    assert [one[:7] for one in sent[1:3]] == [b": ping "] * 2
    assert b'event: step\ndata: {"step":0}\n\n' in sent
