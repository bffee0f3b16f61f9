"""Commits of blocks that are settled, for whoever shows a text while it is written.

Where tokens are deleted and inserted, what stands in a block moves until the block is done.
"""

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from dgmark.decode.steps.canvas import BlockFinished, Committed, replayed

Event = TypeVar("Event")
# a token, its reward, and whether it matched; None for a position that is not written
_Written = tuple[int, float, bool] | None


class SettledBlocks:
    """Holds commits back until nothing in their block moves any more, and then gives those of the block at once.

    The last block of a row is not given: with it the row is complete.

    Args:
        inserts: whether tokens are deleted and inserted (`DecodeConfig.inserts`); without, nothing is held back.
    """

    def __init__(self, inserts: bool) -> None:
        self._inserts = inserts
        self._written: dict[int, list[_Written]] = {}
        self._given: dict[int, int] = {}

    def of(self, events: Iterable[Event]) -> Iterator[Event]:
        """These events, with one `Committed` of all positions of a block before its `BlockFinished`."""
        for event in events:
            if self._inserts and isinstance(event, Committed):
                self._hold(event)
                continue
            if self._inserts and isinstance(event, BlockFinished):
                yield from (self._block(row, event) for row in event.rows)
            yield event

    def _hold(self, event: Committed) -> None:
        values: list[_Written] = list(zip(event.token_ids, event.rewards, event.matched, strict=True))
        written = self._written.get(event.row, [])
        self._written[event.row] = replayed(written, event.operations, event.positions, values, None)

    def _block(self, row: int, event: BlockFinished) -> Any:
        """The commits of a finished block, as a `Committed`."""
        positions = range(self._given.get(row, 0), event.stop)
        self._given[row] = event.stop
        written = [one for one in self._written[row][positions.start : positions.stop] if one is not None]
        tokens, rewards, matched = (list(column) for column in zip(*written, strict=True))
        number = len(positions)
        return Committed(
            row, event.block, list(positions), tokens, rewards, matched, [False] * number, ["write"] * number
        )
