"""Server-sent events: their form, and a reader who takes nothing."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dgmark.service import generation
from dgmark.service.generation import EventStream, event


@pytest.mark.parametrize("version", ["2.3", "2.4"])
def test_a_reader_who_takes_nothing_is_cut_off_and_its_text_let_go(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, version: str
) -> None:
    monkeypatch.setattr(generation, "SEND_SECONDS", 0.05)
    made: list[int] = []
    sent: list[Any] = []
    let_go: list[bool] = []

    async def steps() -> AsyncIterator[bytes]:
        for number in range(1000):
            made.append(number)
            yield event("step", {"step": number})

    async def send(message: Any) -> None:
        if len(sent) == 4:
            await asyncio.Event().wait()  # as a server whose buffer is full
        sent.append(message)

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def run() -> None:
        async def close() -> None:
            let_go.append(True)

        scope = {"type": "http", "asgi": {"spec_version": version}, "state": {"request_id": "r1"}}
        async with asyncio.timeout(10):
            await EventStream(steps(), close)(scope, receive, send)

    with caplog.at_level(logging.WARNING, "dgmark.service"):
        asyncio.run(run())
    assert let_go == [True]
    assert made == [0, 1, 2, 3]
    assert "r1" in caplog.text
    assert "cut off" in caplog.text
