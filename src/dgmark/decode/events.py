"""A decode as events: the commits of each step row by row, each finished block, each complete row."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from dgmark.decode.canvas import Canvas, Commits, Response, Trace
from dgmark.models.denoiser import Denoiser

# Called after each step with the number of tokens that the step committed.
Progress = Callable[[int], None]


@dataclass(frozen=True)
class Committed:
    """The commits of one step in one row, as parallel lists; see `Trace`.

    An edited token replaces the one that was committed at its position before.
    """

    row: int
    step: int
    positions: list[int]
    token_ids: list[int]
    rewards: list[float]
    matched: list[bool]
    edited: list[bool]


@dataclass(frozen=True)
class BlockFinished:
    """In these rows, nothing in the block of this number or before it will change any more."""

    rows: list[int]
    block: int


@dataclass(frozen=True)
class Completed:
    """A complete row, before its text is decoded."""

    row: int
    response: Response


class BatchEvents:
    """Turns the commits of a batch into the events of its rows.

    Args:
        canvas: the canvas of the batch.
        numbers: the number that events give each row.
        ends: ids that end a response.
    """

    def __init__(self, canvas: Canvas, numbers: Sequence[int], ends: tuple[int, ...]) -> None:
        self._canvas, self._numbers, self._ends = canvas, numbers, set(ends) if canvas.stops else set()
        self._region = canvas.ids[:, canvas.start : canvas.start + len(canvas.masked)].clone()
        self._traces = [Trace() for _ in numbers]
        self._unfinished = set(range(len(numbers)))
        self._block = 0

    def of(self, commits: Commits) -> Iterator[Committed | BlockFinished | Completed]:
        """The events of one step; the commits of each step are given once, in order."""
        if commits.block != self._block:
            yield BlockFinished([self._numbers[row] for row in sorted(self._unfinished)], self._block)
            self._block = commits.block
        self._region[commits.row, commits.place] = commits.token
        yield from self._by_row(commits)
        for row in commits.finished.tolist():
            self._unfinished.discard(row)
            ids = self._region[row].tolist()
            stop = next((place for place, token in enumerate(ids) if token in self._ends), None)
            yield Completed(self._numbers[row], Response(ids[:stop], stop is not None, self._traces[row]))

    def _by_row(self, commits: Commits) -> Iterator[Committed]:
        """One event for each row of a step, which is added to the row's trace."""
        rows = commits.row.tolist()
        position = self._canvas.positions[commits.place]
        given = (position, commits.token, commits.reward, commits.matched, commits.edited)
        columns = [one.tolist() for one in given]
        for row in dict.fromkeys(rows):
            mine = [index for index, other in enumerate(rows) if other == row]
            positions, tokens, rewards, matched, edited = ([column[index] for index in mine] for column in columns)
            trace = self._traces[row]
            trace.step.extend([commits.step] * len(mine))
            trace.position.extend(positions)
            trace.token_id.extend(tokens)
            trace.reward.extend(rewards)
            trace.matched.extend(matched)
            yield Committed(self._numbers[row], commits.step, positions, tokens, rewards, matched, edited)


def collect(
    model: Denoiser, canvas: Canvas, steps: Iterable[Commits], progress: Progress | None = None
) -> list[Response]:
    """Run the steps of a decode and return the response of each row."""
    events = BatchEvents(canvas, range(len(canvas.ids)), model.end_ids)
    responses: dict[int, Response] = {}
    for commits in steps:
        responses.update({event.row: event.response for event in events.of(commits) if isinstance(event, Completed)})
        if progress is not None:
            progress(len(commits.row) - int(commits.edited.sum()))
    return [responses[row] for row in range(len(canvas.ids))]
