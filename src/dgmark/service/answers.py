"""`Answers`: what comes of one text, kept for a reader who may be slower than the model. Its size is bounded."""

import asyncio
from collections import deque
from dataclasses import replace

from dgmark.errors import DgmarkError
from dgmark.service.jobs import FromWorker, Stepped

# steps that wait for their reader; those that come then are joined into one
MOST_STEPS = 64
Message = FromWorker | DgmarkError


class Answers:
    """What comes of one text, in order: of steps that wait, the last one may stand for several.

    So a reader who falls behind costs no more than `MOST_STEPS` steps and one that holds the rest of the text, and gets
    every token all the same.
    """

    def __init__(self) -> None:
        self._waiting: deque[Message] = deque()
        self._there = asyncio.Event()

    def __len__(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    def put(self, message: Message) -> None:
        """Add a message."""
        last = self._waiting[-1] if len(self._waiting) > MOST_STEPS else None
        if isinstance(last, Stepped) and isinstance(message, Stepped):
            self._waiting[-1] = _joined(last, message)
        else:
            self._waiting.append(message)
        self._there.set()

    async def get(self) -> Message:
        """The next message, which is waited for."""
        while not self._waiting:
            self._there.clear()
            await self._there.wait()
        return self._waiting.popleft()


def _joined(first: Stepped, second: Stepped) -> Stepped:
    """Two steps as one, which has the number of the later one."""
    return replace(
        second,
        positions=first.positions + second.positions,
        tokens=first.tokens + second.tokens,
        pieces=first.pieces + second.pieces,
        added=first.added + second.added,
    )
