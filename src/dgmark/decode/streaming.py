"""Decoding as it happens: an event for each step's commits, each finished block and each finished row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Unpack

from dgmark.decode.canvas import Canvas, Commits, Response, Trace, response_of
from dgmark.decode.config import Settings
from dgmark.decode.generation import Generation, generation_of
from dgmark.decode.prompts import Prepared, Prompt, requests_of
from dgmark.decode.scheme import Scheme
from dgmark.models.denoiser import Denoiser
from dgmark.watermark.key import WatermarkKey


@dataclass(frozen=True)
class Committed:
    """What one step committed in one row; parallel lists as in `Trace`."""

    row: int
    step: int
    positions: list[int]
    token_ids: list[int]
    rewards: list[float]
    matched: list[bool]


@dataclass(frozen=True)
class BlockFinished:
    """Nothing in the rows' block of this number, or before it, will change any more."""

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
    scheme: Scheme | None = None,
    seed: int = 0,
    batch_size: int = 8,
    chat: bool = False,
    pad: bool | None = None,
    **settings: Unpack[Settings],
) -> Iterator[Event]:
    """`generate`, told step by step: the same texts for the same arguments.

    Bad arguments raise when `stream` is called, not at the first event.

    Yields:
        For each step a `Committed` a row that it touched; `BlockFinished` after the last step of a block;
        `RowFinished` as soon as a row is complete. Rows are numbered as the prompts are.

    Raises:
        SettingsError: as `generate`.
        KeyFileError: as `generate`.
    """
    return events_of(
        Prepared.of(
            model,
            requests_of(prompts, key, seed),
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
            for event in _told(prepared.steps(batch), batch.canvas, batch.rows, prepared.model.end_ids):
                if isinstance(event, _Over):
                    yield RowFinished(event.row, generation_of(prepared, event.row, event.response))
                else:
                    yield event


@dataclass(frozen=True)
class _Over:
    row: int
    response: Response


@dataclass
class _Row:
    """What is known of a row so far."""

    ids: dict[int, int] = field(default_factory=dict)
    trace: Trace = field(default_factory=lambda: Trace([], [], [], [], []))

    def add(self, event: Committed) -> None:
        self.ids.update(zip(event.positions, event.token_ids, strict=True))
        self.trace.step.extend([event.step] * len(event.positions))
        self.trace.position.extend(event.positions)
        self.trace.token_id.extend(event.token_ids)
        self.trace.reward.extend(event.rewards)
        self.trace.matched.extend(event.matched)

    def response(self, ends: tuple[int, ...]) -> Response:
        return response_of([self.ids[position] for position in sorted(self.ids)], set(ends), self.trace)


def _told(
    steps: Iterator[Commits], canvas: Canvas, numbers: list[int], ends: tuple[int, ...]
) -> Iterator[Committed | BlockFinished | _Over]:
    known = [_Row() for _ in numbers]
    going = set(range(len(numbers)))
    block = 0
    for commits in steps:
        if commits.block != block:
            yield BlockFinished([numbers[row] for row in sorted(going)], block)
            block = commits.block
        for row, event in _by_row(commits, canvas, numbers):
            known[row].add(event)
            yield event
        for row in commits.finished.tolist():
            going.discard(row)
            yield _Over(numbers[row], known[row].response(ends))


def _by_row(commits: Commits, canvas: Canvas, numbers: list[int]) -> Iterator[tuple[int, Committed]]:
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
