"""Whose text is checked next: so many at once, of which strangers can take half, and so many that wait.

Strangers are those without a token where others have one. Knows nothing of HTTP and of what is checked.
"""

import asyncio
import time
from collections import defaultdict, deque
from dataclasses import dataclass

from dgmark_service.worker_pool import SMOOTHING, Busy


@dataclass
class Turns:
    """Gives out the places in which texts are checked.

    Attributes:
        places: how many there are.
        queue: how many token holders may wait, and how many strangers.
    """

    places: int
    queue: int

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.places)
        self._for_strangers = asyncio.Semaphore(max(1, self.places // 2))
        self._held = {True: 0, False: 0}
        self._mean = 0.1

    @property
    def held(self) -> int:
        """How many are checked or wait."""
        return sum(self._held.values())

    async def take(self, *, stranger: bool) -> None:
        """Wait for a place; whoever gets one gives it back.

        Raises:
            Busy: there is no room to wait.
        """
        if self._held[stranger] >= self.places + self.queue:
            raise Busy(self._held[stranger] * self._mean / self.places)
        self._held[stranger] += 1
        try:
            if stranger:
                await self._for_strangers.acquire()
            try:
                await self._free.acquire()
            except BaseException:
                if stranger:
                    self._for_strangers.release()
                raise
        except BaseException:
            self._held[stranger] -= 1
            raise

    def give_back(self, seconds: float, *, stranger: bool) -> None:
        """Free a place that was held for so long."""
        self._mean += SMOOTHING * (seconds - self._mean)
        self._held[stranger] -= 1
        self._free.release()
        if stranger:
            self._for_strangers.release()


class MovingWindow:
    """What each caller may spend in any so many seconds, by a clock that nobody sets.

    Args:
        amount: how much.
        seconds: the length of the window.
    """

    def __init__(self, amount: float, seconds: float) -> None:
        self._amount, self._seconds = amount, seconds
        self._spent: defaultdict[object, deque[tuple[float, float]]] = defaultdict(deque)
        self._swept = time.monotonic()

    def wait(self, caller: object) -> float:
        """Seconds until this caller may spend again; 0 for now."""
        now = time.monotonic()
        if now - self._swept > self._seconds:  # forget those who have not come again
            self._swept = now
            for one in [one for one, spent in self._spent.items() if spent[-1][0] <= now - self._seconds]:
                del self._spent[one]
        if caller not in self._spent:
            return 0.0
        spent = self._spent[caller]
        while spent and spent[0][0] <= now - self._seconds:
            spent.popleft()
        over = sum(amount for _, amount in spent) - self._amount
        if over < 0:
            return 0.0
        for then, amount in spent:
            over -= amount
            if over < 0:
                return then + self._seconds - now
        return 0.0

    def spend(self, caller: object, amount: float) -> None:
        """Note what a caller spends."""
        self._spent[caller].append((time.monotonic(), amount))
