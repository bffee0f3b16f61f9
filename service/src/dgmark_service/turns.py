"""Whose text is checked next: so many at once, of which strangers can take half, and so many that wait.

Strangers are those without a token where others have one. Knows nothing of HTTP and of what is checked.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext

from dgmark_service.error_answers import ErrorAnswer

SMOOTHING = 0.1  # weight of the last request in the mean time of one


class Busy(ErrorAnswer):
    """All workers are at work, and as many requests as may wait are waiting.

    Args:
        seconds: time in which there is probably room.
    """

    def __init__(self, seconds: float) -> None:
        later = math.ceil(max(1.0, seconds))
        detail = f"the service has more to do than it can: try again in {later} seconds"
        super().__init__(429, detail, headers={"retry-after": str(later)})


class Turns:
    """Gives out the places in which texts are checked.

    Args:
        places: how many there are. One that strangers cannot take needs two.
        queue: how many token holders may wait, and how many strangers.
    """

    def __init__(self, places: int, queue: int) -> None:
        self.places, self._most, self._mean = places, places + queue, 0.1
        self._free, self._for_strangers = asyncio.Semaphore(places), asyncio.Semaphore(max(1, places // 2))
        self._held = {True: 0, False: 0}

    @property
    def held(self) -> int:
        """How many are checked or wait."""
        return sum(self._held.values())

    @asynccontextmanager
    async def place(self, *, stranger: bool) -> AsyncIterator[None]:
        """Wait for a place, and hold it.

        Raises:
            Busy: there is no room to wait.
        """
        if self._held[stranger] >= self._most:
            raise Busy(self._held[stranger] * self._mean / self.places)
        self._held[stranger] += 1
        try:
            async with self._for_strangers if stranger else nullcontext(), self._free:
                began = time.monotonic()
                yield
                self._mean += SMOOTHING * (time.monotonic() - began - self._mean)
        finally:
            self._held[stranger] -= 1


class MovingWindow:
    """What each caller may spend in any so many seconds, by a clock that nobody sets.

    Args:
        amount: how much.
        seconds: the length of the window.
    """

    def __init__(self, amount: float, seconds: float) -> None:
        self._amount, self._seconds = amount, seconds
        self._spent: dict[object, list[tuple[float, float]]] = {}  # when, and how much, by caller
        self._swept = time.monotonic()

    def wait(self, caller: object) -> float:
        """Seconds until this caller may spend again; 0 for now."""
        now, total = time.monotonic(), 0.0
        since = now - self._seconds
        if self._swept < since:  # forget what is older, and those who have not come again
            self._swept = now
            recent = {one: [each for each in spent if each[0] > since] for one, spent in self._spent.items()}
            self._spent = {one: spent for one, spent in recent.items() if spent}
        for then, amount in reversed(self._spent.get(caller, ())):
            total += amount
            if total >= self._amount:  # until this is older
                return max(0.0, then - since)
        return 0.0

    def spend(self, caller: object, amount: float) -> None:
        """Note what a caller spends."""
        self._spent.setdefault(caller, []).append((time.monotonic(), amount))
