"""`MovingWindow`: what somebody may do in any so many seconds."""

import time


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

    def wait(self, caller: object, amount: float | None = None) -> float:
        """Seconds until this caller may spend so much; 0 for now.

        Args:
            caller: who spends.
            amount: how much; None if that is not known before, for which anything must be left.
        """
        now, total = time.monotonic(), amount or 0.0
        since = now - self._seconds
        if self._swept < since:  # forget what is older, and those who have not come again
            self._swept = now
            recent = {one: [each for each in spent if each[0] > since] for one, spent in self._spent.items()}
            self._spent = {one: spent for one, spent in recent.items() if spent}
        for then, amount in reversed(self._spent.get(caller, ())):
            total += amount
            if total > self._amount or (amount is None and total == self._amount):  # until this is older
                return max(0.0, then - since)
        return 0.0

    def spend(self, caller: object, amount: float) -> None:
        """Note what a caller spends."""
        self._spent.setdefault(caller, []).append((time.monotonic(), amount))
