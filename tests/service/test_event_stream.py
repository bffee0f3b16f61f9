"""Server-sent events: signs of life, and a reader who takes nothing."""

import asyncio
import logging
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


def test_a_reader_who_takes_nothing_is_cut_off_and_its_text_let_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(generation, "SEND_SECONDS", 0.05)
    made: list[int] = []
    sent: list[Any] = []
    let_go: list[bool] = []

    async def steps() -> AsyncIterator[Event]:
        for number in range(1000):
            made.append(number)
            yield event({"step": number}, "step")

    async def send(message: Any) -> None:
        if len(sent) == 4:
            await asyncio.Event().wait()  # as a server whose buffer is full
        sent.append(message)

    async def run() -> None:
        async def close() -> None:
            let_go.append(True)

        async with asyncio.timeout(10):
            await EventStream(steps(), close)(SCOPE, listening, send)

    with caplog.at_level(logging.WARNING, "dgmark.service"):
        asyncio.run(run())
    assert let_go == [True]
    assert made == [0, 1, 2, 3]
    assert "r1" in caplog.text
    assert "cut off" in caplog.text
