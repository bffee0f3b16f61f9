"""Decoding as a stream of events: the commits of each step, each finished block, each finished row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgmark.decode.canvas import Canvas, Commits, Response, Trace, response_of
from dgmark.decode.generation import Generation, generation_of
from dgmark.decode.prompts import Prepared, Prompt, requests_of
from dgmark.decode.scheme import Scheme
from dgmark.models.denoiser import Denoiser
from dgmark.watermark.key import WatermarkKey


@dataclass(frozen=True)
class Committed:
    """The commits of one step in one row, as parallel lists; see `Trace`."""

    row: int
    step: int
    positions: list[int]
    token_ids: list[int]
    rewards: list[float]
    matched: list[bool]


@dataclass(frozen=True)
class BlockFinished:
    """In these rows, nothing in the block of this number or before it will change any more."""

    rows: list[int]
    block: int


@dataclass(frozen=True)
class RowFinished:
    """A row is complete."""

    row: int
    generation: Generation


Event = Committed | BlockFinished | RowFinished


def stream(
    model: Denoiser,
    prompts: str | Sequence[Prompt],
    *,
    key: WatermarkKey | None,
    subkey: int | None = None,
    scheme: Scheme | None = None,
    seed: int = 0,
    batch_size: int = 8,
    chat: bool = False,
    pad: bool | None = None,
    **settings: Any,
) -> Iterator[Event]:
    """Generate step by step, with an event for each change; the same arguments as for `generate` give the same texts.

    With a key that has sub-keys they do so if `subkey` is given too, for otherwise each row has one of its own.

    Invalid arguments raise when `stream` is called, not at the first event.

    Yields:
        A `Committed` for each step and row that the step changed; `BlockFinished` after the last step of a block;
        `RowFinished` as soon as a row is complete. Rows are numbered like the prompts.

    Raises:
        SettingsError: see `generate`.
        KeyFileError: see `generate`.
    """
    return events_of(
        Prepared.of(
            model,
            requests_of(prompts, key, seed, subkey),
            settings,
            scheme=scheme,
            chat=chat,
            pad=pad,
            batch_size=batch_size,
        )
    )


def events_of(prepared: Prepared) -> Iterator[Event]:
    """Decode prepared prompts, event by event; see `stream`."""
    for rows in prepared.chunks():
        for batch in prepared.batches(rows):
            events = BatchEvents(batch.canvas, batch.rows, prepared.model.end_ids)
            for commits in prepared.steps(batch):
                for event in events.of(commits):
                    if isinstance(event, Completed):
                        yield RowFinished(event.row, generation_of(prepared, event.row, event.response))
                    else:
                        yield event


@dataclass(frozen=True)
class Completed:
    """A complete row, before its text is decoded."""

    row: int
    response: Response


@dataclass
class _Row:
    """The commits of a row so far."""

    trace: Trace = field(default_factory=lambda: Trace([], [], [], [], []))

    def add(self, event: Committed) -> None:
        self.trace.step.extend([event.step] * len(event.positions))
        self.trace.position.extend(event.positions)
        self.trace.token_id.extend(event.token_ids)
        self.trace.reward.extend(event.rewards)
        self.trace.matched.extend(event.matched)


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
        self._states = [_Row() for _ in numbers]
        self._unfinished = set(range(len(numbers)))
        self._block = 0

    def of(self, commits: Commits) -> Iterator[Committed | BlockFinished | Completed]:
        """The events of one step; the commits of each step are given once, in order."""
        if commits.block != self._block:
            yield BlockFinished([self._numbers[row] for row in sorted(self._unfinished)], self._block)
            self._block = commits.block
        self._region[commits.row, commits.place] = commits.token
        for row, event in _by_row(commits, self._canvas, self._numbers):
            self._states[row].add(event)
            yield event
        for row in commits.finished.tolist():
            self._unfinished.discard(row)
            response = response_of(self._region[row].tolist(), self._ends, self._states[row].trace)
            yield Completed(self._numbers[row], response)


def _by_row(commits: Commits, canvas: Canvas, numbers: Sequence[int]) -> Iterator[tuple[int, Committed]]:
    """One event for each row of a step."""
    rows = commits.row.tolist()
    columns = (canvas.position_of(commits.row, commits.place), commits.token, commits.reward, commits.matched)
    positions, tokens, rewards, matched = (column.tolist() for column in columns)
    for row in dict.fromkeys(rows):
        mine = [index for index, other in enumerate(rows) if other == row]
        yield (
            row,
            Committed(
                row=numbers[row],
                step=commits.step,
                positions=[positions[index] for index in mine],
                token_ids=[tokens[index] for index in mine],
                rewards=[rewards[index] for index in mine],
                matched=[matched[index] for index in mine],
            ),
        )
